# plateau_layer(NAME UPPER...): declares that src/NAME may use the layers UPPER.
# tools/check-layers reads the same lines and checks the includes.
macro(plateau_layer name)
  set(PLATEAU_LAYER_${name} ${ARGN})
endmacro()

# plateau_library(NAME [LIBS...]): the static library plateau_NAME of all C files of the calling folder,
# linked with its layers above and with LIBS.
function(plateau_library name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  add_library(plateau_${name} STATIC ${sources})
  target_include_directories(plateau_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(plateau_${name} PUBLIC Threads::Threads ${ARGN} m)
  foreach(upper ${PLATEAU_LAYER_${name}})
    target_link_libraries(plateau_${name} PUBLIC plateau_${upper})
  endforeach()
endfunction()

# plateau_test(NAME LAYER...): tests/.../NAME.c as a cmocka program in CTest.
function(plateau_test name)
  add_executable(${name} ${name}.c)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
  foreach(layer ${ARGN})
    target_link_libraries(${name} PRIVATE plateau_${layer})
  endforeach()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()

# plateau_fuzz(NAME LAYER...): tests/fuzz/NAME.c as a libFuzzer program; its seeds lie in corpus/NAME.
function(plateau_fuzz name)
  add_executable(${name} ${name}.c)
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  foreach(layer ${ARGN})
    target_link_libraries(${name} PRIVATE plateau_${layer})
  endforeach()
endfunction()
