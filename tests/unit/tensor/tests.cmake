plateau_test(test_tensor tensor)
plateau_test(test_block_form tensor)
plateau_test(test_quantise tensor)
