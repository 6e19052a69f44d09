# plateau_layer(NAME UPPER...): declares that src/NAME may use the layers UPPER.
# tools/check-layers reads the same lines and checks the includes.
macro(plateau_layer name)
  set(PLATEAU_LAYER_${name} ${ARGN})
endmacro()

# The layers that fuzz targets run report their coverage, or the fuzzer would search blindly. The engine is not among
# them: a target runs one file of it.
set(PLATEAU_FUZZED base memory http gguf weights hub unicode tokenizer template chat rx grammar schema constraint vision model media store gen api host cli)
function(plateau_coverage target name)
  if(PLATEAU_FUZZ AND name IN_LIST PLATEAU_FUZZED)
    target_compile_options(${target} PRIVATE ${PLATEAU_COVERAGE})
  endif()
endfunction()

# Folders that compute little: in the sanitizers' builds they are not optimised, which takes clang half the time and
# their tests hardly more. The fuzz targets' own preset optimises all.
set(PLATEAU_PLAIN api cli gen gguf host http hub media model weights)
function(plateau_plain target name)
  if(PLATEAU_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Debug" AND name IN_LIST PLATEAU_PLAIN)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# plateau_library(NAME [LIBS...]): the static library plateau_NAME of all C files of the calling folder and of
# its subfolders, linked with its layers above and with LIBS.
function(plateau_library name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c ${CMAKE_CURRENT_SOURCE_DIR}/*/*.c)
  if(NOT sources)
    return()
  endif()
  add_library(plateau_${name} STATIC ${sources})
  plateau_coverage(plateau_${name} ${name})
  plateau_plain(plateau_${name} ${name})
  target_include_directories(plateau_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(plateau_${name} PUBLIC Threads::Threads ${ARGN} m)
  foreach(upper ${PLATEAU_LAYER_${name}})
    target_link_libraries(plateau_${name} PUBLIC plateau_${upper})
  endforeach()
endfunction()

# The tests that take longest, in this order, which have the label `long`. CTest starts them first, so that no core is
# idle at the end. ./test quick leaves them out, unless their own source changed.
set(PLATEAU_LONGEST test_golden_canary test_golden_simt test_engine_grammar test_tool_grammar test_engine_head test_golden
  test_engine_trim test_guard test_vision_weights test_forms test_engine_holders test_engine_canary
  test_engine_draft test_engine test_pending test_http_stream test_engine_phases test_engine_prefix
  test_template_cost test_system_faults test_store_faults test_domains test_engine_tier test_engine_pressure
  test_draft_length test_engine_image_sched test_engine_image_sched_ends test_tokenizer)

# Test programs of the release build are linked by lld, where it is installed, in a third of the time; by one thread
# each, as Ninja links with every core.
find_program(PLATEAU_LLD ld.lld)
function(plateau_link_fast name)
  if(PLATEAU_LLD AND NOT PLATEAU_SANITIZE)
    target_link_options(${name} PRIVATE -fuse-ld=lld -Wl,--threads=1)
  endif()
endfunction()

# plateau_test(NAME LAYER... [LABELS LABEL...] [TIMEOUT SECONDS] [SOURCE FILE]): tests/.../NAME.c, or FILE,
# as a cmocka program in CTest, labelled with its folder's name and with LABELS. Two labels choose where else
# it runs:
#   threads   also under ThreadSanitizer
#   slow      not under AddressSanitizer
function(plateau_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;SOURCE" "LABELS")
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_SOURCE)
    set(arg_SOURCE ${name}.c)
  endif()
  set(arg_SOURCE ${CMAKE_CURRENT_LIST_DIR}/${arg_SOURCE})
  add_executable(${name} ${arg_SOURCE})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(PLATEAU_SANITIZE)
    target_compile_definitions(${name} PRIVATE TEST_SANITIZED)
  endif()
  # A test's own code waits for what it tests, which is optimised; compiling it with optimisation takes three to five times as long.
  # tests/kernel and tests/sim compute much themselves.
  if(folder STREQUAL "unit" OR folder STREQUAL "golden")
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
  add_dependencies(${name} goldens)
  plateau_link_fast(${name})
  foreach(layer ${arg_UNPARSED_ARGUMENTS})
    target_link_libraries(${name} PRIVATE plateau_${layer})
  endforeach()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${folder};${arg_LABELS}")
  list(FIND PLATEAU_LONGEST ${name} place)
  if(NOT place EQUAL -1)
    math(EXPR cost "1000 - ${place}")
    set_tests_properties(${name} PROPERTIES COST ${cost} LABELS "${folder};long;${arg_LABELS}"
      REQUIRED_FILES ${arg_SOURCE})
  endif()
  if(threads IN_LIST arg_LABELS)
    add_dependencies(threads_tests ${name})
  endif()
endfunction()

# plateau_fake_test(TEST... [LABELS LABEL...]): these tests run once more on the fake device, as NAME_fake. Not under
# AddressSanitizer; with the label `threads` under ThreadSanitizer.
function(plateau_fake_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "LABELS")
  foreach(name ${arg_UNPARSED_ARGUMENTS})
    add_test(NAME ${name}_fake COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name}_fake PROPERTIES TIMEOUT 300 LABELS "fake;slow;${arg_LABELS}" ENVIRONMENT PLATEAU_TEST_DEVICE=fake)
  endforeach()
endfunction()

# `ninja threads_tests` builds what ThreadSanitizer runs and no more.
add_custom_target(threads_tests)

# plateau_checked_kernel(SANITIZER TEST...): under that sanitizer, `thread` or `address`, these tests see every access
# of the AVX kernels. An executable's own object takes precedence over the one in the library. Which worker writes what
# is the same in every tier: ThreadSanitizer sees it in the widest.
function(plateau_checked_kernel sanitizer)
  if(PLATEAU_SANITIZE MATCHES "${sanitizer}")
    set(sets avx512 int_vnni)
    if(sanitizer STREQUAL "address")
      list(APPEND sets avx2 int_avx2)
    endif()
    foreach(name ${ARGN})
      foreach(set ${sets})
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:plateau_kernel_checked_${set}>)
      endforeach()
    endforeach()
  endif()
endfunction()

# plateau_fuzz(NAME LAYER...): tests/fuzz/NAME.c as a libFuzzer program, BUILD/fuzz/NAME; its seeds lie in
# corpus/NAME.
function(plateau_fuzz name)
  add_executable(${name} ${name}.c)
  target_compile_definitions(${name} PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  foreach(layer ${ARGN})
    target_link_libraries(${name} PRIVATE plateau_${layer})
  endforeach()
endfunction()

# plateau_bench(NAME LAYER...): bench/NAME.c as BUILD/bench/run/NAME, which `make bench` runs without arguments.
function(plateau_bench name)
  add_executable(${name} ${name}.c)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench/run)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  plateau_link_fast(${name})
  foreach(layer ${ARGN})
    target_link_libraries(${name} PRIVATE plateau_${layer})
  endforeach()
endfunction()

# plateau_programs(NAME...): those of the targets that exist are written to the build folder itself:
# build/plateau, build/golden.
function(plateau_programs)
  foreach(name ${ARGN})
    if(TARGET ${name})
      set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    endif()
  endforeach()
endfunction()
