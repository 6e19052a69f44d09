plateau_test(test_cache_share memory)
plateau_test(test_holders memory LABELS threads)
plateau_test(test_engine_holders engine LABELS threads)
target_link_libraries(test_engine_holders PRIVATE PkgConfig::JANSSON)
