/* embedding_cache.c - a short table with linear search.
 *
 * An image is looked up once when its sequence reaches it, and encoding takes a thousand times as long as
 * the search. Recency is a number per entry, for the same reason. */
#include "engine/embedding_cache.h"

#include "base/check.h"
#include "base/none.h"
#include "memory/domain.h"
#include "memory/ledger.h"

#include <errno.h>

#define GRAIN          ((size_t)4096)
#define PIECE_BYTES    UNIT_SMALL_BYTES
#define DECOMMIT_BYTES ((uint64_t)4 << 20) /* at once: the system's lock on the address space is held */

enum state { FREE, FILLING, WHOLE };

struct entry {
    struct embedding_cache_key key;
    enum state state;
    uint32_t refs;
    uint64_t used; /* embedding_cache.uses at its last release */
    dev_ptr base;  /* null: free */
    uint64_t bytes, committed;
};

struct embedding_cache {
    struct embedding_cache_opts opts;
    struct entry *entries; /* [EMBEDDING_CACHE_ENTRIES_MAX] */
    uint32_t end;          /* entries from here on are not in use */
    uint32_t count, unused;
    uint64_t bytes, unused_bytes, uses, evicted;
};

_Static_assert(sizeof(struct entry) <= 144, "embedding_cache.h says how many bytes an entry takes");

size_t embedding_cache_arena_bytes(void)
{
    return sizeof(struct embedding_cache) + EMBEDDING_CACHE_ENTRIES_MAX * sizeof(struct entry) + 256;
}

int embedding_cache_create(struct arena *a, const struct embedding_cache_opts *opts,
                           struct embedding_cache **ret)
{
    struct embedding_cache *g = ARENA_NEW(a, struct embedding_cache);
    if (!g)
        return -ENOMEM;
    *g = (struct embedding_cache){.opts = *opts,
                                  .entries = ARENA_ARRAY(a, struct entry, EMBEDDING_CACHE_ENTRIES_MAX)};
    if (!g->entries)
        return -ENOMEM;
    *ret = g;
    return 0;
}

uint64_t embedding_cache_entry_bytes(size_t token_bytes, uint64_t tokens)
{
    return ROUND_UP(token_bytes * tokens, (uint64_t)GRAIN);
}

/* ---- entries ---- */

static bool is_unused(const struct entry *e)
{
    return e->state == WHOLE && e->refs == 0;
}

static uint64_t range_bytes(const struct entry *e)
{
    return ROUND_UP(e->bytes, (uint64_t)UNIT_SMALL_BYTES);
}

/* A range that the domain does not take back stays until the process ends. */
static void give_up_bytes(struct embedding_cache *g, struct entry *e)
{
    const struct domain *d = account_domain(g->opts.account);
    for (uint64_t at = 0; at < e->committed; at += DECOMMIT_BYTES)
        (void)domain_decommit(d, dev_add(e->base, at), MIN_OF(DECOMMIT_BYTES, e->committed - at));
    (void)domain_release(d, e->base, range_bytes(e));
    account_unuse(g->opts.account, e->committed);
    account_release(g->opts.account, e->bytes);
}

static void drop(struct embedding_cache *g, struct entry *e)
{
    ASSERT(g->count > 0 && g->bytes >= e->bytes);
    give_up_bytes(g, e);
    g->bytes -= e->bytes;
    g->count--;
    *e = (struct entry){0};
    while (g->end > 0 && g->entries[g->end - 1].state == FREE)
        g->end--;
}

static struct entry *find_stalest(struct embedding_cache *g)
{
    struct entry *stalest = NULL;
    for (uint32_t i = 0; i < g->end; i++) {
        struct entry *e = &g->entries[i];
        if (is_unused(e) && (!stalest || e->used < stalest->used))
            stalest = e;
    }
    return stalest;
}

uint64_t embedding_cache_evict(struct embedding_cache *g)
{
    struct entry *e = g->unused > 0 ? find_stalest(g) : NULL;
    if (!e)
        return 0;
    uint64_t bytes = e->bytes;
    ASSERT(g->unused_bytes >= bytes);
    g->unused--;
    g->unused_bytes -= bytes;
    g->evicted++;
    drop(g, e);
    return bytes;
}

