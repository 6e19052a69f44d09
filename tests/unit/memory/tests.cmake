plateau_test(test_ledger memory LABELS threads)
plateau_test(test_accounts memory)
plateau_test(test_plan memory)
plateau_test(test_placement memory)
plateau_test(test_footprint_text memory)
# Control groups of its own.
plateau_test(test_footprint memory)
target_link_options(test_footprint PRIVATE -Wl,--wrap=open)
plateau_test(test_units memory)
if(PLATEAU_JEMALLOC)
  # The program's allocator, so that its statistics are tested too.
  target_link_libraries(test_units PRIVATE PkgConfig::JEMALLOC)
  target_compile_definitions(test_units PRIVATE TEST_JEMALLOC=1)
endif()
