plateau_test(test_victims registry)
plateau_test(test_registry registry LABELS threads)
