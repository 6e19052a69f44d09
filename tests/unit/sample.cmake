plateau_test(test_sampler sample base)
