plateau_fuzz(fuzz_store_file store)
plateau_fuzz(fuzz_shared_value store)
