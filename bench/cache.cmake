plateau_bench(walk_bench sched)
