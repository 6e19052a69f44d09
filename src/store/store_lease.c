/* store_lease.c - leases: chains of entries that make no room for others.
 *
 * The table counts an entry's leases, and links it to the entry before it. A chain is its last entry and its
 * length, whatever it shares with others. All entries of a lease are in the table from the first on: those
 * without a file are reserved, so a lost file leaves a gap that the same bytes fill again. A look goes from
 * the last entry to the first, in the order in which the pools evict. */
#include "store/store_state.h"
#include "store/store_table.h"

#include "base/check.h"
#include "base/none.h"

#include <errno.h>

#define LOOKS 512u /* entries of one look: some ten microseconds */

static struct store_lease *find(struct store_client *c, uint32_t lease)
{
    ASSERT(lease < STORE_LEASES_MAX);
    struct store_lease *x = &c->store->leases[lease];
    ASSERT(x->client == c);
    return x;
}

static uint64_t file_bytes(const struct store_client *c, enum tier_kind kind)
{
    ASSERT(kind < TIER_KINDS);
    return c->opts.bytes[kind] ? store_file_bytes(c->opts.bytes[kind]) : 0;
}

/* ---- limits ---- */

static bool fits(const struct store *st, uint32_t share, uint64_t bytes, struct lease_refusal *why)
{
    struct store_table_numbers t;
    ASSERT(share < CACHE_SHARES);
    store_table_numbers(st->table, &t);
    uint64_t most = st->limit_bytes / 2, all = t.leased_sectors * STORE_SECTOR + st->promised_bytes;
    uint64_t own = store_table_leased_of(st->table, share) * STORE_SECTOR + st->promised_of[share];
    ASSERT(own <= all);
    uint64_t limit = (most - MIN_OF(all - own, most)) / 2;
    *why = (struct lease_refusal){bytes, all, most, own, limit, .by_tenant = own + bytes > limit};
    return bytes <= limit && own <= limit - bytes && t.leased < t.entries_max / 2;
}

static void promise(struct store *st, struct store_lease *x, uint64_t bytes)
{
    ASSERT(st->promised_bytes >= x->promised && st->promised_of[x->share] >= x->promised);
    st->promised_bytes += bytes - x->promised;
    st->promised_of[x->share] += bytes - x->promised;
    x->promised = bytes;
}

static int promise_more(struct store_client *c, struct store_lease *x, const uint32_t counts[TIER_KINDS],
                        struct lease_refusal *why)
{
    struct store *st = c->store;
    uint64_t bytes = 0, largest = 0;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        bytes += counts[kind] * file_bytes(c, kind);
        largest = MAX_OF(largest, counts[kind] ? file_bytes(c, kind) : 0);
    }
    if (!store_is_on(st))
        return -ENODEV;
    if (largest > (uint64_t)st->staging.blocks * STORE_BLOCK_BYTES)
        return -EFBIG;
    if (clock_now_ns() < st->rest_until_ns)
        return -EIO;
    if (!fits(st, x->share, bytes, why))
        return -ENOSPC;
    promise(st, x, x->promised + bytes);
    return 0;
}

/* ---- chains ---- */

static void begin_look(struct store_lease *x)
{
    ASSERT(x->client);
    x->kind = TIER_PAGE;
    x->at = x->chains[TIER_PAGE];
    x->lacks = false;
    x->seen_bytes = 0;
}

static void release(struct store *st, const struct store_chain *chains)
{
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        uint32_t at = chains[kind].last;
        for (uint32_t i = chains[kind].count; i > 0; i--) {
            uint32_t before = store_table_at(st->table, at)->older;
            store_table_unlease(st->table, at);
            at = before;
        }
    }
}

/* Leases keys[first, count) of one kind. False: the table is full, and the chain ends there. */
static bool take_chain(struct store_client *c, uint32_t share, const struct prefix_key *keys, uint32_t first,
                       uint32_t count, enum tier_kind kind, struct store_chain *ret)
{
    uint32_t sectors = (uint32_t)(file_bytes(c, kind) / STORE_SECTOR);
    *ret = (struct store_chain){NONE, 0};
    for (uint32_t i = first; i < count && sectors > 0; i++) {
        uint32_t entry = store_table_lease(c->store->table, &keys[i], kind, share, sectors, ret->last);
        if (entry == NONE)
            return false;
        *ret = (struct store_chain){entry, ret->count + 1};
    }
    return true;
}

/* Bytes and entries of the keys that no lease has yet. */
static uint64_t new_bytes(const struct store_client *c, const struct prefix_key *keys, uint32_t count,
                          const uint32_t first[TIER_KINDS], uint32_t *entries)
{
    const struct store_table *t = c->store->table;
    uint64_t bytes = 0;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        for (uint32_t i = first[kind]; i < count && c->opts.bytes[kind] > 0; i++) {
            uint32_t entry = store_table_find(t, &keys[i], kind);
            if (entry != NONE && store_table_at(t, entry)->leases > 0)
                continue;
            bytes += file_bytes(c, kind);
            ++*entries;
        }
    return bytes;
}

