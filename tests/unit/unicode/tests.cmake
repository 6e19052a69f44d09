plateau_test(test_utf8 chat)
plateau_test(test_unicode chat)
