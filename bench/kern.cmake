plateau_bench(kern_bench kernel tensor base memory)
target_sources(kern_bench PRIVATE tile_peak.c)
