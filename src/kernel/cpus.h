/* cpus.h - how many processors this process really has. Inside kernel/ only. */
#ifndef PLATEAU_KERNEL_CPUS_H
#define PLATEAU_KERNEL_CPUS_H

#include <stdint.h>

/* Different cores among the processors we may run on (hyperthreads share one); at least 1. */
uint32_t cpus_physical(void);
/* The smallest CPU quota of our control group and its parents, rounded up; UINT32_MAX without one. */
uint32_t cpus_quota(void);

#endif
