plateau_bench(kern_bench kernel tensor base memory)
target_sources(kern_bench PRIVATE yardsticks.c tile_peak.c)
