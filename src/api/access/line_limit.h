/* line_limit.h - how many log lines the refusals of one client may cause.
 *
 * In each period a client may have LINE_LIMIT_OWN lines, all clients together LINE_LIMIT_ALL. Further lines
 * are counted, and the end of the period tells how many. The table holds LINE_LIMIT_CLIENTS clients; lines of
 * further clients count together. Pure: the caller says when a period ends. One thread at a time. */
#ifndef PLATEAU_API_LINE_LIMIT_H
#define PLATEAU_API_LINE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define LINE_LIMIT_OWN        10
#define LINE_LIMIT_ALL        100
#define LINE_LIMIT_CLIENTS    64
#define LINE_LIMIT_NAME_BYTES 72

struct line_limit_client {
    uint64_t client;
    uint32_t told, untold;
    char name[LINE_LIMIT_NAME_BYTES]; /* name in the first line */
};

/* Zeroed is fine. */
struct line_limit {
    uint32_t told, untold; /* lines of all clients; untold: those of clients without a place in the table */
    uint32_t count;
    struct line_limit_client clients[LINE_LIMIT_CLIENTS];
};

/* True: the line is to be written. `name` is for line_limit_end(). */
bool line_limit_take(struct line_limit *l, uint64_t client, const char *name);

/* How many lines of the client were left out since the period began. `others`: the client has no place in the
 * table, and the count is that of all such clients. */
uint32_t line_limit_untold(const struct line_limit *l, uint64_t client, bool *others);

/* Gets the lines that were left out: of a client, or of all without a place (`name` NULL). */
typedef void line_limit_fn(void *arg, const char *name, uint32_t untold);
/* A new period begins. */
void line_limit_end(struct line_limit *l, line_limit_fn *tell, void *arg);

#endif
