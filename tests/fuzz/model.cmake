plateau_fuzz(fuzz_safetensors weights)
plateau_fuzz(fuzz_config model)
