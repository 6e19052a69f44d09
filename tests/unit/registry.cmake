plateau_test(test_victims registry)
