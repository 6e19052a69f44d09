plateau_fuzz(fuzz_store_file store)
