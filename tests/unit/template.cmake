plateau_test(test_template text)
plateau_test(test_template_limits text)
plateau_test(test_template_real text)
