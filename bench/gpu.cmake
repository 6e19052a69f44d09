# Whole models on a GPU; skipped where there is none.
plateau_bench(gpu_bench model memory base)
target_sources(gpu_bench PRIVATE bench_rows.c gpu_image.c gpu_units.c)
target_include_directories(gpu_bench PRIVATE ${CMAKE_SOURCE_DIR}/tools)
