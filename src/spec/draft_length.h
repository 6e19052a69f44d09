/* draft_length.h - chooses the draft length of each sequence for the most tokens per second.
 *
 * The gain of a draft token is the chance that it and all before it are accepted, from faded counts of the
 * sequence and of all sequences. Its cost is measured: the time of steps by sequences and draft tokens,
 * and the time of drafting. A draft grows as long as the whole batch gains, and is empty where drafting is
 * a loss. Lengths without recent measurements are tried again from a small allowance, never more than
 * DRAFT_LENGTH_PROBE_SHARE of the time. Numbers in, numbers out: no clock. One thread at a time. */
#ifndef PLATEAU_SPEC_DRAFT_LENGTH_H
#define PLATEAU_SPEC_DRAFT_LENGTH_H

#include <stdbool.h>
#include <stdint.h>

#define DRAFT_LENGTH_DEPTH_MAX    8
#define DRAFT_LENGTH_DRAFTS_MAX   64 /* draft tokens of one step */
#define DRAFT_LENGTH_PROBE_SHARE  0.005
#define DRAFT_LENGTH_SEQ_CLASSES  26
#define DRAFT_LENGTH_COST_CLASSES 15

/* Where a sequence's draft tokens come from. */
enum draft_source {
    DRAFT_DRAFTER, /* the drafter: each token by a pass of the head, where there is one */
    DRAFT_PAST,    /* the first by the head; n-gram has drafted the following ones already */
    DRAFT_FORCED,  /* the caller has drafted all of them already */
    DRAFT_SOURCES
};

/* Acceptance by position in the draft; a position counts as tried when all before it were accepted. */
struct draft_length_hits {
    float tried[DRAFT_LENGTH_DEPTH_MAX], accepted[DRAFT_LENGTH_DEPTH_MAX];
};

struct draft_length_cost {
    double ns;
    uint32_t samples;
    uint64_t step; /* number of the step that was measured last */
};

struct draft_length {
    struct draft_length_cost costs[DRAFT_LENGTH_SEQ_CLASSES][DRAFT_LENGTH_COST_CLASSES];
    struct draft_length_cost passes[DRAFT_LENGTH_SEQ_CLASSES]; /* costs of the head's passes, by drafting
                                                                * sequences */
    struct draft_length_hits all[DRAFT_SOURCES];               /* by draft_length_seq.source */
    double allowance_ns, caught_up_ns; /* caught_up_ns: reading that steps have not paid yet */
    uint64_t steps, probed_step;
    bool passed; /* a pass was measured */
};

struct draft_length_seq {
    const struct draft_length_hits *hits;
    uint32_t drafts_max; /* <= DRAFT_LENGTH_DEPTH_MAX; 0: no drafts */
    enum draft_source source;
    uint32_t drafts; /* the answer */
    double reached;  /* while it is sought: the chance that all of them are accepted */
};

/* Fills in `drafts` of all sequences that decode in this step, at most drafts_max (<=
 * DRAFT_LENGTH_DRAFTS_MAX) together. */
void draft_length_choose(struct draft_length *b, struct draft_length_seq *seqs, uint32_t count,
                         uint32_t drafts_max);
/* Time of a step with only this many decoding sequences and draft tokens, without the time of drafting. */
void draft_length_measure_step(struct draft_length *b, uint32_t seqs, uint32_t drafts, uint64_t ns);
/* Time of `depth` passes of the head with this many sequences. */
void draft_length_measure_draft(struct draft_length *b, uint32_t seqs, uint32_t depth, uint64_t ns);
/* Whether a draft model is to read known tokens for the drafts of the last choice. It reads as a trial where
 * that choice tries a length again, or where no pass was measured yet and the allowance lasts. */
enum draft_length_reading { DRAFT_LENGTH_READ_NOTHING, DRAFT_LENGTH_READ_TRIAL, DRAFT_LENGTH_READ };
enum draft_length_reading draft_length_reads(const struct draft_length *b);
/* Time in which a draft model read known tokens before it could draft. It is part of the cost of later
 * drafts; for a trial it is paid from the allowance. */
void draft_length_caught_up(struct draft_length *b, bool trial, uint64_t ns);
/* Counts one draft: the first `tried` tokens mattered, of which the first `accepted` were accepted: tried
 * - accepted is 0 or 1. 0 tried: no draft. `source`: as in draft_length_seq. */
void draft_length_count(struct draft_length *b, struct draft_length_hits *h, enum draft_source source,
                        uint32_t tried, uint32_t accepted);

#endif
