# Whole models: the bundled one, and made-up ones that are written to the build folder once.
plateau_bench(model_bench model memory base)
target_sources(model_bench PRIVATE yardsticks.c bench_rows.c ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_shape.c
  ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_tensors.c ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_write.c)
target_include_directories(model_bench PRIVATE ${CMAKE_SOURCE_DIR}/tools)
target_compile_definitions(model_bench PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
  BENCH_MODELS="${CMAKE_BINARY_DIR}/bench-models")
