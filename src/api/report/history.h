/* history.h - figures of the last 30 days, in memory of a fixed size.
 *
 * Three rings of buckets: a second for an hour, a minute for a day, half an hour for 30 days. A bucket has
 * the mean, the least and the largest of its samples; one of a second has its sample. Buckets without a
 * sample are empty. Pure: times are given, and rise. One thread at a time. */
#ifndef PLATEAU_API_HISTORY_H
#define PLATEAU_API_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum history_series {
    HISTORY_USED,        /* bytes of the ledger's root */
    HISTORY_SERVER,      /* bytes of the process's own accounts */
    HISTORY_FIXED,       /* the models' weights, tables and workspaces */
    HISTORY_ACTIVE,      /* their pages, states and blocks of requests */
    HISTORY_KEPT,        /* their caches */
    HISTORY_RESIDENT,    /* resident bytes as the system counts them */
    HISTORY_STEADY,      /* resident without caches and without models: what must not grow */
    HISTORY_UNACCOUNTED, /* may be negative */
    HISTORY_PENDING_TRIM,
    HISTORY_GENERATED, /* tokens a second */
    HISTORY_PREFILLED,
    HISTORY_CACHED,
    HISTORY_RUNNING, /* sequences */
    HISTORY_WAITING,
    HISTORY_FIRST_TOKEN, /* seconds; only where one came */
    HISTORY_REFUSED,     /* requests a second */
    HISTORY_SERIES_COUNT
};

enum history_range { HISTORY_5M, HISTORY_1H, HISTORY_24H, HISTORY_7D, HISTORY_30D, HISTORY_RANGE_COUNT };
/* "5m", "1h", "24h", "7d", "30d"; HISTORY_RANGE_COUNT: none is called so. */
enum history_range history_range_of(const char *name, size_t len);
const char *history_range_name(enum history_range range);

#define HISTORY_POINTS_MAX 360

struct history;

size_t history_bytes(void);
/* In `memory` of history_bytes(), aligned as a struct. (libedit, which chat uses, has a history_init.) */
struct history *history_make(void *memory);

/* One sample of all series; NAN: none of that series. HISTORY_STEADY begins a minute after the first. */
void history_add(struct history *h, uint64_t now_ns, const float given[HISTORY_SERIES_COUNT]);

struct history_point {
    float mean, min, max; /* NAN: empty */
};
struct history_window {
    uint32_t count;            /* points, oldest first */
    uint64_t step_ns, from_ns; /* spacing of points; time of the first, which wraps before 0 */
};
struct history_window history_window_of(enum history_range range, uint64_t now_ns);
/* Fills window.count points. */
void history_read(const struct history *h, enum history_series series, enum history_range range,
                  uint64_t now_ns, struct history_point ret[HISTORY_POINTS_MAX]);

enum history_verdict { HISTORY_UNKNOWN, HISTORY_FLAT, HISTORY_RISING, HISTORY_FALLING };
const char *history_verdict_name(enum history_verdict v);
struct history_trend {
    enum history_verdict verdict; /* unknown: less than half of the range has samples */
    double bytes_per_hour;
};
/* Fits a line through the least values of HISTORY_STEADY in twelve parts of the range. It rises or falls when
 * it does so by more than 4 MiB and by more than three times the scatter about it. */
struct history_trend history_trend(const struct history *h, enum history_range range, uint64_t now_ns);

#endif
