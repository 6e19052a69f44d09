plateau_fuzz(fuzz_http http)
plateau_fuzz(fuzz_http_raw http)
plateau_fuzz(fuzz_hub_list hub)
