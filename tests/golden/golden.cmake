# Models against a reference's numbers, and models made up to be loaded in every form.
plateau_test(test_golden model LABELS slow)
target_compile_definitions(test_golden PRIVATE GOLDEN_PROGRAM="$<TARGET_FILE:golden>")
add_dependencies(test_golden golden)
plateau_test(test_golden_canary base LABELS slow TIMEOUT 900)
target_compile_definitions(test_golden_canary PRIVATE GOLDEN_PROGRAM="$<TARGET_FILE:golden>")
add_dependencies(test_golden_canary golden)

foreach(name test_load test_forms test_widths test_pending test_mtp test_draft_vocab test_vision_weights)
  plateau_test(${name} model LABELS threads)
  target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tools/golden/runner.c)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tools)
endforeach()
plateau_checked_kernel(test_load test_forms test_pending test_mtp test_draft_vocab test_vision_weights)
