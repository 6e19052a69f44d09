/* report_attention.h - what an operator should look at: the conditions of the alerts of docs/operations.md,
 * each with what to do.
 *
 * A condition is on the list once it has held for its time. Rates are over five minutes. Pure: times are
 * given. One thread at a time. */
#ifndef PLATEAU_API_REPORT_ATTENTION_H
#define PLATEAU_API_REPORT_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

/* Counters whose rise matters. */
enum attention_counter {
    ATTENTION_LOADS_REFUSED,
    ATTENTION_STEP_ERRORS,
    ATTENTION_REFUSED_429,
    ATTENTION_REFUSED_401,
    ATTENTION_SSD_ERRORS,
    ATTENTION_COUNTERS
};

struct attention_facts {
    bool stuck, ssd_off;
    int64_t unaccounted_bytes;
    uint64_t untouched_bytes; /* see struct unaccounted */
    uint32_t orphans, stage, prep_waiting, media_waiting, waiting;
    uint64_t pending_trim_bytes;
    double first_token_s;     /* 95 of 100 within; NAN: none came */
    const char *lacks_memory; /* a model whose last load found no memory; NULL: none */
    uint64_t counters[ATTENTION_COUNTERS];
};

#define ATTENTION_ROWS    15
#define ATTENTION_MARKS   31 /* one each 10 s */
#define ATTENTION_MARK_NS 10000000000ull

/* Zeroed is fine. */
struct attention {
    uint64_t since_ns[ATTENTION_ROWS]; /* 0: the condition does not hold */
    bool listed[ATTENTION_ROWS];
    const char *lacks_memory; /* attention_facts.lacks_memory of the last check */
    /* Counters at multiples of ATTENTION_MARK_NS. */
    struct {
        uint64_t at_ns, counters[ATTENTION_COUNTERS];
    } marks[ATTENTION_MARKS];
    uint64_t mark_count;
};

void attention_update(struct attention *a, uint64_t now_ns, const struct attention_facts *facts);

struct attention_item {
    const char *id, *level; /* "warn" or "bad" */
    const char *what, *remedy;
    const char *model; /* that it is about; NULL: about none in particular */
    uint64_t since_ns;
};
/* The row, or false: its condition does not hold, or not for long enough. row < ATTENTION_ROWS. */
bool attention_at(const struct attention *a, uint32_t row, struct attention_item *ret);

#endif
