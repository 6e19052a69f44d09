plateau_test(test_chat_format text base)
plateau_test(test_chat_formats text base)
plateau_test(test_chat_templates text base memory grammar)
