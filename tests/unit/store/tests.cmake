plateau_test(test_store_parts store LABELS threads)
plateau_test(test_store store LABELS threads)
plateau_test(test_store_faults store LABELS threads)
plateau_test(test_store_leases store LABELS threads)
plateau_test(test_shared_tier store LABELS threads)
plateau_test(test_shared_redis store LABELS threads)

# A file disappears between its stat and its open.
plateau_test(test_store_audit store)
target_link_options(test_store_audit PRIVATE -Wl,--wrap=openat)
