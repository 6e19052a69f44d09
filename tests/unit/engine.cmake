plateau_test(test_page_pool cache)
plateau_test(test_slot_pool cache)
plateau_test(test_sched sched)
