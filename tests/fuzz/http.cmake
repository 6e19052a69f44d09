plateau_fuzz(fuzz_http http)
plateau_fuzz(fuzz_http_raw http)
