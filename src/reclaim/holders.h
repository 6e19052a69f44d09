/* holders.h - the holders of memory that can be reclaimed: the pools of every engine, loaded or closing, and
 * orphans.
 *
 *     live ──▶ closing ──▶ removed
 *                 └──▶ orphan ──▶ removed
 *
 * A holder is listed from before its first byte until it has none. Its owner (an engine's thread) publishes
 * its figures after each step. It is asked by messages, and answers after the step under way. Only the owner
 * touches its memory. If a step of its teardown fails, the list owns the remaining ranges: they become an
 * orphan, charged to an account `orphans`. An orphan is shown, and every clear tries it again, until the
 * system takes it.
 *
 * A holder's memory is of one domain. The list keeps one budget for each domain, for the caches of all its
 * holders (memory/cache_share). What one domain lacks, holders of another cannot give.
 *
 * Any thread, one lock. An owner's functions (holder_ops) are called under it: they must neither wait nor
 * call back. An answer takes no lock of the list's owner. Bound: 64 holders; an ask is 256 bytes of the heap
 * until it is answered. */
#ifndef PLATEAU_RECLAIM_HOLDERS_H
#define PLATEAU_RECLAIM_HOLDERS_H

#include "base/list.h"

#include <pthread.h>
#include <stdint.h>

struct domain;
struct holders;
struct holder;
struct units;

#define HOLDERS_MAX      64
#define HOLDER_NAME_MAX  64
#define HOLDER_UNITS_MAX 8 /* ranges of one holder */

struct holders_opts {
    struct ledger *ledger;    /* an account `orphans` opens below the root of each domain */
    uint64_t cache_bytes_max; /* limit of all caches in the machine's memory together */
};

/* 0 or -ENOMEM. */
int holders_create(const struct holders_opts *opts, struct holders **ret);
/* Before the first holder of another domain. The domain has a root account; all its caches together get this
 * budget. */
void holders_add_domain(struct holders *hs, const struct domain *domain, uint64_t cache_bytes_max);
/* All holders must be removed, except orphans. Orphans are tried once more; ranges that the system still
 * refuses end with the process. NULL is fine. */
void holders_free(struct holders *hs);

/* ---- asking ---- */

enum holder_ask_kind {
    HOLDER_TRIM, /* return free memory to the system */
    HOLDER_GIVE, /* free `bytes`: free memory first, then cached entries last used before before_ns */
    HOLDER_CLEAR /* drop everything cached, and return free memory to the system */
};

struct holder_answer {
    uint32_t entries; /* that were dropped */
    uint64_t bytes;   /* by how much the holder's bytes have fallen since the ask */
};