void embedding_cache_done(struct embedding_cache *g)
{
    while (g && embedding_cache_evict(g) > 0)
        ;
    ASSERT(!g || g->count == 0);
}

uint32_t embedding_cache_find(const struct embedding_cache *g, const struct embedding_cache_key *key)
{
    for (uint32_t i = 0; i < g->end; i++)
        if (g->entries[i].state == WHOLE && embedding_cache_key_eq(&g->entries[i].key, key))
            return i;
    return NONE;
}

/* ---- filling ---- */

static uint32_t free_entry(const struct embedding_cache *g)
{
    for (uint32_t i = 0; i < EMBEDDING_CACHE_ENTRIES_MAX; i++)
        if (g->entries[i].state == FREE)
            return i;
    return NONE;
}

static bool has_room(const struct embedding_cache *g, uint64_t bytes)
{
    ASSERT(g->bytes <= g->opts.bytes_max);
    return g->count < EMBEDDING_CACHE_ENTRIES_MAX && bytes <= g->opts.bytes_max - g->bytes;
}

/* With the bytes reserved. */
static int map(struct embedding_cache *g, const struct embedding_cache_key *key, uint64_t bytes,
               uint32_t *ret)
{
    struct entry e = {.key = *key, .state = FILLING, .refs = 1, .bytes = bytes};
    if (domain_reserve(account_domain(g->opts.account), range_bytes(&e), true, &e.base) < 0)
        return -ENOMEM;
    uint32_t index = free_entry(g);
    ASSERT(index != NONE);
    g->entries[index] = e;
    g->end = MAX_OF(g->end, index + 1);
    g->bytes += bytes;
    g->count++;
    *ret = index;
    return 0;
}

int embedding_cache_begin(struct embedding_cache *g, const struct embedding_cache_key *key, uint32_t *ret)
{
    uint64_t bytes = embedding_cache_entry_bytes(g->opts.token_bytes, (uint64_t)key->rows * key->columns);
    ASSERT(bytes <= g->opts.bytes_max);
    while (!has_room(g, bytes))
        if (embedding_cache_evict(g) == 0)
            return -EAGAIN;
    while (account_reserve(g->opts.account, bytes) < 0)
        if (embedding_cache_evict(g) == 0)
            return -ENOMEM;
    int r = map(g, key, bytes, ret);
    if (r < 0)
        account_release(g->opts.account, bytes);
    return r;
}

int embedding_cache_commit(struct embedding_cache *g, uint32_t index)
{
    struct entry *e = &g->entries[index];
    ASSERT(e->state == FILLING);
    uint64_t piece = MIN_OF(PIECE_BYTES, e->bytes - e->committed);
    const struct domain *d = account_domain(g->opts.account);
    if (piece > 0 && domain_commit(d, dev_add(e->base, e->committed), piece) < 0)
        return -ENOBUFS;
    account_use(g->opts.account, piece);
    e->committed += piece;
    return e->committed < e->bytes;
}

void embedding_cache_finish(struct embedding_cache *g, uint32_t index)
{
    struct entry *e = &g->entries[index];
    ASSERT(e->state == FILLING && e->committed == e->bytes);
    e->state = WHOLE;
}

void embedding_cache_abandon(struct embedding_cache *g, uint32_t index)
{
    struct entry *e = &g->entries[index];
    ASSERT(e->state == FILLING && e->refs == 1);
    drop(g, e);
}

/* ---- using ---- */

dev_ptr embedding_cache_features(const struct embedding_cache *g, uint32_t index)
{
    ASSERT(index < g->end && g->entries[index].state != FREE);
    return g->entries[index].base;
}

void embedding_cache_ref(struct embedding_cache *g, uint32_t index)
{
    struct entry *e = &g->entries[index];
    ASSERT(index < g->end && e->state == WHOLE);
    if (e->refs++ == 0) {
        g->unused--;
        g->unused_bytes -= e->bytes;
    }
}

