# Whole models: the bundled one, and made-up ones that are written to the build folder once.
foreach(name model_bench vision_bench)
  plateau_bench(${name} model memory base)
  target_sources(${name} PRIVATE bench_models.c ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_shape.c
    ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_tensors.c ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_write.c)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tools)
  target_compile_definitions(${name} PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    BENCH_MODELS="${CMAKE_BINARY_DIR}/bench-models")
endforeach()
target_sources(model_bench PRIVATE bench_rows.c)
