plateau_test(test_schema constraint base)
plateau_test(test_schema_numbers constraint base)
plateau_test(test_schema_masks constraint base)
plateau_test(test_schema_refuse constraint memory base)