void embedding_cache_unref(struct embedding_cache *g, uint32_t index)
{
    struct entry *e = &g->entries[index];
    ASSERT(index < g->end && e->state == WHOLE && e->refs > 0);
    if (--e->refs > 0)
        return;
    e->used = ++g->uses;
    g->unused++;
    g->unused_bytes += e->bytes;
    while (g->unused_bytes > g->opts.keep_bytes)
        embedding_cache_evict(g);
}

/* ---- looking ---- */

void embedding_cache_numbers(const struct embedding_cache *g, struct embedding_cache_numbers *ret)
{
    *ret = (struct embedding_cache_numbers){.entries = g->count,
                                            .unused = g->unused,
                                            .bytes = g->bytes,
                                            .unused_bytes = g->unused_bytes,
                                            .bytes_max = g->opts.bytes_max,
                                            .evicted = g->evicted};
}

/* Entries by the first bits of their image's hash, so that each key is compared with few others. */
#define CHAINS 1024

struct chains {
    uint16_t head[CHAINS], next[EMBEDDING_CACHE_ENTRIES_MAX]; /* index + 1; 0: the end */
};

_Static_assert(EMBEDDING_CACHE_ENTRIES_MAX < UINT16_MAX, "an index fits");

/* No whole entry before it has its key. */
static void check_key(const struct embedding_cache *g, uint32_t i, struct chains *c)
{
    const struct embedding_cache_key *key = &g->entries[i].key;
    uint16_t *head = &c->head[(key->sha256[0] | key->sha256[1] << 8) % CHAINS];
    for (uint32_t k = *head; k > 0; k = c->next[k - 1])
        ASSERT_OF(!embedding_cache_key_eq(&g->entries[k - 1].key, key), "image entries %u and %u: one key",
                  k - 1, i);
    c->next[i] = *head;
    *head = (uint16_t)(i + 1);
}

static void check_entry(const struct embedding_cache *g, uint32_t i)
{
    const struct entry *e = &g->entries[i];
    ASSERT_OF(e->state == FREE || i < g->end, "image entry %u: in use after the end %u", i, g->end);
    ASSERT_OF(e->state != FILLING || e->refs == 1, "image entry %u: being filled, %u references", i, e->refs);
    ASSERT_OF(e->state != FREE || (e->refs == 0 && dev_is_null(e->base) && e->bytes == 0),
              "image entry %u: free, %u references", i, e->refs);
    ASSERT_OF(e->committed <= e->bytes && (e->state != WHOLE || e->committed == e->bytes),
              "image entry %u: %llu of %llu bytes are committed", i, (ull)e->committed, (ull)e->bytes);
}

void embedding_cache_check(const struct embedding_cache *g)
{
    struct chains chains;
    uint32_t count = 0, unused = 0;
    uint64_t bytes = 0, unused_bytes = 0, committed = 0;
    memset(chains.head, 0, sizeof(chains.head));
    for (uint32_t i = 0; i < EMBEDDING_CACHE_ENTRIES_MAX; i++) {
        const struct entry *e = &g->entries[i];
        check_entry(g, i);
        if (e->state == WHOLE)
            check_key(g, i, &chains);
        count += e->state != FREE;
        bytes += e->bytes;
        committed += e->committed;
        unused += is_unused(e);
        unused_bytes += is_unused(e) ? e->bytes : 0;
    }
    ASSERT_OF(count == g->count && bytes == g->bytes, "%u image entries of %llu bytes, %u of %llu counted",
              count, (ull)bytes, g->count, (ull)g->bytes);
    ASSERT_OF(unused == g->unused && unused_bytes == g->unused_bytes,
              "%u image entries are unused, %u counted", unused, g->unused);
    ASSERT(bytes <= g->opts.bytes_max && unused_bytes <= g->opts.keep_bytes);
    struct account_numbers n = account_numbers(g->opts.account);
    ASSERT_OF(n.reserved >= bytes && n.used >= committed,
              "account %s: %llu bytes reserved, image entries have %llu", n.name, (ull)n.reserved,
              (ull)bytes);
}
