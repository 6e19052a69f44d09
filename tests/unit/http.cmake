plateau_test(test_sse http)
plateau_test(test_http_guard http)
plateau_test(test_http http LABELS threads)
