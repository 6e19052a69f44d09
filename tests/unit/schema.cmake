plateau_test(test_schema grammar base)
plateau_test(test_schema_numbers grammar base)
plateau_test(test_schema_refuse grammar memory base)
plateau_test(test_front_ends grammar base)
