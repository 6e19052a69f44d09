plateau_test(test_page_pool cache)
plateau_test(test_page_moves cache)
plateau_test(test_block_pool cache)
plateau_test(test_prefix_key cache)
plateau_test(test_prefix_index cache)
plateau_test(test_prefix_groups cache)
plateau_test(test_pinned_tier cache)
plateau_test(test_sched sched)
plateau_test(test_sched_drafts sched)
plateau_test(test_sched_prefix sched)
plateau_test(test_sched_groups sched)
plateau_test(test_sched_shares sched)
plateau_test(test_sched_matching sched)
plateau_test(test_sched_fetch sched)
plateau_test(test_walks sched)
plateau_test(test_pools engine)
plateau_test(test_write_behind engine)
plateau_test(test_publish engine)
plateau_test(test_trim engine)
plateau_test(test_image_sched engine)
plateau_test(test_job_images engine)
plateau_test(test_embedding_cache engine)
plateau_test(test_budget engine)
plateau_test(test_fingerprint engine)
plateau_test(test_stream engine LABELS threads)
foreach(name test_engine test_engine_turns test_engine_ends test_engine_phases test_engine_faults test_engine_pressure test_engine_prefix test_engine_trim
    test_engine_plan test_invariants test_engine_image_sched test_engine_image_sched_ends test_engine_tier test_engine_draft test_engine_head test_engine_canary
    test_engine_grammar test_engine_grammar_tiny test_engine_vectors test_engine_think test_engine_windows)
  # The bundled model is too slow under ThreadSanitizer; what it adds there, the tiny ones have too. So is it under
  # AddressSanitizer, but for one test.
  set(labels threads)
  if(name STREQUAL test_engine_canary)
    set(labels)
  elseif(name MATCHES "test_engine_head|test_engine_grammar$")
    set(labels slow)
  endif()
  plateau_test(${name} engine LABELS ${labels})
  target_link_libraries(${name} PRIVATE PkgConfig::JANSSON)
endforeach()
plateau_checked_kernel(thread test_engine test_engine_prefix test_engine_phases)
plateau_fake_test(test_engine test_engine_canary test_engine_turns test_engine_grammar_tiny test_engine_vectors test_engine_phases test_engine_prefix test_engine_tier test_engine_image_sched_ends)
# Under ThreadSanitizer too, for the thread of the fake device: requests that end, preemption, drafts, images.
plateau_fake_test(test_engine_ends test_engine_pressure test_engine_draft test_engine_image_sched LABELS threads)

# Whatever the system may refuse is refused once, in the programs' own calls: libraries keep theirs.
plateau_test(test_system_faults cli)
target_link_options(test_system_faults PRIVATE
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=mmap,--wrap=mprotect
  -Wl,--wrap=pthread_create,--wrap=open,--wrap=eventfd,--wrap=epoll_create1,--wrap=socket)
