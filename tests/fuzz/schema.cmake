plateau_fuzz(fuzz_schema constraint base)
plateau_fuzz(fuzz_gbnf constraint base)
plateau_fuzz(fuzz_lark constraint base)
plateau_fuzz(fuzz_structural constraint base)
