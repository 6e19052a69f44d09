/* sim.h - shared by the files of the simulation.
 *
 * A world has its own sizes: batch, queue, groups with their pages and windows, states, limits. All of it is
 * sampled from one seed. */
#ifndef PLATEAU_TESTS_SIM_H
#define PLATEAU_TESTS_SIM_H

#include "../test_domain.h"

#include "base/check.h"
#include "cache/prefix_key.h"
#include "cache/tier_io.h"
#include "sched/sched.h"

#define WORLD_STEPS  2500
#define REQUESTS_MAX 64
#define TABLE_MAX    64
#define TOKENS_MAX   (TABLE_MAX * PAGE_TOKENS)
#define CUTS_MAX     4
#define FAMILIES     3 /* prompts of a family have a common prefix */
#define STREAM_MAX   8 /* sampled tokens that a client has not read */
#define DRAFTS_MAX   5 /* draft tokens of a sequence in a step */
#define TOO_SLOW_NS  2000000000ull
#define TENANTS      5

/* Ceilings of a run with two domains of memory. */
#define MACHINE_BYTES ((uint64_t)1 << 30)
#define DEVICE_BYTES  ((uint64_t)64 << 20)

enum outcome { DONE, CANCELLED, TIMEOUT, NO_MEMORY, STEP_ERROR, TOO_SLOW, REFUSED, OUTCOMES };

struct request {
    struct sched_seq seq;
    bool live;
    uint64_t id;
    uint32_t prompt, outputs, outputs_wanted;
    uint32_t unread;              /* sampled tokens that its client has not read */
    double reads;                 /* probability that it reads some, each step */
    uint64_t full_ns;             /* when its sequence was paused */
    bool sees;                    /* some of its tokens need more than pages (images) */
    bool was_paused, was_waiting; /* waiting: for the data of its next token */
    uint32_t tenant;
    uint32_t ahead;        /* requests of its tenant that may finish before it */
    uint64_t held_ns;      /* world.held_ns at its arrival */
    uint64_t family, text; /* source of its first `alike` tokens, and of the rest of its prompt */
    uint32_t alike;
    uint64_t token[TOKENS_MAX + 1]; /* counted from 1 */
    uint64_t state[TOKENS_MAX + 1]; /* after each token, computed without sharing */
    struct prefix_key keys[TABLE_MAX];
    uint32_t cuts[CUTS_MAX];
    uint32_t tables[PAGE_GROUPS_MAX][TABLE_MAX];
};

/* Argument of a pool's callbacks: the last one is the states'. */
struct pool_of {
    struct world *world;
    uint32_t group;
};

/* Content of a page or state: how many tokens of a text, and which. */
struct stamp {
    uint64_t state;
    uint32_t tokens;
};

#define TIER_STORED_MAX   1024
#define TIER_READINGS_MAX 24

struct stored {
    bool used;
    enum tier_kind kind;
    struct prefix_key key;
    struct stamp stamp;
};

struct reading {
    bool used, taken;
    enum tier_kind kind;
    uint64_t tag;
    uint32_t index;
    int status;
    uint64_t due_ns;
    struct stamp stamp;
};

/* A tier below the pools; io.arg NULL: none in this world. */
struct sim_tier {
    struct tier_io io;
    struct stored stored[TIER_STORED_MAX];
    struct reading readings[TIER_READINGS_MAX];
    uint32_t readings_max, cursor;
    uint64_t says_ns;         /* its estimate for a read */
    double fails, late, pace; /* pace: factor by which computing seems slower */
    bool off;
};

struct world {
    struct rng rng;
    struct sched_opts opts;
    size_t state_bytes;
    uint32_t tokens_limit;              /* most tokens of one request */
    uint32_t family_tokens[FAMILIES];   /* length of the common prefix of each family */
    uint32_t tenants, weights[TENANTS]; /* clients; the first one may flood */
    bool floods;
    bool calm; /* no more arrivals and no more faults */
    struct ledger *ledger;
    /* With two domains. The pools are in one; the other is full all the time. */
    struct test_domain device;
    struct account *device_root;
    struct account *own_root, *full; /* root of the pools; and the domain that is filled up beside it */
    struct account *all, *kv[PAGE_GROUPS_MAX], *state;
    struct arena *arena;
    struct pool_of pools[PAGE_GROUPS_MAX + 1];
    uint32_t uses; /* uses of all pools' pages */
    struct prefix_index *index;
    struct sched *sched;
    struct sim_tier tier;
    uint64_t now_ns, next_id;
    uint64_t held_ns; /* time paused or waiting, of all requests together */
    struct request requests[REQUESTS_MAX];
};

/* State of the whole run. */
struct sim {
    bool domains; /* two of them */
    uint64_t device_worlds;
    uint64_t steps, seed, world, step;
    uint64_t outcomes[OUTCOMES], preemptions, tokens, decode_tokens, cached_tokens;
    uint64_t moves, units_trimmed, left_behind, copied, evictions, reclaims;
    uint64_t drafts, drafts_accepted, boundaries_drafted; /* boundaries: pages whose last token was a draft
                                                           * token */
    uint64_t phases_cancelled[SCHED_ENDED + 1], paused_cancelled;
    uint64_t stored, reads, fetched_tokens, fetches_failed;
    uint64_t window_reads, fetched_windows; /* reads of windows' pages; fetched tokens of such models */
    uint64_t waits,
        ends_ready; /* sequences that waited for a token's data; chunks that ended at missing data */
    uint64_t parks, parked_cancelled;
    double wait_max_s, share_max; /* share: fraction of the bound */
};
extern struct sim sim;

uint32_t between(struct world *w, uint32_t low, uint32_t high);
bool chance(struct world *w, double p);
struct stamp page_stamp(const struct world *w, uint32_t group, uint32_t page);
struct stamp state_stamp(const struct world *w, uint32_t state);
struct stamp block_stamp(const struct world *w, enum tier_kind kind, uint32_t block);
void stamp_page(struct world *w, uint32_t group, uint32_t page, struct stamp stamp);
void stamp_state(struct world *w, uint32_t state, struct stamp stamp);

/* sim_world.c; `index` of the run: with two domains, the odd ones compute on the device */
void world_open(struct world *w, uint64_t seed, uint64_t index);
/* Asserts that everything taken is returned, to the byte. */
void world_close(struct world *w);
/* Asserts every invariant of every part. */
void world_check(struct world *w);
/* Refusing accounts, trims, moves, evictions, a cleared cache. */
void world_trouble(struct world *w);

/* sim_tier.c */
void tier_open(struct world *w);
void tier_close(struct world *w);
void tier_store(struct world *w, const struct prefix_key *key, enum tier_kind kind, struct stamp stamp);
/* Loses entries, and is off for a time. */
void tier_trouble(struct world *w);

/* sim_requests.c */
void arrive(struct world *w);
/* Clients read, pause, or leave. */
void clients_act(struct world *w);
void finish(struct world *w, struct request *q, enum outcome how);
/* The next token for a state, given the request. */
uint64_t output_of(const struct request *q, uint64_t state);
void draw(struct request *q, uint64_t state);
bool is_placed(const struct sched_seq *seq);

/* sim_step.c */
void step(struct world *w);

#endif
