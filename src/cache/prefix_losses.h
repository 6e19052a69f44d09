/* prefix_losses.h - records of evicted prefixes: when, why and for whom.
 *
 * A record has one key, that of the evicted page or snapshot. There is one place for each of
 * PREFIX_LOSSES_MAX hashes of keys, and a later eviction takes it: 64 KiB for each index. A key without a
 * record was never cached, or was evicted too long ago. Engine thread only. */
#ifndef PLATEAU_CACHE_PREFIX_LOSSES_H
#define PLATEAU_CACHE_PREFIX_LOSSES_H

#include <stdint.h>

struct prefix_key;

#define PREFIX_LOSSES_MAX 2048

enum prefix_loss_cause {
    PREFIX_LOSS_NONE,     /* there is no record */
    PREFIX_LOSS_PAGES,    /* a sequence of the tenant `whom` needed the pages */
    PREFIX_LOSS_LIMIT,    /* the cache was full when a sequence of the tenant `whom` left its pages */
    PREFIX_LOSS_SHARE,    /* the caches of other models have the same limit, and more use for it */
    PREFIX_LOSS_MODEL,    /* another model needed the memory; `whom`: hash of its name */
    PREFIX_LOSS_PRESSURE, /* the machine or the cgroup ran short of memory */
    PREFIX_LOSS_IMAGES,   /* embeddings of images needed the memory */
    PREFIX_LOSS_CLEARED,  /* an administrator cleared the cache */
    PREFIX_LOSS_CAUSES
};

struct prefix_loss {
    enum prefix_loss_cause cause;
    uint64_t whom;  /* tenant, or hash_bytes() of a model's name; 0: unknown */
    uint64_t at_ns; /* clock time */
};

struct prefix_losses {
    struct prefix_loss now; /* cause of evictions from now on, and their time */
    struct {
        uint64_t key;
        struct prefix_loss loss;
    } records[PREFIX_LOSSES_MAX];
};

/* Evictions from now on have this cause. */
static inline void prefix_losses_blame(struct prefix_losses *l, enum prefix_loss_cause cause, uint64_t whom)
{
    l->now.cause = cause;
    l->now.whom = whom;
}
/* The key's page or snapshot is evicted. */
void prefix_losses_add(struct prefix_losses *l, const struct prefix_key *key);
/* The record of the first of keys[count] that has one. Looks at PREFIX_LOSSES_LOOKS of them. */
#define PREFIX_LOSSES_LOOKS 256
struct prefix_loss prefix_losses_find(const struct prefix_losses *l, const struct prefix_key *keys,
                                      uint32_t count);

#endif
