/* shared_known.h - which entries the shared store is known to have.
 *
 * A fixed table; a key that takes another one's slot makes the tier forget it, which costs a query or a
 * second write at most. Knowledge ages, because others write and remove. One thread
 * at a time: the holder of the tier's lock. */
#ifndef PLATEAU_STORE_SHARED_KNOWN_H
#define PLATEAU_STORE_SHARED_KNOWN_H

#include "base/arena.h"
#include "cache/prefix_key.h"
#include "cache/tier_io.h"

#define SHARED_KNOWN_SLOTS 131072u /* 2 MiB */

enum shared_presence {
    SHARED_UNKNOWN,
    SHARED_ABSENT,
    SHARED_WANTED,  /* absent; queued to be handed in */
    SHARED_WRITING, /* accepted; not there yet */
    SHARED_PRESENT
};

struct shared_known {
    struct shared_known_slot {
        uint64_t tag;
        uint32_t at_s;
        uint32_t presence;
    } * slots;
};

static inline size_t shared_known_bytes(void)
{
    return SHARED_KNOWN_SLOTS * sizeof(struct shared_known_slot) + 64;
}
/* 0 or -ENOMEM. */
int shared_known_init(struct shared_known *k, struct arena *a);
enum shared_presence shared_known_get(const struct shared_known *k, const struct prefix_key *key,
                                      enum tier_kind kind, uint64_t now_ns);
void shared_known_set(struct shared_known *k, const struct prefix_key *key, enum tier_kind kind,
                      enum shared_presence presence, uint64_t now_ns);
void shared_known_clear(struct shared_known *k);

#endif
