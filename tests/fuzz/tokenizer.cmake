plateau_fuzz(fuzz_tokenizer text)
