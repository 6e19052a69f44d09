/* guard.h - makes room across models, and gives memory up under pressure from the system.
 *
 * One per process. It knows the holders of memory that can be taken back (memory/holders: every engine's
 * pools, loaded or orphaned) and, through struct guard_models, the registry of models. It takes in this
 * order, until the refused bytes fit:
 *
 *   1. free units of all pools
 *   2. prefixes that no request uses, of all pools: the least costly to lose, by bytes and idle time
 *   3. idle models that are neither pinned nor leased: the set with the cheapest reload that suffices
 *
 * All of that is of the domain of memory whose ceiling refused: what holds memory of another does not help.
 * Only then it refuses, with the numbers. If all of it together would not suffice, it refuses before dropping
 * anything. Running requests keep their pages, and their model is never a victim.
 *
 * Two ways in. guard_reclaim() may wait: it is for the thread of a load. An engine never waits: it states
 * its need (holder_want) and continues, and the guard's own thread asks the others. That thread also checks
 * the system once a second and moves in stages (memory/pressure), which concern the machine's memory: it
 * shrinks caches, trims, unloads idle models, and last has new work refused. */
#ifndef PLATEAU_RECLAIM_GUARD_H
#define PLATEAU_RECLAIM_GUARD_H

#include "reclaim/pressure.h"

#include "base/err.h"
#include "memory/ledger.h"

#include <stdbool.h>
#include <stdint.h>

struct guard;
struct holders;

/* The registry's part in reclaiming. Called from the thread that makes room, or the guard's own, never an
 * engine's; the registry holds no lock then that these take. */
struct guard_models {
    /* Returns the domain's bytes that unloading every idle model that is neither pinned nor leased would give
     * back. */
    uint64_t (*idle_bytes)(void *arg, const struct domain *domain);
    /* Unloads such models, the cheapest to load again that suffice, until the domain has room for `bytes`
     * more by its accounts and by the driver's figures, and waits for it. None goes when all of them together
     * would not do. Returns by how much the reserved bytes of the domain's root fell. */
    /* `name`: the model that the memory is for; NULL: the machine runs short. */
    uint64_t (*free_idle)(void *arg, const struct domain *domain, uint64_t bytes, const char *name);
    void *arg;
};

struct guard_opts {
    struct ledger *ledger;
    struct holders *holders; /* borrowed; outlives the guard */
    struct account *threads; /* pays for the stack of the guard's thread */
    bool watches_system;     /* false: pressure from outside is not looked at */
    /* For tests: figures instead of the system's, and how often; NULL and 0: footprint_read(), once a
     * second. */
    void (*read)(void *arg, struct footprint *ret);
    void *read_arg;
    uint64_t look_ns;
};

/* Returns the bytes that guard_create() charges to `threads`. */
uint64_t guard_stack_bytes(void);
/* 0, -ENOMEM, or why the thread did not start. */
int guard_create(const struct guard_opts *opts, struct guard **ret);
/* Ends its thread and makes no more room. Before the holders go. NULL is fine. */
void guard_free(struct guard *g);
/* Until then, and after NULL, no model is unloaded. With NULL it returns when no call is under way: before
 * the registry goes. */
void guard_set_models(struct guard *g, const struct guard_models *models);

/* Why there is no room. All but `text` are numbers at the time of the refusal. */
struct guard_refusal {
    char binding[ACCOUNT_NAME_MAX]; /* the account whose limit has no room */
    const struct domain *domain;    /* its memory */
    uint64_t projected_bytes;       /* bytes that it would hold */
    uint64_t ceiling_bytes;         /* its limit */
    uint64_t current_bytes;         /* bytes that it holds */
    uint64_t wanted_bytes;          /* guard_wish.bytes */
    uint64_t free_bytes, cached_bytes,
        idle_bytes; /* bytes that could be given back: free units, prefixes, idle models */
    char text[500]; /* the sentence for a 507 */
};

struct guard_wish {
    const char *name;        /* the model's id, for the refusal */
    uint64_t bytes;          /* that were refused, together */
    struct account *account; /* that refused them: it, or one on its way up */
    /* Retries the refused reservation: 0, or -ENOMEM. Called whenever there is more room than before, so
     * it should take all of it at once, for example by account_set_floor(). NULL: room in the account and
     * its parents is enough. */
    int (*take)(void *arg);
    /* Bytes that the domain's memory lacks by the driver's figures though the account has room: other
     * programs have them. take() fails while there are some. NULL: none. */
    uint64_t (*lacks)(void *arg);
    /* True once the request for room is withdrawn: the guard stops taking. May be NULL. */
    bool (*cancelled)(void *arg);
    /* There is no room now. Waits a little and returns true to look once more, or returns false: refused.
     * Called without locks. May be NULL: refused at once. */
    bool (*waits)(void *arg, const struct guard_refusal *why);
    void *arg; /* argument of all functions */
};

/* Makes room, in the order above. Waits for engines, a step of each at most, and for unloads. One call at
 * a time; others queue. 0: take() succeeded. -ENOMEM: there is none, `ret` says why; -ECANCELED. Any
 * thread but an engine's. */
int guard_reclaim(struct guard *g, const struct guard_wish *w, struct guard_refusal *ret);

/* Counts and the present state, for reports. */
struct guard_numbers {
    enum pressure_stage stage;
    enum pressure_level level;
    const char *why; /* which figure says so */
    double stalled_some, stalled_full;
    uint64_t stage_changes, rooms_made, rooms_refused, helps;
    uint64_t free_bytes, cached_bytes, idle_bytes; /* taken back: of free units, prefixes, idle models */
};
/* Any thread. */
void guard_numbers(struct guard *g, struct guard_numbers *ret);

/* True while idle models are being unloaded under memory pressure, so no model is loaded; `why` is the
 * sentence for a 507. Any thread. */
bool guard_refuses_loads(struct guard *g, const char *name, struct err *why);
/* True: the machine is so short of memory that new work is refused for now, with a sentence for a 503. Any
 * thread. */
bool guard_refuses_work(struct guard *g, struct err *why, uint32_t *retry_after_s);

#endif
