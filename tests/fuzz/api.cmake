plateau_fuzz(fuzz_chat_request api)
