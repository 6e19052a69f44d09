plateau_test(test_api_request api)
plateau_test(test_keyring api)
plateau_test(test_api_memory api LABELS threads)
plateau_test(test_env_file cli)
