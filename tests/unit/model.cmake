plateau_test(test_tensor tensor)
plateau_test(test_safetensors weights)
plateau_test(test_checkpoint weights)
plateau_test(test_config model)
