/* holders.h - who holds memory that can be taken back: the pools of every engine, loaded, closing or left behind.
 *
 *     live ──▶ closing ──▶ struck off
 *                 └──▶ orphan ──▶ struck off
 *
 * A holder is listed from before its first byte until it has none. Its owner (an engine's thread) says after each step what it holds, and is asked
 * by messages, which it answers after the step under way; nobody but the owner touches its memory. If a step of its teardown fails, what
 * is left is the list's: an orphan, charged to an account `orphans`, shown and reachable by every clear until the system takes it.
 *
 * The list also keeps the one budget for what all of them cache (memory/cache_share).
 *
 * Any thread, one lock. What a holder's owner implements (holder_ops) is called under it: it must not wait nor call back. An answer takes no
 * lock of the list's owner. Bound: 64 holders; an ask is 256 bytes of the heap until it is answered. */
#ifndef PLATEAU_MEMORY_HOLDERS_H
#define PLATEAU_MEMORY_HOLDERS_H

#include "base/list.h"
#include "memory/ledger.h"

#include <pthread.h>

struct holders;
struct holder;
struct units;

#define HOLDERS_MAX      64
#define HOLDER_NAME_MAX  64
#define HOLDER_UNITS_MAX 8 /* ranges of one holder */

struct holders_opts {
    struct ledger *ledger;    /* `orphans` opens below its root */
    uint64_t cache_bytes_max; /* of all caches together */
};

/* 0 or -ENOMEM. */
int holders_create(const struct holders_opts *opts, struct holders **ret);
/* Nobody holds anything any more, but for orphans: those are tried once more, and what the system still does
 * not take ends with the process. NULL is fine. */
void holders_free(struct holders *hs);

/* ---- asking ---- */

enum holder_ask_kind {
    HOLDER_TRIM, /* give back what is free */
    HOLDER_GIVE, /* give back so many bytes: what is free, then what is cached and of no use */
    HOLDER_CLEAR /* drop all that is cached, and give back what is free */
};

struct holder_answer {
    uint32_t entries; /* dropped */
    uint64_t bytes;   /* by how much what it holds has fallen since it was asked */
};

