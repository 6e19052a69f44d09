plateau_fuzz(fuzz_pattern constraint base)
plateau_fuzz(fuzz_grammar constraint base)
plateau_fuzz(fuzz_tools constraint)
