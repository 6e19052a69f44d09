# How everything is compiled.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
option(PLATEAU_TESTS "Build the tests" ON)
option(PLATEAU_FUZZ "Build the fuzz targets (clang)" OFF)
# Counters of branches suffice for short runs. A call at each comparison, which the preset `fuzz` adds, makes a test that
# reads much text three times as slow, and ./test runs all tests in the build that has its fuzz targets.
set(PLATEAU_COVERAGE -fsanitize-coverage=inline-8bit-counters,pc-table CACHE STRING "What fuzz targets see of a run")
option(PLATEAU_JEMALLOC "Link jemalloc" ON)
option(PLATEAU_DEBUG "Check every invariant after each step, and stop when an engine's thread allocates" OFF)
set(PLATEAU_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")

add_compile_definitions(_GNU_SOURCE PLATEAU_VERSION="${PROJECT_VERSION}")
add_compile_options(-Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
  -Wno-missing-field-initializers -fno-strict-aliasing -fvisibility=hidden)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # Text with a bound is cut at its bound, on purpose (err.h, names of accounts).
  add_compile_options(-Wno-format-truncation)
endif()
# -ffp-contract=off: a sum is what the source says, in every compiler; fused operations are written as fma.
add_compile_options(-ffp-contract=off)
# Backtraces have files and lines. Variables, for a debugger, are in the debug build: their places take gcc a tenth of
# its time.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
if(PLATEAU_DEBUG)
  add_compile_definitions(PLATEAU_DEBUG)
  set(PLATEAU_JEMALLOC OFF) # tests/heap_hooks.c stands before glibc's allocator
endif()
if(PLATEAU_SANITIZE)
  # A report has files and lines; variables for a debugger, which make objects and links larger, are in the debug build.
  add_compile_options(-fsanitize=${PLATEAU_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -gline-tables-only)
  # An access through NULL or beyond an object is AddressSanitizer's report: its checks are there anyway.
  add_compile_options(-fno-sanitize=null,object-size)
  add_link_options(-fsanitize=${PLATEAU_SANITIZE})
  if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    # Ninja links with every core.
    add_link_options(-fuse-ld=lld -Wl,--threads=1)
  endif()
  set(PLATEAU_JEMALLOC OFF)
endif()
