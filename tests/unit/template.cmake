plateau_test(test_template text base memory)
plateau_test(test_template_cost text base memory LABELS slow)
plateau_test(test_template_real text base memory)
plateau_test(test_chat_cuts text base memory)
