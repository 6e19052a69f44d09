add_executable(sim_memory sim_memory.c)
target_link_libraries(sim_memory PRIVATE plateau_registry)
add_test(NAME sim_memory COMMAND sim_memory ${PLATEAU_SIM_STEPS} 1)
set_tests_properties(sim_memory PROPERTIES TIMEOUT 300 LABELS sim)
