# Decoding with tokens drafted ahead, against decoding without.
plateau_bench(spec_bench registry)
target_compile_definitions(spec_bench PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
target_link_libraries(spec_bench PRIVATE PkgConfig::JANSSON)
