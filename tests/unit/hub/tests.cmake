plateau_test(test_hub hub tensor)
