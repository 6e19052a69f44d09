/* tier_io.h - what lies below the pools: pages and snapshots by their key, somewhere that is slower and
 * larger.
 *
 * Whoever keeps prefixes talks to a tier through this and never waits for it: a read is asked for and arrives
 * later, or never; a write is a copy handed in. Bytes of a key are the same wherever they were computed, so a
 * tier may lose anything at any time and that costs a hit only. One user, one thread (the engine's); what is
 * behind it is the implementer's. A tier holds pages of one group: models with windows use none. */
#ifndef PLATEAU_CACHE_TIER_IO_H
#define PLATEAU_CACHE_TIER_IO_H

#include "cache/prefix_key.h"

enum tier_kind { TIER_PAGE, TIER_SNAPSHOT };

/* What was asked for has come, or has not. */
struct tier_arrival {
    uint64_t tag;
    uint32_t index;
    enum tier_kind kind;
    int status;        /* 0, or negative: it is not there, and will not be */
    const void *bytes; /* [of a page or a snapshot]; the tier's, until give() */
    uint32_t handle;   /* the tier's */
};

/* Room for a copy, between write_begin() and write_end(). */
struct tier_write {
    void *bytes;
    uint32_t handle; /* the tier's */
};

struct tier_io {
    void *arg;
    /* As far as is known; it may be gone when it is read. */
    bool (*has)(void *arg, const struct prefix_key *key, enum tier_kind kind);
    /* These pages were used now, and the snapshots at them: those at the end go before the others when the
     * tier needs room. */
    void (*used)(void *arg, const struct prefix_key *keys, uint32_t count);
    /* How long reading so much will take, by what reads took so far; UINT64_MAX: nothing can be read. */
    uint64_t (*read_ns)(void *arg, uint32_t pages, uint32_t snapshots);
    /* Asks for bytes; an arrival with `tag` and `index` comes. 0, -EAGAIN (no room: once more after the next
     * arrival, or later), -ENOENT, -ENODEV (the tier is off). */
    int (*read)(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag, uint32_t index);
    /* What was asked for with this tag is not wanted: no arrival of it is taken after this. */
    void (*cancel)(void *arg, uint64_t tag);
    /* The next arrival, in any order; each is given back. False: none now. */
    bool (*take)(void *arg, struct tier_arrival *ret);
    void (*give)(void *arg, const struct tier_arrival *a);
    /* 0: fill ret->bytes, then call write_end; `whole` false: forget it. -EEXIST (it is there, and counts as
     * used now), -EAGAIN (no room now), -EFBIG (never), -ENODEV (the tier is off). With `last` a refusal is
     * counted as a drop, for these bytes are going. */
    int (*write_begin)(void *arg, const struct prefix_key *key, enum tier_kind kind, bool last,
                       struct tier_write *ret);
    void (*write_end)(void *arg, const struct tier_write *w, bool whole);
};

#endif
