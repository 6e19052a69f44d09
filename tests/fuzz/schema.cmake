plateau_fuzz(fuzz_schema grammar base)
plateau_fuzz(fuzz_gbnf grammar base)
plateau_fuzz(fuzz_lark grammar base)
plateau_fuzz(fuzz_structural grammar base)
