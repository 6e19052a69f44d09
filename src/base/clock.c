/* clock.c - the clocks. */
#include "base/clock.h"

#include "base/check.h"

#include <stdbool.h>
#include <string.h>

uint64_t clock_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t clock_thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
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

void clock_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

#define END_S ((int64_t)253402300800) /* the year 10000 begins */

static bool is_leap(uint32_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Turns the days of `*days` that fill whole years from 1970 on into the year, and leaves the rest. */
static uint32_t take_years(uint32_t *days)
{
    uint32_t year = 1970;
    for (; *days >= 365u + is_leap(year); year++)
        *days -= 365u + is_leap(year);
    return year;
}

static uint32_t take_months(uint32_t year, uint32_t *days)
{
    static const uint8_t lengths[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint32_t month = 0;
    for (; *days >= lengths[month] + (uint32_t)(month == 1 && is_leap(year)); month++)
        *days -= lengths[month] + (uint32_t)(month == 1 && is_leap(year));
    return month + 1;
}

static void put_number(char *at, uint32_t digits, uint32_t number)
{
    for (; digits > 0; digits--, number /= 10)
        at[digits - 1] = (char)('0' + number % 10);
}

uint32_t clock_text(int64_t unix_s, char ret[CLOCK_TEXT_BYTES])
{
    unix_s = MIN_OF(MAX_OF(unix_s, 0), END_S - 1);
    uint32_t days = (uint32_t)(unix_s / 86400), s = (uint32_t)(unix_s % 86400);
    uint32_t year = take_years(&days), month = take_months(year, &days);
    memcpy(ret, "0000-00-00T00:00:00", CLOCK_TEXT_BYTES);
    put_number(ret, 4, year);
    put_number(ret + 5, 2, month);
    put_number(ret + 8, 2, days + 1);
    put_number(ret + 11, 2, s / 3600);
    put_number(ret + 14, 2, s / 60 % 60);
    put_number(ret + 17, 2, s % 60);
    return CLOCK_TEXT_BYTES - 1;
}
