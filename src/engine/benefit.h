/* benefit.h - how many tokens each row guesses ahead, so that a step gives the most tokens per second.
 *
 * What a guess gains is the chance that it and all before it are right: faded counts, each row's own beside
 * everybody's. What it costs is measured: how long steps lasted by rows and guesses, and what drafting took.
 * A row's depth goes as far as the whole batch gains by it, and is 0 where guessing is a loss. What has not
 * been tried for long is tried again from a small allowance: a share of the time, never more than
 * BENEFIT_PROBE_SHARE of it. Numbers in, numbers out: no clock. One thread at a time. */
#ifndef PLATEAU_ENGINE_BENEFIT_H
#define PLATEAU_ENGINE_BENEFIT_H

#include <stdbool.h>
#include <stdint.h>

#define BENEFIT_DEPTH_MAX    8
#define BENEFIT_GUESSES_MAX  64 /* of one step */
#define BENEFIT_PROBE_SHARE  0.005
#define BENEFIT_ROW_CLASSES  26
#define BENEFIT_COST_CLASSES 15

/* How guesses fared, by place behind the known token; those at a place are tried when all before them were
 * right. */
struct benefit_hits {
    float tried[BENEFIT_DEPTH_MAX], right[BENEFIT_DEPTH_MAX];
};

struct benefit_cost {
    double ns;
    uint32_t samples;
    uint64_t step; /* number of the step that was measured last */
};

struct benefit {
    struct benefit_cost costs[BENEFIT_ROW_CLASSES][BENEFIT_COST_CLASSES];
    struct benefit_cost passes[BENEFIT_ROW_CLASSES]; /* of the head, by rows that guess */
    struct benefit_hits all[2];                      /* by benefit_row.past */
    double allowance_ns;
    uint64_t steps, probed_step;
};

struct benefit_row {
    const struct benefit_hits *hits;
    uint32_t drafts_max; /* <= BENEFIT_DEPTH_MAX; 0: it does not guess */
    bool past;           /* the head makes the first guess only; those behind it are there already */
    uint32_t drafts;     /* the answer */
    double reached;      /* while it is sought: the chance that all of them are right */
};

/* Fills in `drafts` of all rows that decode in this step, at most guesses_max (<= BENEFIT_GUESSES_MAX)
 * together. */
void benefit_choose(struct benefit *b, struct benefit_row *rows, uint32_t count, uint32_t guesses_max);
/* A step of nothing but so many decoding rows and guesses took so long, drafting apart. */
void benefit_measure_step(struct benefit *b, uint32_t rows, uint32_t guesses, uint64_t ns);
/* The head went through so many rows, `depth` times. */
void benefit_measure_draft(struct benefit *b, uint32_t rows, uint32_t depth, uint64_t ns);
/* Of a row's guesses the first `tried` mattered, and the first `right` of them were right: tried - right is 0
 * or 1. 0 tried: it made none. `past`: as in benefit_row. */
void benefit_count(struct benefit *b, struct benefit_hits *h, bool past, uint32_t tried, uint32_t right);

#endif
