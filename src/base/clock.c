/* clock.c - the two clocks. */
#include "base/clock.h"

uint64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

double clock_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct timespec clock_deadline(uint64_t from_now_ns)
{
    /* A century is as good as no limit, and does not overflow. */
    const uint64_t century_ns = 3600ull * 24 * 36500 * NS_PER_S;
    uint64_t at = clock_now_ns() + (from_now_ns < century_ns ? from_now_ns : century_ns);
    return (struct timespec){.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)};
}
