# Masks of constrained decoding.
foreach(name grammar_bench mask_bench)
  plateau_bench(${name} constraint)
  target_sources(${name} PRIVATE bench_vocab.c)
  target_compile_definitions(${name} PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE PkgConfig::JANSSON)
endforeach()

# Decoding under schemas, against decoding without.
plateau_bench(schema_bench engine constraint)
target_sources(schema_bench PRIVATE bench_vocab.c bench_models.c
  ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_shape.c ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_tensors.c
  ${CMAKE_SOURCE_DIR}/tools/mkmodel/mk_write.c)
target_include_directories(schema_bench PRIVATE ${CMAKE_SOURCE_DIR}/tools)
target_compile_definitions(schema_bench PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
  BENCH_MODELS="${CMAKE_BINARY_DIR}/bench-models")
target_link_libraries(schema_bench PRIVATE PkgConfig::JANSSON)
