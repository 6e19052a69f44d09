/* write_behind.c - writes in idle time first; the rest at eviction or at the end. */
#include "engine/write_behind.h"

#include "engine/pools.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/none.h"
#include "cache/prefix_index.h"
#include "cache/tier_io.h"

#include <errno.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define RETRY_NS    (10 * NS_PER_MS)
#define PATIENCE_NS (30 * NS_PER_S) /* time that an idle engine waits for a tier that takes nothing */
#define END_NS      (2 * NS_PER_S)  /* time that the engine's end waits for a tier that takes nothing */
#define END_LOOK_NS (2 * NS_PER_MS) /* between two offers to a tier without room */
#define LOOKS       4096            /* nodes between two looks at the inbox: a fraction of a millisecond */

static bool has_tier(const struct write_behind *w)
{
    return w->opts.tier->arg != NULL && atomic_load(w->opts.failure) == 0;
}

static bool keeps(const struct write_behind *w)
{
    return has_tier(w) && w->opts.kept->arg != NULL;
}

static bool is_wanted(const struct write_behind *w)
{
    return w->opts.is_wanted(w->opts.arg);
}

/* 0, -EINTR (a message came, and the copy is abandoned), or as pools_get(). */
static int copy(struct write_behind *w, char *to, enum tier_kind kind, uint32_t block, bool patient)
{
    size_t bytes = pools_block_bytes(w->opts.pools, kind), piece = patient ? bytes : PIECE_BYTES;
    int r = 0;
    for (size_t at = 0; r == 0 && at < bytes; at += piece) {
        if (at > 0 && is_wanted(w))
            return -EINTR;
        r = pools_get(w->opts.pools, kind, block, at, MIN_OF(piece, bytes - at), to + at);
    }
    return r;
}

/* 0: it is stored, or never will be; -EAGAIN: no room; -EINTR: a message came. Only work of an idle engine
 * gives way to messages. */
static int hand_in(struct write_behind *w, const struct tier_offer *offer, uint32_t block)
{
    struct tier_write to;
    bool patient = offer->why != TIER_IDLE;
    ASSERT(block != NONE);
    int r = w->opts.tier->write_begin(w->opts.tier->arg, offer, &to);
    if (r < 0)
        return r == -EAGAIN ? r : 0;
    to.pending = offer->kind == TIER_SNAPSHOT ? w->opts.pools->pending[block] : 0;
    r = copy(w, to.bytes, offer->kind, block, patient);
    w->opts.tier->write_end(w->opts.tier->arg, &to, r == 0);
    if (r < 0 && r != -EINTR)
        w->opts.failed(w->opts.arg, r);
    return r == -EINTR ? r : to.again ? -EAGAIN : 0;
}

void write_behind_evicting(void *arg, const struct tier_offer *offer, uint32_t block)
{
    struct write_behind *w = arg;
    if (has_tier(w))
        hand_in(w, offer, block);
}

int write_behind_lease(struct write_behind *w, const struct tier_offer *offer, uint32_t block)
{
    ASSERT(offer->why == TIER_LEASED);
    return keeps(w) ? hand_in(w, offer, block) : -EAGAIN;
}

void write_behind_common(struct write_behind *w, const struct tier_offer *offer, uint32_t block)
{
    ASSERT(offer->why == TIER_COMMON);
    if (has_tier(w))
        (void)hand_in(w, offer, block);
}

/* ---- idle ---- */

static uint32_t unstored(const struct write_behind *w)
{
    struct prefix_numbers n = {0};
    if (w->opts.pools->index)
        prefix_index_numbers(w->opts.pools->index, &n);
    return n.unstored;
}

uint64_t write_behind_wait_ns(struct write_behind *w, uint64_t ended_ns, uint64_t now_ns)
{
    if (!keeps(w) || unstored(w) == 0)
        return UINT64_MAX;
    if (w->since_ns != ended_ns)
        *w = (struct write_behind){.opts = w->opts, .cursor = w->cursor, .since_ns = ended_ns};
    if (w->given_up)
        return UINT64_MAX;
    uint64_t due_ns = MAX_OF(w->since_ns + WRITE_BEHIND_NS, w->retry_ns);
    return due_ns > now_ns ? due_ns - now_ns : 0;
}

/* Kinds of the node that the tier has taken leave `u`. */
static int hand_in_node(struct write_behind *w, struct prefix_unstored *u, enum tier_why why)
{
    int r = 0;
    for (enum tier_kind kind = 0; r == 0 && kind < TIER_KINDS; kind++) {
        if (u->blocks[kind] == NONE)
            continue;
        r = hand_in(w, &(struct tier_offer){&u->key, kind, u->share, why}, u->blocks[kind]);
        if (r == 0) {
            prefix_index_stored(w->opts.pools->index, u->node, kind);
            u->blocks[kind] = NONE;
        }
    }
    return r;
}

void write_behind_run(struct write_behind *w)
{
    struct prefix_unstored u;
    while (!is_wanted(w) && unstored(w) > 0) {
        uint32_t at = w->cursor;
        if (!prefix_index_unstored(w->opts.pools->index, &w->cursor, LOOKS, &u))
            continue;
        if (hand_in_node(w, &u, TIER_IDLE) == 0)
            continue;
        uint64_t now_ns = clock_now_ns();
        w->cursor = at;
        w->retry_ns = now_ns + RETRY_NS;
        w->given_up = now_ns - w->since_ns > PATIENCE_NS;
        return;
    }
}

/* Offers a node until the tier has taken it. *took_ns: when the tier took the last one. */
static int hand_over(struct write_behind *w, struct prefix_unstored *u, uint64_t *took_ns)
{
    const struct timespec pause = {0, END_LOOK_NS};
    for (;;) {
        int r = hand_in_node(w, u, TIER_LEAVING);
        uint64_t now_ns = clock_now_ns();
        if (r == 0)
            *took_ns = now_ns;
        if (r != -EAGAIN)
            return r;
        if (now_ns >= w->opts.ends_ns(w->opts.arg) || now_ns - *took_ns >= END_NS)
            return hand_in_node(w, u, TIER_END);
        nanosleep(&pause, NULL);
    }
}

void write_behind_end(struct write_behind *w)
{
    struct prefix_unstored u;
    if (!has_tier(w) || w->opts.left->arg == NULL || !w->opts.pools->index)
        return;
    /* Entries in constant use in memory may have been evicted from disk as old. */
    prefix_index_offer_again(w->opts.pools->index);
    uint64_t took_ns = clock_now_ns();
    uint32_t left = unstored(w);
    while (left > 0) {
        if (!prefix_index_unstored(w->opts.pools->index, &w->cursor, LOOKS, &u))
            continue;
        /* Looked at once each. */
        bool failed = hand_over(w, &u, &took_ns) < 0;
        for (enum tier_kind kind = 0; failed && kind < TIER_KINDS; kind++)
            if (u.blocks[kind] != NONE)
                prefix_index_stored(w->opts.pools->index, u.node, kind);
        ASSERT(unstored(w) < left);
        left = unstored(w);
    }
}
