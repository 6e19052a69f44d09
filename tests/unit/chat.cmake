plateau_test(test_chat_format text base)
