/* ledger_state.h - the ledger's structures; for ledger.c and ledger_check.c, and for tests that damage an
 * account. */
#ifndef PLATEAU_MEMORY_LEDGER_STATE_H
#define PLATEAU_MEMORY_LEDGER_STATE_H

#include "memory/ledger.h"

#include "base/check.h"
#include "base/list.h"

#include <pthread.h>

struct account {
    struct ledger *ledger;
    struct account *parent;
    struct account *root;           /* root of its domain */
    struct list siblings, children; /* siblings of a root without a parent: ledger.roots */
    uint64_t taken;                 /* reserved here and below; n.reserved is the floor when that is more */
    struct account_numbers n;
};

struct ledger {
    struct ledger_faults faults; /* constant once other threads exist */
    pthread_mutex_t lock;
    struct account root; /* the machine's */
    struct list roots;   /* roots of devices */
};

/* Disk blocks are counted in their own subtree but are not memory: the count stops below the root. */
static inline bool ledger_counts_at(const struct account *at, const struct account *from)
{
    return at->parent || from->n.class != ACCOUNT_DISK;
}

/* The bytes that it counts as when `taken` are reserved there. */
static inline uint64_t ledger_reserved_with(const struct account *a, uint64_t taken)
{
    return MAX_OF(taken, a->n.floor);
}

#endif
