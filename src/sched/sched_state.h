/* sched_state.h - the scheduler's state. Only files of the scheduler include it. */
#ifndef PLATEAU_SCHED_SCHED_STATE_H
#define PLATEAU_SCHED_SCHED_STATE_H

#include "sched/sched.h"
#include "sched/shares.h"

#include "base/page_tokens.h"

#include <stdint.h>

#define SCHED_FETCHING_MAX 8 /* sequences that fetch from the SSD tier at once */

struct sched {
    /* Constant. */
    struct sched_opts opts;
    /* Engine thread only. */
    struct list running, queue, fetching, ended;
    uint32_t running_count, paused_count; /* paused: of those running */
    uint32_t waiting_count, waiting_paused, fetching_count,
        parked_count; /* the last three: of those waiting */
    struct shares shares;
    uint64_t fetches, fetches_failed;
    uint64_t order;
    uint64_t plan_number, preemptions;
    bool planned;    /* between plan and done */
    uint64_t now_ns; /* time of the last plan */
    bool holds;      /* the plan leaves out the sequences that it holds back */
    double prompt_token_ns;
    uint64_t refused_ns; /* when account or system last had no memory for a page */
    bool refused;        /* and whether that is less than REFUSED_NS ago */
    uint64_t helped;     /* number of the last plan that lacked memory which other holders were releasing */
    uint64_t taken_ns;   /* since when other programs have memory that sequences need; 0: they do not */
    uint64_t rest_ns;    /* nothing is planned before this time: the device had no memory for a step */
    /* The plan. */
    const struct sched_seq *oldest; /* with a place and not paused, when it began */
    struct sched_step_seq *seqs;    /* [seqs_max] */
    struct sched_seq **prompts;     /* [seqs_max] */
    uint32_t seq_count, tokens;
};

/* The bounds that sched.h and shares.h state. */
_Static_assert(sizeof(struct sched) + 256 + SHARES_MAX * sizeof(struct share) + 64 <= 24 << 10,
               "the scheduler");
_Static_assert(sizeof(struct sched_step_seq) + sizeof(struct sched_seq *) <= 40, "a row of a plan");
_Static_assert(sizeof(struct share) <= 88 && sizeof(struct sched_seq) <= 512, "a tenant's share, a row");

#define SCHED_SEQ(it) LIST_ENTRY(it, struct sched_seq, link)

static inline bool sched_has_place(const struct sched_seq *seq)
{
    return seq->phase == SCHED_PREFILLING || seq->phase == SCHED_DECODING;
}

/* Tokens that the next step has to compute at least: those of the span in which it begins. */
static inline uint32_t sched_least(const struct sched_seq *seq)
{
    for (uint32_t i = 0; i < seq->span_count && seq->spans[i].first <= seq->done; i++)
        if (seq->done < seq->spans[i].end)
            return seq->spans[i].end - seq->done;
    return 1;
}

/* For its next token and those of its span, or for all tokens of a prompt that is computed at once. */
static inline bool sched_has_page_for_next(const struct sched_seq *seq)
{
    uint32_t last = seq->at_once ? seq->tokens - 1 : seq->done + sched_least(seq) - 1;
    ASSERT(!seq->at_once || seq->span_count == 0);
    return last < seq->page_count * PAGE_TOKENS;
}

/* The sequence waits for a place, fetching or not. */
static inline bool sched_waits(const struct sched_seq *seq)
{
    return seq->phase == SCHED_QUEUED || seq->phase == SCHED_FETCHING || seq->phase == SCHED_PREEMPTED ||
           seq->phase == SCHED_PARKED;
}

static inline bool sched_goes_before(const struct sched_seq *a, const struct sched_seq *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->order < b->order;
}

/* Other programs have the memory that a sequence lacks, and not for so long that it ends. */
static inline bool sched_waits_for_memory(const struct sched *s)
{
    return s->taken_ns > 0 && s->now_ns - s->taken_ns < SCHED_TAKEN_NS;
}

/* Known tokens that can be computed now: the ones before `ready`. */
static inline uint32_t sched_can_go(const struct sched_seq *seq)
{
    uint32_t end = seq->ready ? MIN_OF(seq->ready, seq->tokens) : seq->tokens;
    return end > seq->done ? end - seq->done : 0;
}

/* Rank of a sequence that never had a place: a short request may overtake a longer one by 10 s at most. */
static inline int64_t sched_queue_rank(const struct sched_seq *seq)
{
    return seq->rank + (int64_t)(MIN_OF(seq->tokens_limit, SCHED_TOKENS_MAX) * SCHED_TOKEN_NS);
}

/* Order of the queue: sequences that have had a place come first. */
static inline bool sched_queued_before(const struct sched_seq *a, const struct sched_seq *b)
{
    if (a->returns != b->returns)
        return a->returns;
    if (!a->returns && sched_queue_rank(a) != sched_queue_rank(b))
        return sched_queue_rank(a) < sched_queue_rank(b);
    return sched_goes_before(a, b);
}

#endif
