add_executable(sim_sched sim_sched.c sim_world.c sim_requests.c sim_step.c sim_tier.c)
target_link_libraries(sim_sched PRIVATE plateau_sched)
add_test(NAME sim_sched COMMAND sim_sched 100000 1)
set_tests_properties(sim_sched PROPERTIES TIMEOUT 300 LABELS sim)
