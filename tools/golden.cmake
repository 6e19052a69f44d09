# build/golden: a model's numbers against a reference's.
add_executable(golden golden/golden.c golden/compare.c golden/golden_file.c golden/drafts.c golden/images.c golden/vectors.c
  golden/runner.c)
target_include_directories(golden PRIVATE ${CMAKE_SOURCE_DIR}/tools ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(golden PRIVATE plateau_model plateau_vision)
set_target_properties(golden PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# build/golden_pixels: pixels as encoders read them, for golden/compare_pixels.py.
add_executable(golden_pixels golden/pixels.c)
target_include_directories(golden_pixels PRIVATE ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(golden_pixels PRIVATE plateau_model plateau_media)
set_target_properties(golden_pixels PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
