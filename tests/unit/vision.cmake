plateau_test(test_smart_size vision)
plateau_test(test_resize vision)
plateau_test(test_decode vision)
