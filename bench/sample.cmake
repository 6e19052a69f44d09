# What a sample takes.
plateau_bench(sample_bench sample compute base)
