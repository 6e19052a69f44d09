/* holders_check.c - what must hold of the list and of every holder between any two calls. */
#include "reclaim/holders_state.h"

#include "base/check.h"

typedef unsigned long long ull;

/* How often the budget counts its share: once if the holder is live, else never. */
static uint32_t count_share(const struct holder *h)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < h->of->share_count; i++)
        count += h->of->shares[i] == &h->share;
    return count;
}

static void check_live(const struct holder *h)
{
    const struct cache_share *s = &h->share;
    ASSERT_OF(s->cached == h->now.cached_bytes, "holder %s: %llu bytes cached, %llu of them in its share",
              h->name, (ull)h->now.cached_bytes, (ull)s->cached);
    ASSERT_OF(s->cached <= s->wanted, "holder %s: %llu bytes cached, %llu wanted", h->name, (ull)s->cached,
              (ull)s->wanted);
    ASSERT_OF(s->cached <= s->allowed, "holder %s: %llu bytes cached, %llu allowed", h->name, (ull)s->cached,
              (ull)s->allowed);
    ASSERT_OF(s->asked <= s->cached, "holder %s: %llu bytes cached, %llu are to be evicted", h->name,
              (ull)s->cached, (ull)s->asked);
}

/* It is closing or an orphan: it has no owner. */
static void check_closed(const struct holder *h)
{
    const char *state = holder_state_name(h->state);
    ASSERT_OF(!h->ops, "holder %s: %s, and it can be asked", h->name, state);
    ASSERT_OF(h->want == WANT_NONE, "holder %s: %s, and it wants memory", h->name, state);
    ASSERT_OF(h->share.allowed == 0 && h->share.cached == 0, "holder %s: %s, %llu bytes cached, %llu allowed",
              h->name, state, (ull)h->share.cached, (ull)h->share.allowed);
}

static uint32_t left_ranges(const struct holder *h)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < HOLDER_UNITS_MAX; i++)
        count += h->left[i] != NULL;
    return count;
}

/* The thread that frees an orphan changes its ranges without the lock. */
static void check_orphan(const struct holder *h)
{
    if (h->freeing)
        return;
    uint64_t bytes = holder_left_bytes(h);
    ASSERT_OF(left_ranges(h) > 0, "holder %s: an orphan without a range", h->name);
    ASSERT_OF(h->now.held_bytes == bytes && h->now.free_bytes == bytes,
              "holder %s: an orphan's ranges have %llu bytes, %llu held and %llu free", h->name, (ull)bytes,
              (ull)h->now.held_bytes, (ull)h->now.free_bytes);
}

static void check_holder(const struct holders *hs, const struct holder *h)
{
    bool live = h->state == HOLDER_LIVE, orphan = h->state == HOLDER_ORPHAN;
    ASSERT_OF(h->list == hs && h->state <= HOLDER_ORPHAN, "holder %s: state %d", h->name, (int)h->state);
    ASSERT_OF(h->of >= hs->domains && h->of < hs->domains + hs->domain_count,
              "holder %s: its domain is not listed", h->name);
    ASSERT_OF(h->id > 0 && h->id < hs->next_id, "holder %s: number %llu, and the next is %llu", h->name,
              (ull)h->id, (ull)hs->next_id);
    ASSERT_OF(count_share(h) == live, "holder %s: %s, and the budget counts its share %u times", h->name,
              holder_state_name(h->state), count_share(h));
    ASSERT_OF(h->now.free_bytes <= h->now.held_bytes, "holder %s: %llu bytes held, %llu of them free",
              h->name, (ull)h->now.held_bytes, (ull)h->now.free_bytes);
    ASSERT_OF(h->want == WANT_NONE || h->want_bytes > 0, "holder %s: wants no bytes", h->name);
    ASSERT_OF(orphan || (!h->freeing && left_ranges(h) == 0), "holder %s: %s, and has an orphan's ranges",
              h->name, holder_state_name(h->state));
    if (live)
        check_live(h);
    else
        check_closed(h);
    if (orphan)
        check_orphan(h);
}

/* Sums of the holders of one domain. */
struct sums {
    uint32_t live, orphans;
    uint64_t allowed, orphan_bytes;
    bool freeing;
};

static void add_up(struct sums *s, const struct holder *h)
{
    bool orphan = h->state == HOLDER_ORPHAN;
    s->live += h->state == HOLDER_LIVE;
    s->allowed += h->share.allowed;
    s->orphans += orphan;
    s->orphan_bytes += orphan ? h->now.held_bytes : 0;
    s->freeing |= h->freeing;
}

/* Ranges whose account could not be opened are charged to the domain's root: the account may have less. */
static void check_orphans_account(const struct holder_domain *d, const struct sums *s)
{
    if (!d->orphans)
        return;
    ASSERT(account_domain(d->orphans) == d->domain);
    uint64_t used = account_numbers(d->orphans).used;
    ASSERT_OF(s->orphans > 0, "account orphans: %llu bytes used, and no holder is an orphan", (ull)used);
    ASSERT_OF(s->freeing || used <= s->orphan_bytes, "account orphans: %llu bytes used, orphans have %llu",
              (ull)used, (ull)s->orphan_bytes);
}

static void check_sums(const struct holder_domain *d, const struct sums *s)
{
    ASSERT_OF(s->live == d->share_count, "%s: %u live holders, %u shares of the budget", d->domain->name,
              s->live, d->share_count);
    ASSERT_OF(s->allowed <= d->cache_bytes_max, "%s: holders may cache %llu bytes, the budget is %llu",
              d->domain->name, (ull)s->allowed, (ull)d->cache_bytes_max);
    check_orphans_account(d, s);
}

void holders_check(struct holders *hs)
{
    struct sums sums[DOMAINS_MAX] = {0};
    uint32_t count = 0;
    pthread_mutex_lock(&hs->lock);
    for (const struct list *it = hs->all.next, *before = &hs->all; it != &hs->all;
         before = it, it = it->next) {
        const struct holder *h = HOLDER(it);
        ASSERT_OF(it->prev == before, "holder %s: is not linked with the one before it", h->name);
        ASSERT_OF(before == &hs->all || h->id > HOLDER(before)->id,
                  "holder %s: number %llu is not above that of the one before it", h->name, (ull)h->id);
        check_holder(hs, h);
        add_up(&sums[h->of - hs->domains], h);
        count++;
    }
    ASSERT_OF(count == hs->count && count <= HOLDERS_MAX, "%u holders, %u counted", count, hs->count);
    for (uint32_t i = 0; i < hs->domain_count; i++)
        check_sums(&hs->domains[i], &sums[i]);
    pthread_mutex_unlock(&hs->lock);
}
