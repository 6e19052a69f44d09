/* wanted.h - whether long work is still needed: its client may have left, or its time may be up.
 *
 * The submitter of the work fills a struct wanted; the worker checks it at least every WANTED_BYTES of
 * text and returns its result. Any thread may set the flag. */
#ifndef PLATEAU_BASE_WANTED_H
#define PLATEAU_BASE_WANTED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WANTED_BYTES ((size_t)64 << 10) /* the most text between two looks; less than 3 ms of tokenizing */

struct wanted {
    const _Atomic bool *cancelled; /* NULL: it is never cancelled */
    uint64_t deadline_ns;          /* end by clock_now_ns(); 0: none */
    uint64_t cpu_deadline_ns;      /* end by the worker's clock_thread_ns(); 0: none */
};

/* 0: go on; -ECANCELED; -ETIME: a deadline is past. NULL: 0. */
int wanted_check(const struct wanted *w);

/* As `wanted_check()`, but in a loop that passes WANTED_BYTES of text between two looks. *next begins as
 * 0. */
static inline int wanted_pass(const struct wanted *w, size_t at, size_t *next)
{
    if (at < *next)
        return 0;
    *next = at + WANTED_BYTES;
    return wanted_check(w);
}

#endif
