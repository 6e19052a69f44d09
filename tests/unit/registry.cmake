plateau_test(test_victims registry)
plateau_test(test_model_use registry)
plateau_test(test_registry registry LABELS threads)
