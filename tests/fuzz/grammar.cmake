plateau_fuzz(fuzz_pattern grammar base)
plateau_fuzz(fuzz_grammar grammar base)
target_include_directories(fuzz_grammar PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit)
plateau_fuzz(fuzz_tools grammar)