/* One question to one holder. Both sides have it until each is done with it. */
struct holder_ask {
    /* Constant. */
    enum holder_ask_kind kind;
    uint64_t bytes;     /* HOLDER_GIVE */
    uint64_t before_ns; /* HOLDER_GIVE: only what was last used before then is dropped; 0: nothing is */
    /* The owner's. */
    struct list link;
    uint64_t held_before;
    struct holder_answer answer;
    /* Both. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
    uint32_t refs;
};

/* For who asks an owner without the list. NULL: no memory. */
struct holder_ask *holder_ask_create(enum holder_ask_kind kind, uint64_t bytes, uint64_t before_ns);
/* The owner, once for each ask it took; the ask is gone then. `answer` is filled. */
void holder_ask_done(struct holder_ask *a);
/* Nobody took it: gone. */
void holder_ask_drop(struct holder_ask *a);
/* Who asked: the answer, and the ask is gone. -ETIMEDOUT: none until the clock says deadline_ns (UINT64_MAX:
 * waits for ever). */
int holder_ask_wait(struct holder_ask *a, uint64_t deadline_ns, struct holder_answer *ret);

/* ---- for owners ---- */

struct holder_ops {
    /* Takes the ask and will answer it, or -EAGAIN or -EPIPE and it will not. */
    int (*ask)(void *arg, struct holder_ask *ask);
    /* holder_publish() would say something new. */
    void (*poke)(void *arg);
};

/* Listed from here on; no byte of it exists yet. 0, -ENOSPC (HOLDERS_MAX), -ENOMEM. */
int holder_add(struct holders *hs, const char *name, struct holder **ret);
/* It can be asked from here on. */
void holder_open(struct holder *h, const struct holder_ops *ops, void *arg);
/* Is asked nothing any more: `ops` is not called when this returns. NULL is fine. */
void holder_close(struct holder *h);
/* After holder_close(): what is left of it, ranges that could not be freed. None: it is struck off. Else it
 * is an orphan, and the ranges are the list's. NULL is fine with none. */
void holder_remove(struct holder *h, struct units *const *left, uint32_t count);

struct holder_numbers {
    uint64_t held_bytes;   /* committed */
    uint64_t free_bytes;   /* of them, of no use to anybody */
    uint64_t cached_bytes; /* of them, of prefixes that nobody uses */
    /* What the process would hold less without both: floors of accounts are held all the same. */
    uint64_t reach_bytes;
    uint64_t wanted_bytes;    /* what those will be when all who use prefixes are done */
    uint32_t entries;         /* pages and snapshots of prefixes */
    uint64_t oldest_ns;       /* when what would be evicted next was last used; 0: nothing */
    uint64_t cost_ns_per_mib; /* of computing what is cached again; 0: not known */
};
struct holder_share {
    uint64_t allowed_bytes; /* it caches no more */
    uint64_t asked_bytes;   /* it should drop so many bytes of what it caches, and publish again */
};
/* What the owner has now, after each step. */
struct holder_share holder_publish(struct holder *h, const struct holder_numbers *n, uint64_t now_ns);
/* It will cache so many bytes: how many it may. */
uint64_t holder_allow(struct holder *h, uint64_t wanted_bytes, uint64_t now_ns);
/* The process refused it `bytes`. True: others are being asked, and have it poked when they have answered;
 * false: nobody will help, because nobody could a moment ago, it takes too long, or nobody listens. */
bool holder_want(struct holder *h, uint64_t bytes, uint64_t now_ns);

/* ---- for who walks ---- */

enum holder_state { HOLDER_LIVE, HOLDER_CLOSING, HOLDER_ORPHAN };
const char *holder_state_name(enum holder_state s);

struct holder_info {
    uint64_t id; /* never used again */
    char name[HOLDER_NAME_MAX];
    enum holder_state state;
    struct holder_numbers now;
    uint64_t allowed_bytes;
};
/* Up to `max`; returns how many there are. */
uint32_t holders_list(struct holders *hs, struct holder_info *ret, uint32_t max);

struct holders_numbers {
    uint32_t count, orphans;
    uint64_t orphan_bytes;
    uint64_t cached_bytes, allowed_bytes, cache_bytes_max; /* allowed <= max */
};
void holders_numbers(struct holders *hs, struct holders_numbers *ret);

/* Who caches the entry of least use, but for those in `except`, and of its entries those last used before
 * *before_ns are of less use than anybody else's. False: nobody caches anything. */
bool holders_stalest(struct holders *hs, const uint64_t *except, uint32_t except_count, uint64_t now_ns,
                     uint64_t *id, uint64_t *before_ns);

/* Asks one. 0: holder_ask_wait() has its answer (an orphan's is there at once); -ENOENT: it is gone; -EPIPE:
 * closing; -EAGAIN, -ENOMEM; or what the system said to an orphan's bytes. */
int holders_ask(struct holders *hs, uint64_t id, enum holder_ask_kind kind, uint64_t bytes,
                uint64_t before_ns, struct holder_ask **ret);

struct holders_reclaimed {
    uint32_t entries;
    uint64_t bytes;
    uint32_t failed; /* how many have not done it */
    struct {
        char name[HOLDER_NAME_MAX];
        int error; /* -ETIMEDOUT: it may do it later */
    } failures[HOLDERS_MAX];
};
/* Asks all of them, orphans too, and waits for each until `timeout_ns` from now; goes on past those that
 * fail. Not an owner's thread. */
void holders_reclaim(struct holders *hs, enum holder_ask_kind kind, uint64_t timeout_ns,
                     struct holders_reclaimed *ret);

/* Who helps those that holder_want(): `wanted` is called under the lock when somebody does. NULL: nobody
 * helps. */
void holders_listen(struct holders *hs, void (*wanted)(void *arg), void *arg);
/* One that wants help. False: none does. */
bool holders_next_want(struct holders *hs, uint64_t *id, uint64_t *bytes);
/* It has got what there was to be had. */
void holders_helped(struct holders *hs, uint64_t id, uint64_t bytes);

#endif