/* One question to one holder. Both sides own it until each has finished with it. */
struct holder_ask {
    /* Constant. */
    enum holder_ask_kind kind;
    uint64_t bytes;     /* HOLDER_GIVE */
    uint64_t before_ns; /* HOLDER_GIVE: only entries last used before then are dropped; 0: none are */
    uint64_t whom;      /* hash_bytes() of the name of the model that needs the bytes; 0: no model does */
    /* Owned by the holder's owner. */
    struct list link;
    uint64_t held_before;
    struct holder_answer answer;
    /* Shared. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
    uint32_t refs;
};

/* To ask an owner without the list. NULL: no memory. */
struct holder_ask *holder_ask_create(enum holder_ask_kind kind, uint64_t bytes, uint64_t before_ns);
/* Called by the owner, once for each ask that it took; it releases the ask. `answer` is filled. */
void holder_ask_done(struct holder_ask *a);
/* No owner took it: frees it. */
void holder_ask_drop(struct holder_ask *a);
/* Called by the asking thread: waits for the answer and releases the ask. -ETIMEDOUT: no answer before
 * deadline_ns of the clock (UINT64_MAX: waits without limit). */
int holder_ask_wait(struct holder_ask *a, uint64_t deadline_ns, struct holder_answer *ret);

/* ---- for owners ---- */

struct holder_ops {
    /* 0: takes the ask and will answer it. -EAGAIN, -EPIPE: does not take it. */
    int (*ask)(void *arg, struct holder_ask *ask);
    /* The owner should call holder_publish(): its answer has changed. */
    void (*poke)(void *arg);
};

/* The holder is listed from here on; no byte of it exists yet. 0, -ENOSPC (HOLDERS_MAX), -ENOMEM. */
int holder_add(struct holders *hs, const struct domain *domain, const char *name, struct holder **ret);
/* The holder can be asked from here on. */
void holder_open(struct holder *h, const struct holder_ops *ops, void *arg);
/* The holder is not asked after this: no call of `ops` is running or follows. NULL is fine. */
void holder_close(struct holder *h);
/* After holder_close(): `left` has the ranges that could not be freed. Without any, the holder is removed.
 * Otherwise it is an orphan, and the list owns the ranges. NULL is fine with count 0. */
void holder_remove(struct holder *h, struct units *const *left, uint32_t count);

struct holder_numbers {
    uint64_t held_bytes;   /* committed */
    uint64_t free_bytes;   /* committed bytes that are unused */
    uint64_t cached_bytes; /* committed bytes in prefixes that no sequence uses */
    /* By how much the domain's root would shrink without both: floors of accounts stay reserved. */
    uint64_t reach_bytes;
    uint64_t wanted_bytes;    /* cached_bytes after all users of prefixes have ended */
    uint32_t entries;         /* pages and snapshots of prefixes */
    uint64_t oldest_ns;       /* last use of the entry that is evicted next; 0: no entry */
    uint64_t cost_ns_per_mib; /* cost of computing cached entries again; 0: unknown */
};
struct holder_share {
    uint64_t allowed_bytes; /* the most that it may cache */
    uint64_t asked_bytes;   /* it should evict this many cached bytes, and publish again */
};
/* Publishes the owner's figures, after each step. Returns its share of the budget. */
struct holder_share holder_publish(struct holder *h, const struct holder_numbers *n, uint64_t now_ns);
/* Announces that it will cache `wanted_bytes`; returns how many it may. */
uint64_t holder_allow(struct holder *h, uint64_t wanted_bytes, uint64_t now_ns);
/* Its domain refused it `bytes`. True: other holders are being asked; it is poked after their answers.
 * False: no help will come: the last try found nothing, or takes too long, or nothing listens. */
bool holder_want(struct holder *h, uint64_t bytes, uint64_t now_ns);

/* ---- for walks ---- */

enum holder_state { HOLDER_LIVE, HOLDER_CLOSING, HOLDER_ORPHAN };
const char *holder_state_name(enum holder_state s);

struct holder_info {
    uint64_t id; /* never used again */
    char name[HOLDER_NAME_MAX];
    const struct domain *domain;
    enum holder_state state;
    struct holder_numbers now;
    uint64_t allowed_bytes;
};
/* Up to `max`; returns how many holders exist. */
uint32_t holders_list(struct holders *hs, struct holder_info *ret, uint32_t max);

struct holders_numbers {
    uint32_t count, orphans;
    uint64_t orphan_bytes;
    uint64_t cached_bytes, allowed_bytes, cache_bytes_max; /* allowed <= max */
};
/* Sums the figures of the holders in `domain`; NULL: of all. */
void holders_numbers(struct holders *hs, const struct domain *domain, struct holders_numbers *ret);

/* Asserts every invariant of the list and of its holders, and names the holder that is wrong. */
void holders_check(struct holders *hs);

/* The holder of the domain with the stalest entry, except those in `except`. Its entries last used before
 * *before_ns are staler than those of all others. False: nothing is cached. */
bool holders_stalest(struct holders *hs, const struct domain *domain, const uint64_t *except,
                     uint32_t except_count, uint64_t now_ns, uint64_t *id, uint64_t *before_ns);

/* Asks one holder, for the model `name` that needs the bytes (NULL: none does). 0: holder_ask_wait() has its
 * answer (an orphan's at once). -ENOENT: the holder is gone. -EPIPE: it is closing. -EAGAIN, -ENOMEM; or the
 * error of the system for an orphan's ranges. */
int holders_ask(struct holders *hs, uint64_t id, enum holder_ask_kind kind, uint64_t bytes,
                uint64_t before_ns, const char *name, struct holder_ask **ret);

struct holders_reclaimed {
    uint32_t entries;
    uint64_t bytes;
    uint32_t failed; /* holders that have not done it */
    struct {
        char name[HOLDER_NAME_MAX];
        int error; /* -ETIMEDOUT: the holder may do it later */
    } failures[HOLDERS_MAX];
};
/* Asks all holders of `domain` (NULL: of every domain), orphans too, and waits for each until `timeout_ns`
 * from now. A failure of one does not stop the walk. Not an owner's thread. */
void holders_reclaim(struct holders *hs, const struct domain *domain, enum holder_ask_kind kind,
                     uint64_t timeout_ns, struct holders_reclaimed *ret);

/* Sets the listener that serves holder_want(): `wanted` is called under the lock at each want. NULL: no
 * listener. */
void holders_listen(struct holders *hs, void (*wanted)(void *arg), void *arg);
struct holder_want {
    uint64_t id, bytes;
    const struct domain *domain;
    char name[HOLDER_NAME_MAX];
};
/* A holder with an open want. False: none. */
bool holders_next_want(struct holders *hs, struct holder_want *ret);
/* The want is served, as far as memory could be reclaimed. */
void holders_helped(struct holders *hs, uint64_t id, uint64_t bytes);

#endif
