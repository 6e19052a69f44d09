# What tokenizing takes.
plateau_bench(token_bench chat base)
