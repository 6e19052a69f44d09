plateau_test(test_store_parts store LABELS threads)
plateau_test(test_store store LABELS threads)
plateau_test(test_store_faults store LABELS threads)
