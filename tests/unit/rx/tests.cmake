plateau_test(test_rx constraint chat)
plateau_test(test_rx_parse constraint)
target_link_libraries(test_rx_parse PRIVATE PkgConfig::PCRE2)
