plateau_bench(kern_bench kernel tensor base memory)
