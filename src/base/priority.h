/* priority.h - a thread that steps back for others, and steps forward again while it holds what they wait
 * for.
 *
 * Low is SCHED_IDLE: whoever else wants to compute goes first. So a low thread may stand still for long, and
 * what it holds then stands still with it, the system's lock on the address space above all: where it takes
 * that for more than a moment, it does so between priority_raise() and priority_restore(). For a thread that
 * is not low both do nothing. Each thread for itself. */
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
