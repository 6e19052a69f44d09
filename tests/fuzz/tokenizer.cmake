plateau_fuzz(fuzz_tokenizer chat)
