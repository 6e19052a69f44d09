/* drafting.h - speculative decoding in a step: the draft length of each sequence, its drafter, and the
 * accepted tokens.
 *
 * The n-gram drafter runs before a step is planned, the MTP head or the draft model after it, when each
 * sequence's place and state are known. Where both draft, the first n-gram token is compared with the head's:
 * if they agree, the other n-gram tokens stay, else they are not computed. Draft tokens stand after a
 * sequence's known tokens until sampled tokens replace them. A step computes them all; its result is decided
 * token by token as in plain decoding.
 *
 *     begin, add each decoding sequence, choose --> plan --> draft --> step --> count each row, measure
 *
 * Head and draft model are a function of the caller. A sequence `lags` while the draft model has not read its
 * known tokens. Where drafts of it would pay, drafting marks it, and the caller lets the draft model read.
 * Bound: drafting_arena_bytes(). One thread at a time. */
#ifndef PLATEAU_SPEC_DRAFTING_H
#define PLATEAU_SPEC_DRAFTING_H

#include "base/arena.h"
#include "spec/draft_length.h"

struct ngram;

/* The drafter: none, n-gram matches in the sequence (spec/ngram.h), the MTP head, or a draft model. */
enum drafting_by { DRAFTING_NONE, DRAFTING_NGRAM, DRAFTING_MTP, DRAFTING_MODEL };

/* Drafts are passes of a network, after the plan. */
static inline bool drafting_has_passes(enum drafting_by by)
{
    return by == DRAFTING_MTP || by == DRAFTING_MODEL;
}

struct drafting_opts {
    enum drafting_by by;
    /* Draft tokens of a sequence in a step, <= the model's load-time bound; 0: no drafts. */
    uint32_t drafts_max;
    bool always;     /* always drafts the maximum, even at a loss: for measurements and tests */
    bool past;       /* with a head or a draft model: n-gram adds draft tokens after its own where both
                      * agree */
    bool eagle;      /* the head is an EAGLE-3 checkpoint's: for reports */
    bool optimistic; /* drafts of the head are accepted without verification: not exact. Not with `past` */
};

/* Part of the caller's sequence. */
struct drafting_seq {
    /* The caller's. */
    bool speculative;    /* drafts are allowed */
    uint32_t *tokens;    /* known tokens, with room for draft tokens after them */
    struct ngram *ngram; /* knows the same tokens; NULL: no n-gram drafter */
    /* So many draft tokens are in place already when the sequence is added: those that its grammar forces.
     * No drafter replaces them. */
    uint32_t forced;
    bool lags; /* the draft model has to read more known tokens than a first pass may */
    /* Written by drafting; others may read. */
    /* With `lags`: drafts would pay if the draft model had read the tokens; trial: that is measured again. */
    bool wanted, trial;
    /* Acceptance by source, and the source of the draft under way. */
    struct draft_length_hits hits[DRAFT_SOURCES];
    enum draft_source source;
    uint32_t past_first;                      /* its first token: the head has to draft it too */
    uint32_t drafted_tokens, accepted_tokens; /* draft tokens that were verified, and the accepted ones */
};

/* A sequence of the plan. */
struct drafting_row {
    struct drafting_seq *seq;
    uint32_t from;     /* index of its last known token */
    uint32_t drafts;   /* draft tokens that the plan has room for */
    uint32_t passes;   /* draft tokens that the MTP head or the draft model drafts */
    uint32_t computed; /* draft tokens that the step computes */
};

struct drafting_port {
    /* Drafts row->passes tokens of each row after its last known token with the head or the draft model; 0 or
     * a negative error. Called where drafting_has_passes(). */
    int (*head)(void *arg, const struct drafting_row *rows, uint32_t count);
    void *arg;
    /* Replaces the n-gram drafter; NULL but in tests. Drafts at most `wanted` tokens after the first `count`
     * tokens; returns the number of draft tokens. */
    uint32_t (*draft)(void *arg, const uint32_t *tokens, uint32_t count, uint32_t wanted, uint32_t *ret);
    void *draft_arg;
};

struct drafting_numbers {
    uint64_t drafts, draft_tokens, accepted_tokens, accepted_at[DRAFT_LENGTH_DEPTH_MAX];
};

struct drafting {
    /* Constant. */
    struct drafting_opts opts;
    struct drafting_port port;
    uint32_t seqs_max, drafts_max; /* limits of a step */
    struct draft_length draft_length;
    /* Before the plan: decoding sequences, and where the drafts of each are to be written. */
    struct draft_length_seq *seqs; /* [seqs_max] */
    struct drafting_seq **adding;  /* [seqs_max] */
    uint32_t **drafts;             /* [seqs_max] */
    uint32_t count;
    /* State of the plan. */
    struct drafting_row *rows;  /* [seqs_max] */
    uint32_t planned, computed; /* draft tokens of the step */
    struct drafting_numbers now;
};

/* Bytes of arena for this many sequences. */
size_t drafting_arena_bytes(uint32_t seqs_max);
/* drafts_max: of all sequences of a step together. 0 or -ENOMEM. */
int drafting_init(struct drafting *g, struct arena *a, const struct drafting_opts *opts,
                  const struct drafting_port *port, uint32_t seqs_max, uint32_t drafts_max);

/* Before a plan. */
void drafting_begin(struct drafting *g);
/* A sequence that decodes: it has `known` tokens, and room for that many draft tokens. drafting_choose()
 * writes its number of draft tokens to *drafts. */
void drafting_add(struct drafting *g, struct drafting_seq *seq, uint32_t known, uint32_t room,
                  uint32_t *drafts);
/* Returns the number of draft tokens of all sequences together. */
uint32_t drafting_choose(struct drafting *g);

/* After the plan: drafts of the first `count` rows are in place, and counted. The caller has filled in `seq`,
 * `from` and `drafts`. 0, or as port.head. */
int drafting_draft(struct drafting *g, uint32_t count);

/* Row `index` had `planned` draft tokens, of which the first `accepted` were accepted. `ended`: the last of
 * those ended the answer. `learns`: the row decodes, so its acceptance counts for later draft lengths. */
void drafting_count(struct drafting *g, uint32_t index, uint32_t planned, uint32_t accepted, bool ended,
                    bool learns);
/* The draft model has read tokens of sequences that lag, in this time; trial: for trials alone. */
void drafting_caught_up(struct drafting *g, bool trial, uint64_t ns);
/* Records the time of a step of `tokens` tokens without drafting; ignored for steps with prompts. */
void drafting_measure(struct drafting *g, uint32_t tokens, uint32_t decoding, uint64_t ns);

#endif
