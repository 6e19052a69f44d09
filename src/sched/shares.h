/* shares.h - tenants: whose sequence gets the next place, and whose prompt the next tokens.
 *
 * A tenant is a client, by API key or address: a number of the caller's, with a weight. An entry is its
 * share. Tenants with sequences that can run share places and computed tokens by weight. `served` is the
 * fair queue's clock: tokens computed for the tenant, divided by its weight. The tenant with the lowest
 * clock goes first (deficit round robin with a turn of one token). A tenant that comes back after a rest
 * starts level with the others, so a rest earns nothing. A tenant that was served far more than the others
 * waits for SHARE_DEBT_TOKENS at most.
 *
 * The table has SHARES_MAX entries. An entry outlives its sequences until another tenant needs it, so a debt
 * is not lost by a short rest. When every entry has sequences, further tenants share an entry. Engine thread
 * only.
 *
 * Bound in bytes: shares_arena_bytes(), 88 for each of SHARES_MAX entries: 22 KiB. */
#ifndef PLATEAU_SCHED_SHARES_H
#define PLATEAU_SCHED_SHARES_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define SHARES_MAX         256
#define SHARE_WEIGHT_MAX   1000
#define SHARE_UNIT         65536 /* unit of `served`: one token at weight 1 */
#define SHARE_TURN_TOKENS  64    /* lead in served tokens at which a tenant yields a place */
#define SHARE_DEBT_TOKENS  8192
#define SHARE_PROMPT_TURNS 4 /* turns: prompts of tenants this close in `served` go by length */

struct share {
    uint64_t id;
    uint32_t weight;  /* 1 to SHARE_WEIGHT_MAX; that of the sequence that came last */
    uint32_t seqs;    /* in the scheduler; 0: the entry may be taken */
    uint32_t running; /* sequences with a place */
    uint32_t owed_us; /* time of its grammars that is not paid yet: matching.h */
    uint64_t served;
    uint64_t active;    /* number of the last plan in which a sequence of it could run; 0: none yet */
    bool rested;        /* no sequence of it could run in the plan before that */
    bool works, reads;  /* sched_load(): it has a sequence that waits for a step, one of a prompt */
    uint64_t examined;  /* number of the last plan that admits no more sequences of it */
    uint64_t looked_at; /* number of the last plan that has searched the tier for it, */
    uint32_t looks;     /* and how often */
    struct list link;   /* in shares.present, while it has sequences */
};

struct shares {
    struct share *table;   /* [SHARES_MAX] */
    struct list present;   /* tenants with sequences */
    uint64_t served_least; /* least `served` of tenants that can run; never falls */
};

size_t shares_arena_bytes(void);
/* 0 or -ENOMEM. */
int shares_create(struct arena *a, struct shares *ret);

/* Returns the tenant's entry, for one more sequence. Never fails. weight 0 counts as 1. */
struct share *shares_take(struct shares *t, uint64_t id, uint32_t weight);
/* One of its sequences is gone. */
void shares_give(struct share *x);

/* A sequence of it can run in this plan. Called for each such sequence, before shares_level(). */
void share_note_active(struct share *x, uint64_t plan_number);
/* Called once per plan, before the questions below: levels tenants that come back and cuts debts. */
void shares_level(struct shares *t, uint64_t plan_number);

/* `tokens` were computed for the tenant. */
void share_charge(struct share *x, uint32_t tokens);

/* True: a's turn is before b's, since it has fewer places for its weight, or equally many and was served
 * less. */
bool share_goes_before(const struct share *a, const struct share *b);
/* True: `to` may take a place from `from`. Either `to` has no place and `from` has several. Or places are
 * shared more evenly then. Or `from` has been served a turn more than `to` and does not end with fewer
 * places than `to` has now. */
bool share_yields(const struct share *from, const struct share *to);
/* Compares two tenants' prompts: below 0 when a's come first, 0 when their lengths decide. */
int share_compare_prompts(const struct share *a, const struct share *b);

/* Asserts that exactly the tenants with sequences are present, and that no tenant has more places than
 * sequences. */
void shares_check(const struct shares *t);

#endif
