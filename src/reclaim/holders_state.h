/* holders_state.h - the structures of the list of holders; for holders.c and holders_check.c, and for tests
 * that damage a holder. */
#ifndef PLATEAU_RECLAIM_HOLDERS_STATE_H
#define PLATEAU_RECLAIM_HOLDERS_STATE_H

#include "reclaim/cache_share.h"
#include "reclaim/holders.h"

#include "memory/domain.h"

enum want_state { WANT_NONE, WANT_ASKED, WANT_TAKEN, WANT_DENIED };

/* The holders of one memory domain. */
struct holder_domain {
    const struct domain *domain;             /* constant */
    uint64_t cache_bytes_max;                /* constant */
    struct account *orphans;                 /* NULL: no orphans */
    struct cache_share *shares[HOLDERS_MAX]; /* shares of live holders */
    uint32_t share_count;
};

struct holder {
    /* Constant. */
    struct holders *list;
    struct holder_domain *of;
    uint64_t id;
    char name[HOLDER_NAME_MAX];
    /* Under the list's lock. */
    struct list link;
    enum holder_state state;
    const struct holder_ops *ops; /* NULL: it cannot be asked, because it is not open yet or is closed */
    void *arg;
    struct holder_numbers now;
    struct cache_share share;
    enum want_state want;
    uint64_t want_bytes, want_ns;
    struct units *left[HOLDER_UNITS_MAX]; /* ranges of an orphan */
    bool freeing;                         /* some thread is freeing `left` */
};

struct holders {
    struct ledger *ledger; /* constant */
    pthread_mutex_t lock;
    struct list all;
    uint32_t count;
    uint64_t next_id;
    struct holder_domain domains[DOMAINS_MAX]; /* the first is the machine's memory */
    uint32_t domain_count;
    void (*wanted)(void *arg);
    void *wanted_arg;
};

#define HOLDER(it) LIST_ENTRY(it, struct holder, link)

/* Committed bytes of its ranges; with the lock, and not while they are being freed. */
uint64_t holder_left_bytes(const struct holder *h);

#endif
