/* priority.h - lowers a thread's priority, and raises it while the thread holds a lock that others need.
 *
 * Low is SCHED_IDLE: all other work goes first. So a low thread may stand still for long, and its locks
 * with it, above all the kernel's lock on the address space. Where it takes that for more than a moment,
 * it does so between priority_raise() and priority_restore(). For a thread of normal priority both do
 * nothing. Each thread for itself. */
#ifndef PLATEAU_BASE_PRIORITY_H
#define PLATEAU_BASE_PRIORITY_H

#include <stdbool.h>

/* Whether a low thread can become normal again: the system may forbid it (RLIMIT_NICE below 20, no
 * CAP_SYS_NICE). Tried once, on a thread that is made for it. */
bool priority_may_return(void);
/* The calling thread is low from now on; only where priority_may_return(). */
void priority_lower(void);
void priority_normal(void);
bool priority_is_low(void);
void priority_raise(void);
void priority_restore(void);

#endif
