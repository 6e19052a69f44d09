plateau_test(test_sampler sample base)
plateau_test(test_sampler_best sample base)
plateau_test(test_ngram sample base)
