plateau_fuzz(fuzz_template text base)
plateau_fuzz(fuzz_template_values text base)
plateau_fuzz(fuzz_chat_format text base)
plateau_fuzz(fuzz_json text base)
