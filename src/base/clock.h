/* clock.h - time. Pure modules never call this: they get the time as an argument. */
#ifndef PLATEAU_BASE_CLOCK_H
#define PLATEAU_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t clock_now_ns(void);
/* The processor time of the calling thread in nanoseconds. */
uint64_t clock_thread_ns(void);
/* Seconds since 1970, for what clients and logs read. */
double clock_wall_s(void);
/* Writes the UTC time `unix_s` seconds after 1970 as YYYY-MM-DDThh:mm:ss, of a time outside the years 1970 to
 * 9999 the nearest inside. Returns the length, CLOCK_TEXT_BYTES - 1. Allocates nothing and takes no lock,
 * unlike gmtime_r(), which reads time zones at its first call: an engine's thread may log. */
#define CLOCK_TEXT_BYTES 20
uint32_t clock_text(int64_t unix_s, char ret[CLOCK_TEXT_BYTES]);
/* The CLOCK_MONOTONIC time `from_now_ns` ahead, for timed waits; far away for UINT64_MAX. */
struct timespec clock_deadline(uint64_t from_now_ns);
/* A condition variable whose timed waits take such times. */
void clock_cond_init(pthread_cond_t *c);

#endif
