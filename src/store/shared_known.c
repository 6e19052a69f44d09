/* shared_known.c - a slot for each hash, no chains. */
#include "store/shared_known.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>
#include <string.h>

/* Seconds for which knowledge holds, by presence. */
static const uint32_t lasts_s[] = {
    [SHARED_UNKNOWN] = 0,  [SHARED_ABSENT] = 2,    [SHARED_WANTED] = 60,
    [SHARED_WRITING] = 60, [SHARED_PRESENT] = 600,
};

/* Keys are SHA-256, so a part of them is a hash; entries of models never share one. */
static uint64_t tag_of(const struct prefix_key *key, enum tier_kind kind)
{
    uint64_t tag;
    memcpy(&tag, key->bytes, sizeof(tag));
    return (tag ^ ((uint64_t)kind * 0x9e3779b97f4a7c15u)) | 1;
}

static struct shared_known_slot *slot_of(const struct shared_known *k, uint64_t tag)
{
    return &k->slots[(tag >> 8) % SHARED_KNOWN_SLOTS];
}

int shared_known_init(struct shared_known *k, struct arena *a)
{
    k->slots = ARENA_ARRAY(a, struct shared_known_slot, SHARED_KNOWN_SLOTS);
    if (!k->slots)
        return -ENOMEM;
    shared_known_clear(k);
    return 0;
}

void shared_known_clear(struct shared_known *k)
{
    memset(k->slots, 0, SHARED_KNOWN_SLOTS * sizeof(*k->slots));
}

enum shared_presence shared_known_get(const struct shared_known *k, const struct prefix_key *key,
                                      enum tier_kind kind, uint64_t now_ns)
{
    uint64_t tag = tag_of(key, kind);
    const struct shared_known_slot *s = slot_of(k, tag);
    uint32_t now_s = (uint32_t)(now_ns / NS_PER_S);
    ASSERT(s->presence < COUNT_OF(lasts_s));
    return s->tag == tag && now_s - s->at_s < lasts_s[s->presence] ? s->presence : SHARED_UNKNOWN;
}

void shared_known_set(struct shared_known *k, const struct prefix_key *key, enum tier_kind kind,
                      enum shared_presence presence, uint64_t now_ns)
{
    uint64_t tag = tag_of(key, kind);
    ASSERT(presence < COUNT_OF(lasts_s));
    *slot_of(k, tag) = (struct shared_known_slot){tag, (uint32_t)(now_ns / NS_PER_S), presence};
}
