plateau_bench(picture_bench vision base)
target_include_directories(picture_bench PRIVATE ${CMAKE_SOURCE_DIR}/tests)
