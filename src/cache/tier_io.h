/* tier_io.h - the tier below the pools: pages and snapshots by key, in larger and slower storage.
 *
 * The prefix cache uses a tier through this interface and never waits for it. A read is requested and arrives
 * later, or never; a write is a copy. Bytes of a key are the same wherever they were computed, so a tier may
 * lose any entry at any time, which only costs a hit. One user, one thread (the engine's); the implementation
 * may use others. A tier holds pages of one group: models with windows use no tier. */
#ifndef PLATEAU_CACHE_TIER_IO_H
#define PLATEAU_CACHE_TIER_IO_H

#include "base/check.h"
#include "base/page_tokens.h"
#include "cache/prefix_key.h"

/* TIER_PAGE: a page of the first group. TIER_WINDOW and after: of the groups with a window. */
enum tier_kind { TIER_PAGE, TIER_SNAPSHOT, TIER_WINDOW, TIER_KINDS = TIER_WINDOW + PAGE_GROUPS_MAX - 1 };

static inline enum tier_kind tier_kind_of(uint32_t group)
{
    ASSERT(group < PAGE_GROUPS_MAX);
    return group == 0 ? TIER_PAGE : (enum tier_kind)(TIER_WINDOW + group - 1);
}

/* The result of a read. */
struct tier_arrival {
    uint64_t tag;
    uint32_t index;
    enum tier_kind kind;
    int status;        /* 0, or negative: the entry is missing, for good */
    const void *bytes; /* [of a page or a snapshot]; owned by the tier until give() */
    uint32_t handle;   /* for the tier */
    uint32_t pending;  /* of a snapshot: as it was written */
};

/* Room for a copy, between write_begin() and write_end(). */
struct tier_write {
    void *bytes;
    uint32_t handle;  /* for the tier */
    uint32_t pending; /* of a snapshot, set before write_end(): its pending tokens that were accepted */
};

struct tier_io {
    void *arg;
    /* As far as the tier knows; the entry may be gone when it is read. */
    bool (*has)(void *arg, const struct prefix_key *key, enum tier_kind kind);
    /* These pages were used now, and the snapshots at them: when the tier needs room, those at the end go
     * first. */
    void (*used)(void *arg, const struct prefix_key *keys, uint32_t count);
    /* Estimate for reading `pages` and `snapshots`, from the time of earlier reads; UINT64_MAX: the tier
     * cannot read. */
    uint64_t (*read_ns)(void *arg, uint32_t pages, uint32_t snapshots);
    /* Requests bytes; an arrival with `tag` and `index` follows. 0, -EAGAIN (no room: try again after the
     * next arrival, or later), -ENOENT, -ENODEV (the tier is off). */
    int (*read)(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag, uint32_t index);
    /* Cancels the reads of this tag: none of their arrivals is taken after this. */
    void (*cancel)(void *arg, uint64_t tag);
    /* The next arrival, in any order; the caller gives each back. False: none now. */
    bool (*take)(void *arg, struct tier_arrival *ret);
    void (*give)(void *arg, const struct tier_arrival *a);
    /* 0: fill ret->bytes, then call write_end; `whole` false discards it. -EEXIST (present, and counts as
     * used now), -EAGAIN (no room now), -EFBIG (never), -ENODEV (the tier is off). With `last` a refusal
     * counts as a drop, because the bytes are lost. */
    int (*write_begin)(void *arg, const struct prefix_key *key, enum tier_kind kind, bool last,
                       struct tier_write *ret);
    void (*write_end)(void *arg, const struct tier_write *w, bool whole);
};

#endif
