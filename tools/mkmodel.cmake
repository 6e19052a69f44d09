# build/mkmodel: checkpoints of random weights.
add_executable(mkmodel mkmodel/mkmodel.c mkmodel/mk_shape.c mkmodel/mk_tensors.c mkmodel/mk_write.c)
target_include_directories(mkmodel PRIVATE ${CMAKE_SOURCE_DIR}/tools)
target_link_libraries(mkmodel PRIVATE plateau_base)
set_target_properties(mkmodel PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
