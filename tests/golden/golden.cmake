# Models against a reference's numbers, and models made up to be loaded in every form.
plateau_test(test_golden model LABELS slow)
target_compile_definitions(test_golden PRIVATE GOLDEN_PROGRAM="$<TARGET_FILE:golden>")
add_dependencies(test_golden golden)
plateau_test(test_golden_canary base LABELS slow TIMEOUT 900)
target_compile_definitions(test_golden_canary PRIVATE GOLDEN_PROGRAM="$<TARGET_FILE:golden>")
add_dependencies(test_golden_canary golden)

foreach(name test_load test_forms test_widths test_pending test_mtp test_draft_vocab test_vision_weights
        test_experts test_modes test_form_plan test_stored_forms
        test_gguf_families test_gguf_factors test_gguf_mtp test_quant test_packed)
  # One thread computes what a checkpoint's form changes.
  set(labels threads)
  if(name MATCHES "^test_(forms|stored_forms|gguf_families|gguf_factors|gguf_mtp|experts|modes|form_plan|quant|packed)$")
    set(labels)
  endif()
  plateau_test(${name} model LABELS ${labels})
  target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tools/golden/runner.c)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tools)
endforeach()
# Their tests are not optimised; making models up is, and is compiled once.
add_library(golden_quantised OBJECT EXCLUDE_FROM_ALL small_quantised.c)
target_include_directories(golden_quantised PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMAKE_SOURCE_DIR}/tools)
target_link_libraries(golden_quantised PRIVATE plateau_model PkgConfig::CMOCKA)
foreach(name test_forms test_form_plan test_modes test_quant test_stored_forms)
  target_sources(${name} PRIVATE $<TARGET_OBJECTS:golden_quantised>)
endforeach()
plateau_fake_test(test_pending test_mtp test_draft_vocab test_vision_weights test_load test_widths)
plateau_fake_test(test_modes test_quant)
# Its own vision encoder, loops in double, takes most of its time.
target_compile_options(test_vision_weights PRIVATE -O2)
plateau_checked_kernel(thread test_load test_pending test_mtp test_draft_vocab test_vision_weights)

# build/tests/golden/golden_simt: golden, whose cuda:0 runs its kernels on the CPU.
if(TARGET simt)
  get_target_property(sources golden SOURCES)
  list(TRANSFORM sources PREPEND ${CMAKE_SOURCE_DIR}/tools/)
  add_executable(golden_simt ${sources})
  target_include_directories(golden_simt PRIVATE ${CMAKE_SOURCE_DIR}/tools ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(golden_simt PRIVATE plateau_model plateau_vision PkgConfig::CMOCKA)
  plateau_link_fast(golden_simt)
  plateau_simt_program(golden_simt)
  plateau_test(test_golden_simt base LABELS slow TIMEOUT 900)
  target_compile_definitions(test_golden_simt PRIVATE GOLDEN_PROGRAM="$<TARGET_FILE:golden_simt>")
  add_dependencies(test_golden_simt golden_simt)
endif()
