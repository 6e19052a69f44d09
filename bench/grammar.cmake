# Masks of constrained decoding.
plateau_bench(grammar_bench grammar)
target_compile_definitions(grammar_bench PRIVATE PLATEAU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
