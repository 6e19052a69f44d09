plateau_test(test_kv_replay events)
plateau_test(test_kv_message events)
