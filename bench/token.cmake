# Time of tokenizing.
plateau_bench(token_bench chat base)
