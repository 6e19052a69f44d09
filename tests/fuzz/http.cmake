plateau_fuzz(fuzz_http http)
