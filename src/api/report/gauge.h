/* gauge.h - numbers that /metrics and /api/status show: one row for each.
 *
 * A row says where a number is in its struct, and the names that it has outside. Each source of numbers has
 * one table, beside the code that reads the source: report_*.c. docs/metrics.md lists all rows. */
#ifndef PLATEAU_API_GAUGE_H
#define PLATEAU_API_GAUGE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api;
struct json_out;

enum gauge_type { GAUGE_U32, GAUGE_U64, GAUGE_I64, GAUGE_DOUBLE, GAUGE_BOOL };

/* /metrics has seconds for all times, and ratios for percents. */
enum gauge_unit {
    GAUGE_AS_IS,
    GAUGE_SECONDS, /* nanoseconds, shown as seconds */
    GAUGE_MS,      /* nanoseconds; in /api/status milliseconds */
    GAUGE_PERCENT,
};

enum gauge_scope {
    GAUGE_ALL,     /* sums over all clients, only for those who may see them */
    GAUGE_ALL_OWN, /* also for a client, over its own requests */
    GAUGE_OWN,     /* only for a client */
};

struct gauge {
    size_t offset;
    enum gauge_type type;
    enum gauge_unit unit;
    /* A member of an object in /api/status; places count from 1. NULL: not there. */
    const char *object, *member;
    uint32_t place;
    /* A series of /metrics; NULL: not there. Rows of one series follow each other. */
    const char *series, *kind, *help;
    enum gauge_scope scope;
    const char *labels; /* beside the model's name: pool="kv" */
    /* The number is the first of so many, told apart by this label. Its values are names, without the items
     * that have none, or without a function the items' numbers. */
    uint32_t items;
    const char *item_label;
    const char *(*item_name)(uint32_t item);
    /* Writes the samples instead. `numbers`: the struct. */
    void (*write)(const struct gauge *g, const void *numbers, struct buf *ret);
};

#define GAUGE_OF(type_, field)                                                                               \
    .offset = offsetof(type_, field), .type = _Generic(((type_ *)NULL)->field, uint32_t                      \
                                                       : GAUGE_U32, uint64_t                                 \
                                                       : GAUGE_U64, int64_t                                  \
                                                       : GAUGE_I64, double                                   \
                                                       : GAUGE_DOUBLE, bool                                  \
                                                       : GAUGE_BOOL)
#define GAUGE_ITEMS(type_, field, type_of_item, count_, label_, name_)                                       \
    .offset = offsetof(type_, field), .type = type_of_item, .items = count_, .item_label = label_,           \
    .item_name = name_
#define MEMBER(object_, place_, member_) .object = object_, .place = place_, .member = member_
#define GAUGE(series_, help_)            .kind = "gauge", .series = series_, .help = help_
#define NOTE(help_)                      .help = help_ /* without a series */
#define COUNTER(series_, help_)          .kind = "counter", .series = series_, .help = help_

struct gauge_table {
    const char *title; /* in docs/metrics.md */
    const struct gauge *rows;
    uint32_t count;
    bool per_model;
    size_t bytes; /* size of the struct */
    /* Fills the struct; model: if per_model. tenant: of its requests only, NULL: of all. False: there is no
     * source, or it has nothing for a tenant. */
    bool (*read)(struct api *a, const uint64_t *tenant, uint32_t model, void *ret);
};

/* One struct of the table's kind; model NULL: the samples have no label for it. */
struct gauge_source {
    const char *model;
    const void *numbers;
};

/* The samples of all sources in Prometheus' text form; own: those of one client. */
void gauges_write_series(const struct gauge_table *t, const struct gauge_source *sources, uint32_t count,
                         bool own, struct buf *ret);
/* Puts all members of the object, in order of their places. */
void gauges_put_members(const struct gauge_table *t, const char *object, const void *numbers,
                        struct json_out *j);
/* As `gauges_put_members()`, but inside of that object, which is a member itself. */
void gauges_put_object(const struct gauge_table *t, const char *object, const void *numbers,
                       struct json_out *j);
void gauges_write_head(const char *series, const char *kind, const char *help, struct buf *ret);
/* A label's value with its quotes. */
void gauges_write_label(struct slice value, struct buf *ret);

#endif
