/* write_behind.c - writes in idle time first; the rest at eviction or at the end. */
#include "engine/write_behind.h"

#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define RETRY_NS    (10 * NS_PER_MS)
#define PATIENCE_NS (30 * NS_PER_S) /* of an idle engine with a tier that takes nothing */
#define LOOKS       4096            /* nodes between two looks at the inbox: a fraction of a millisecond */

/* Bytes of a device that has failed are not stored. */
static bool has_tier(const struct engine *en)
{
    return en->tier.arg != NULL && engine_failure(en) == 0;
}

static bool is_wanted(const struct engine *en)
{
    return mailbox_count(en->inbox) > 0 || atomic_load(&en->closing);
}

/* 0, -EINTR (a message came, and the copy is abandoned), or as pools_get(). */
static int copy(struct engine *en, char *to, enum tier_kind kind, uint32_t block, bool patient)
{
    size_t bytes = pools_block_bytes(&en->pools, kind);
    int r = 0;
    for (size_t at = 0; r == 0 && at < bytes; at += PIECE_BYTES) {
        if (at > 0 && !patient && is_wanted(en))
            return -EINTR;
        r = pools_get(&en->pools, kind, block, at, MIN_OF(PIECE_BYTES, bytes - at), to + at);
    }
    return r;
}

/* 0: it is stored, or never will be; -EAGAIN: no room; -EINTR: a message came. `last`: the last chance to
 * store it. */
static int hand_in(struct engine *en, const struct prefix_key *key, enum tier_kind kind, uint32_t block,
                   bool last, bool patient)
{
    struct tier_write w;
    int r = en->tier.write_begin(en->tier.arg, key, kind, last, &w);
    if (r < 0)
        return r == -EAGAIN ? r : 0;
    w.pending = kind == TIER_SNAPSHOT ? en->pools.pending[block] : 0;
    r = copy(en, w.bytes, kind, block, patient);
    en->tier.write_end(en->tier.arg, &w, r == 0);
    if (r < 0 && r != -EINTR)
        engine_fail(en, r);
    return r == -EINTR ? r : 0;
}

void write_behind_evicting(void *arg, const struct prefix_key *key, uint32_t page, uint32_t state)
{
    struct engine *en = arg;
    if (!has_tier(en))
        return;
    if (page != NONE)
        hand_in(en, key, TIER_PAGE, page, true, true);
    if (state != NONE)
        hand_in(en, key, TIER_SNAPSHOT, state, true, true);
}

/* ---- idle ---- */

static uint32_t unstored(const struct engine *en)
{
    struct prefix_numbers n = {0};
    if (en->pools.index)
        prefix_index_numbers(en->pools.index, &n);
    return n.unstored;
}

uint64_t write_behind_wait_ns(struct engine *en, uint64_t now_ns)
{
    struct write_behind *w = &en->write_behind;
    if (!has_tier(en) || unstored(en) == 0)
        return UINT64_MAX;
    if (w->since_ns != en->last_end_ns)
        *w = (struct write_behind){.cursor = w->cursor, .since_ns = en->last_end_ns};
    if (w->given_up)
        return UINT64_MAX;
    uint64_t due_ns = MAX_OF(w->since_ns + WRITE_BEHIND_NS, w->retry_ns);
    return due_ns > now_ns ? due_ns - now_ns : 0;
}

static int hand_in_node(struct engine *en, const struct prefix_unstored *u, bool last)
{
    int r = 0;
    if (u->page != NONE) {
        r = hand_in(en, &u->key, TIER_PAGE, u->page, last, last);
        if (r == 0)
            prefix_index_page_stored(en->pools.index, u->node);
    }
    if (r == 0 && u->state != NONE) {
        r = hand_in(en, &u->key, TIER_SNAPSHOT, u->state, last, last);
        if (r == 0)
            prefix_index_snapshot_stored(en->pools.index, u->node);
    }
    return r;
}

void write_behind_run(struct engine *en)
{
    struct write_behind *w = &en->write_behind;
    struct prefix_unstored u;
    while (!is_wanted(en) && unstored(en) > 0) {
        uint32_t at = w->cursor;
        if (!prefix_index_unstored(en->pools.index, &w->cursor, LOOKS, &u))
            continue;
        if (hand_in_node(en, &u, false) == 0)
            continue;
        uint64_t now_ns = clock_now_ns();
        w->cursor = at;
        w->retry_ns = now_ns + RETRY_NS;
        w->given_up = now_ns - w->since_ns > PATIENCE_NS;
        return;
    }
}

/* Does not wait for a disk: entries without room are dropped, and counted. */
void write_behind_end(struct engine *en)
{
    struct prefix_unstored u;
    if (!has_tier(en) || !en->pools.index)
        return;
    /* Entries in constant use in memory may have been evicted from disk as old. */
    prefix_index_offer_again(en->pools.index);
    uint32_t left = unstored(en);
    while (left > 0) {
        if (!prefix_index_unstored(en->pools.index, &en->write_behind.cursor, LOOKS, &u))
            continue;
        if (hand_in_node(en, &u, true) < 0) {
            /* Looked at once each. */
            if (u.page != NONE)
                prefix_index_page_stored(en->pools.index, u.node);
            if (u.state != NONE)
                prefix_index_snapshot_stored(en->pools.index, u.node);
        }
        left = unstored(en);
    }
}
