plateau_bench(image_bench vision base)
target_include_directories(image_bench PRIVATE ${CMAKE_SOURCE_DIR}/tests)
