plateau_test(test_rx grammar text)
plateau_test(test_grammar grammar memory)
plateau_test(test_matcher grammar)
