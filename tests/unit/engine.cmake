plateau_test(test_page_pool cache)
plateau_test(test_page_moves cache)
plateau_test(test_slot_pool cache)
plateau_test(test_prefix_key cache)
plateau_test(test_prefix_index cache)
plateau_test(test_prefix_groups cache)
plateau_test(test_sched sched)
plateau_test(test_sched_drafts sched)
plateau_test(test_sched_prefix sched)
plateau_test(test_sched_groups sched)
plateau_test(test_sched_fetch sched)
plateau_test(test_job_pictures engine)
plateau_test(test_gallery engine)
plateau_test(test_budget engine)
plateau_test(test_benefit engine LABELS slow)
plateau_test(test_stream engine LABELS threads)
foreach(name test_engine test_engine_ends test_engine_phases test_engine_faults test_engine_pressure test_engine_prefix test_engine_trim
    test_engine_plan test_engine_sight test_engine_sight_ends test_engine_tier test_engine_guess test_engine_head test_engine_canary)
  # The bundled model is too slow under ThreadSanitizer; what it adds there, the tiny ones have too.
  set(labels threads)
  if(name STREQUAL test_engine_canary)
    set(labels)
  elseif(name STREQUAL test_engine_head)
    set(labels slow)
  endif()
  plateau_test(${name} engine LABELS ${labels})
  target_link_libraries(${name} PRIVATE PkgConfig::JANSSON)
endforeach()

# Whatever the system may refuse is refused once, in the programs' own calls: libraries keep theirs.
plateau_test(test_system_faults cli)
target_link_options(test_system_faults PRIVATE
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=mmap,--wrap=mprotect
  -Wl,--wrap=pthread_create,--wrap=open,--wrap=eventfd,--wrap=epoll_create1,--wrap=socket)
