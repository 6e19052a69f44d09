plateau_test(test_cache_share memory)
plateau_test(test_holders memory LABELS threads)
