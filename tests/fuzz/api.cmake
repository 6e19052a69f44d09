plateau_fuzz(fuzz_chat_request api)
plateau_fuzz(fuzz_keyring api)
plateau_fuzz(fuzz_env_file cli)
