# Masks of constrained decoding.
foreach(name grammar_bench mask_bench)
  plateau_bench(${name} grammar)
  target_sources(${name} PRIVATE bench_vocab.c)
  target_compile_definitions(${name} PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE PkgConfig::JANSSON)
endforeach()