static int hold(struct store_client *c, struct store_lease *x, const struct prefix_key *keys, uint32_t count,
                const uint32_t first[TIER_KINDS])
{
    struct store *st = c->store;
    struct store_chain chains[TIER_KINDS] = {{NONE, 0}};
    struct store_table_numbers t;
    struct lease_refusal why;
    uint32_t entries = 0;
    promise(st, x, 0);
    if (!store_is_on(st))
        return -ENODEV;
    uint64_t bytes = new_bytes(c, keys, count, first, &entries);
    store_table_numbers(st->table, &t);
    if (t.leased + entries > t.entries_max / 2 || !fits(st, x->share, bytes, &why))
        return -ENOSPC;
    bool whole = true;
    bytes = 0;
    for (enum tier_kind kind = 0; kind < TIER_KINDS && whole; kind++) {
        whole = take_chain(c, x->share, keys, first[kind], count, kind, &chains[kind]);
        bytes += chains[kind].count * file_bytes(c, kind);
    }
    if (!whole) {
        release(st, chains);
        return -ENOSPC;
    }
    release(st, x->chains);
    memcpy(x->chains, chains, sizeof(chains));
    x->bytes = bytes;
    begin_look(x);
    return 0;
}

/* True if the look is over. */
static bool next_chain(struct store_lease *x)
{
    while (x->at.count == 0 && x->kind < TIER_KINDS)
        if (++x->kind < TIER_KINDS)
            x->at = x->chains[x->kind];
    return x->kind == TIER_KINDS;
}

static enum tier_lease_state look(struct store *st, struct store_lease *x, struct tier_lease *ret)
{
    for (uint32_t looks = LOOKS; looks > 0; looks--) {
        if (next_chain(x)) {
            bool lacks = x->lacks;
            x->stored_bytes = x->seen_bytes;
            begin_look(x);
            return lacks ? TIER_LEASE_WAITS : TIER_LEASE_WHOLE;
        }
        const struct store_entry *n = store_table_at(st->table, x->at.last);
        ASSERT(n->leases > 0);
        x->at = (struct store_chain){n->older, x->at.count - 1};
        x->lacks |= n->state != STORE_ENTRY_STORED;
        x->seen_bytes += n->state == STORE_ENTRY_STORED ? file_bytes(x->client, x->kind) : 0;
        if (n->state != STORE_ENTRY_RESERVED)
            continue;
        ret->key = &n->key;
        ret->kind = x->kind;
        return TIER_LEASE_LACKS;
    }
    return TIER_LEASE_WAITS;
}

/* ---- the interface ---- */

static int lease_open(void *arg, uint32_t share, const uint32_t counts[TIER_KINDS], uint32_t *ret,
                      struct lease_refusal *why)
{
    struct store_client *c = store_lock_client(arg);
    struct store *st = c->store;
    uint32_t i = 0;
    int r = -ENFILE;
    while (i < STORE_LEASES_MAX && st->leases[i].client)
        i++;
    if (i < STORE_LEASES_MAX) {
        struct store_lease *x = &st->leases[i];
        *x = (struct store_lease){.share = share};
        for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
            x->chains[kind] = (struct store_chain){NONE, 0};
        r = promise_more(c, x, counts, why);
        x->client = r == 0 ? c : NULL;
        st->lease_count += r == 0;
    }
    if (r == 0)
        begin_look(&st->leases[i]);
    pthread_mutex_unlock(&st->lock);
    *ret = r == 0 ? i : *ret;
    return r;
}

static int lease_grow(void *arg, uint32_t lease, const uint32_t counts[TIER_KINDS], struct lease_refusal *why)
{
    struct store_client *c = store_lock_client(arg);
    int r = promise_more(c, find(c, lease), counts, why);
    pthread_mutex_unlock(&c->store->lock);
    return r;
}

static int lease_hold(void *arg, uint32_t lease, const struct prefix_key *keys, uint32_t count,
                      const uint32_t first[TIER_KINDS], uint64_t *bytes)
{
    struct store_client *c = store_lock_client(arg);
    struct store_lease *x = find(c, lease);
    int r = hold(c, x, keys, count, first);
    *bytes = r == 0 ? x->bytes : *bytes;
    pthread_mutex_unlock(&c->store->lock);
    return r;
}

static enum tier_lease_state lease_look(void *arg, uint32_t lease, struct tier_lease *ret)
{
    struct store_client *c = store_lock_client(arg);
    struct store_lease *x = find(c, lease);
    enum tier_lease_state state = look(c->store, x, ret);
    ret->bytes = x->bytes + x->promised;
    ret->stored_bytes = x->stored_bytes;
    pthread_mutex_unlock(&c->store->lock);
    return state;
}

static void end(struct store *st, struct store_lease *x)
{
    ASSERT(x->client && st->lease_count > 0);
    promise(st, x, 0);
    release(st, x->chains);
    *x = (struct store_lease){0};
    st->lease_count--;
}

static void lease_end(void *arg, uint32_t lease)
{
    struct store_client *c = store_lock_client(arg);
    end(c->store, find(c, lease));
    pthread_mutex_unlock(&c->store->lock);
}

void store_lease_end_all(struct store_client *c)
{
    for (uint32_t i = 0; i < STORE_LEASES_MAX; i++)
        if (c->store->leases[i].client == c)
            end(c->store, &c->store->leases[i]);
}

void store_lease_io(struct tier_io *ret)
{
    ASSERT(ret->arg);
    ret->lease_open = lease_open;
    ret->lease_grow = lease_grow;
    ret->lease_hold = lease_hold;
    ret->lease_look = lease_look;
    ret->lease_end = lease_end;
}
