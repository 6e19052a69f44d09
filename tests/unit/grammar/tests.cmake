plateau_test(test_grammar constraint memory)
plateau_test(test_matcher constraint)
plateau_test(test_mask constraint memory)
plateau_test(test_matcher_compact constraint)
