/* heap_watch.h - threads that may not allocate, and what catches them.
 *
 * A thread says that it allocates no more; the hooks see each call of the malloc family, in whatever
 * library, and count those of such threads. Builds with PLATEAU_DEBUG and programs that compile
 * tests/heap_hooks.c themselves have the hooks; in other builds nothing is seen and saying so costs a store.
 * free() is not an allocation. */
#ifndef PLATEAU_BASE_HEAP_WATCH_H
#define PLATEAU_BASE_HEAP_WATCH_H

#include <stdbool.h>
#include <stdint.h>

/* The calling thread allocates nothing from here on (true), or may again. */
void heap_watch_forbid(bool forbidden);
/* By the hooks, before each allocation: on a thread that may not, counts it, and stops the process where that
 * is a trap. */
void heap_watch_see(void);

/* For tests: counting alone. Where PLATEAU_DEBUG is defined, allocating is a trap from the start. */
void heap_watch_set_trap(bool on);
/* Allocations on threads that may not, and all that were seen: 0 without hooks. */
uint64_t heap_watch_forbidden(void);
uint64_t heap_watch_seen(void);

#endif
