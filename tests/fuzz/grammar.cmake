plateau_fuzz(fuzz_pattern constraint base)
plateau_fuzz(fuzz_grammar constraint base)
target_include_directories(fuzz_grammar PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit)
plateau_fuzz(fuzz_tools constraint)
