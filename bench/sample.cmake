# Time of a sample.
plateau_bench(sample_bench sample compute base)
