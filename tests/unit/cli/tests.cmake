plateau_test(test_env_file cli)
plateau_test(test_nearest cli)

# Whatever the system may refuse is refused once, in the programs' own calls: libraries keep theirs.
plateau_test(test_system_faults cli)
target_link_options(test_system_faults PRIVATE
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=mmap,--wrap=mprotect
  -Wl,--wrap=pthread_create,--wrap=open,--wrap=eventfd,--wrap=epoll_create1,--wrap=socket)
