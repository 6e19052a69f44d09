plateau_test(test_smart_size vision)
plateau_test(test_tiles vision)
plateau_test(test_resize vision)
plateau_test(test_decode vision)
plateau_test(test_decode_refuse vision)
plateau_test(test_data_url vision)
# Has a malloc of its own.
plateau_test(test_decode_heap vision LABELS slow)
