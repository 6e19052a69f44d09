plateau_test(test_choice gen)
plateau_test(test_reply_frame gen)
