plateau_test(test_gguf gguf)
