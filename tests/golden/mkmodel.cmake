# Made-up checkpoints: loaded and run, and the program that writes them.
plateau_test(test_mkmodel model)
target_sources(test_mkmodel PRIVATE ${CMAKE_SOURCE_DIR}/tools/golden/runner.c
  ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_shape.c ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_tensors.c
  ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_write.c)
target_include_directories(test_mkmodel PRIVATE ${CMAKE_SOURCE_DIR}/tools)
target_compile_definitions(test_mkmodel PRIVATE MKMODEL_PROGRAM="$<TARGET_FILE:mkmodel>")
add_dependencies(test_mkmodel mkmodel)
