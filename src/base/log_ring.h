/* log_ring.h - the last log lines, for reports: slots of fixed size in static memory, without a lock.
 *
 * Off until log_ring_start(): only a server has readers. Any thread writes; a writer that meets another one
 * in its slot, after the ring has gone round once, leaves its line out. A reader copies a line and takes it
 * only if no writer came meanwhile. Lines are numbered from 1. */
#ifndef PLATEAU_BASE_LOG_RING_H
#define PLATEAU_BASE_LOG_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_RING_LINES      480
#define LOG_RING_LINE_BYTES 496 /* longer lines are cut */
#define LOG_RING_BYTES      ((size_t)LOG_RING_LINES * 512)

/* Makes its pages resident and keeps lines from here on. The caller pays for LOG_RING_BYTES. */
void log_ring_start(void);
void log_ring_stop(void);

/* Keeps a line of log.c, without its line feed, valid UTF-8. */
void log_ring_put(int level, const char *line, size_t len);

struct log_ring_line {
    uint64_t number;
    int level;
    size_t len;
    char text[LOG_RING_LINE_BYTES];
};
/* The first line after number `after` that is still there. False: there is none. */
bool log_ring_next(uint64_t after, struct log_ring_line *ret);
/* The number of the last line; 0: none yet. */
uint64_t log_ring_last(void);

#endif
