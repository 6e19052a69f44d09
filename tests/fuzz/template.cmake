plateau_fuzz(fuzz_template chat base)
plateau_fuzz(fuzz_template_values chat base)
plateau_fuzz(fuzz_chat_format chat base)
plateau_fuzz(fuzz_json chat base)
