/* holders.c - a list under one lock, which is held for a few loads and stores.
 *
 * An owner is asked under the lock, so it cannot go away during the call. Asking only puts a message, so the
 * lock is held briefly. Waiting for the answer needs neither the lock nor the owner. An orphan has no owner:
 * the asking thread frees it, without the lock, because that may take long. */
#include "reclaim/holders_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "memory/accounts.h"
#include "memory/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WANT_PATIENCE_NS NS_PER_S       /* after that it evicts its own entries, as a single share does */
#define WANT_DENIED_NS   (NS_PER_S / 2) /* after an ask without result, no further ask for this time */

const char *holder_state_name(enum holder_state s)
{
    static const char *const names[] = {"live", "closing", "orphan"};
    ASSERT((size_t)s < COUNT_OF(names));
    return names[s];
}

/* ---- create and free ---- */

int holders_create(const struct holders_opts *opts, struct holders **ret)
{
    ASSERT(opts->ledger);
    struct holders *hs = calloc(1, sizeof(*hs));
    if (!hs)
        return -ENOMEM;
    hs->ledger = opts->ledger;
    hs->next_id = 1;
    list_init(&hs->all);
    pthread_mutex_init(&hs->lock, NULL);
    holders_add_domain(hs, domain_machine(), opts->cache_bytes_max);
    *ret = hs;
    return 0;
}

/* With the lock. */
static struct holder_domain *find_domain(struct holders *hs, const struct domain *domain)
{
    for (uint32_t i = 0; i < hs->domain_count; i++)
        if (hs->domains[i].domain == domain)
            return &hs->domains[i];
    return NULL;
}

void holders_add_domain(struct holders *hs, const struct domain *domain, uint64_t cache_bytes_max)
{
    ASSERT(ledger_root_of(hs->ledger, domain));
    pthread_mutex_lock(&hs->lock);
    ASSERT(hs->domain_count < DOMAINS_MAX);
    ASSERT(!find_domain(hs, domain));
    hs->domains[hs->domain_count++] =
        (struct holder_domain){.domain = domain, .cache_bytes_max = cache_bytes_max};
    pthread_mutex_unlock(&hs->lock);
}

static int free_orphan(struct holder *h, uint64_t *bytes);
static void close_orphans(struct holders *hs, struct holder_domain *d);

/* Ranges that the system did not take back go with the process; they belong to no account. */
static void abandon(struct holder *h)
{
    ASSERT(list_empty(&h->link));
    for (uint32_t i = 0; i < HOLDER_UNITS_MAX; i++)
        if (h->left[i])
            units_abandon(h->left[i]);
    free(h);
}

void holders_free(struct holders *hs)
{
    uint64_t bytes;
    if (!hs)
        return;
    pthread_mutex_lock(&hs->lock);
    LIST_EACH(it, &hs->all) {
        struct holder *h = HOLDER(it);
        ASSERT(h->state == HOLDER_ORPHAN && !h->freeing);
        if (free_orphan(h, &bytes) == 0)
            continue;
        list_remove(&h->link);
        abandon(h);
    }
    for (uint32_t i = 0; i < hs->domain_count; i++) {
        ASSERT(hs->domains[i].share_count == 0);
        close_orphans(hs, &hs->domains[i]);
    }
    pthread_mutex_unlock(&hs->lock);
    pthread_mutex_destroy(&hs->lock);
    free(hs);
}

/* ---- owners ---- */

int holder_add(struct holders *hs, const struct domain *domain, const char *name, struct holder **ret)
{
    struct holder *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->list = hs;
    snprintf(h->name, sizeof(h->name), "%s", name);
    list_init(&h->link);
    pthread_mutex_lock(&hs->lock);
    int r = hs->count < HOLDERS_MAX ? 0 : -ENOSPC;
    if (r == 0) {
        h->id = hs->next_id++;
        h->of = find_domain(hs, domain);
        list_push_back(&hs->all, &h->link);
        hs->count++;
        ASSERT(h->of && h->of->share_count < hs->count);
        h->of->shares[h->of->share_count++] = &h->share;
    }
    pthread_mutex_unlock(&hs->lock);
    if (r < 0)
        free(h);
    else
        *ret = h;
    return r;
}

void holder_open(struct holder *h, const struct holder_ops *ops, void *arg)
{
    pthread_mutex_lock(&h->list->lock);
    ASSERT(!h->ops);
    ASSERT(h->state == HOLDER_LIVE);
    h->ops = ops;
    h->arg = arg;
    pthread_mutex_unlock(&h->list->lock);
}

static uint32_t find_share(const struct holder *h)
{
    uint32_t i = 0;
    while (i < h->of->share_count && h->of->shares[i] != &h->share)
        i++;
    ASSERT(i < h->of->share_count);
    return i;
}

void holder_close(struct holder *h)
{
    if (!h)
        return;
    struct holders *hs = h->list;
    struct holder_domain *d = h->of;
    pthread_mutex_lock(&hs->lock);
    ASSERT(h->state == HOLDER_LIVE);
    h->ops = NULL;
    h->state = HOLDER_CLOSING;
    h->want = WANT_NONE;
    ASSERT(d->share_count > 0);
    d->shares[find_share(h)] = d->shares[d->share_count - 1];
    d->share_count--;
    h->share = (struct cache_share){0};
    pthread_mutex_unlock(&hs->lock);
}

static void strike_off(struct holder *h)
{
    ASSERT(h->list->count > 0);
    ASSERT(h->state != HOLDER_LIVE && !h->freeing);
    list_remove(&h->link);
    h->list->count--;
    free(h);
}

uint64_t holder_left_bytes(const struct holder *h)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < HOLDER_UNITS_MAX; i++)
        if (h->left[i])
            bytes += (uint64_t)units_committed(h->left[i]) * UNIT_BYTES;
    return bytes;
}

/* An orphan's bytes are all free. */
static void note_left(struct holder *h)
{
    ASSERT(h->state == HOLDER_ORPHAN);
    uint64_t bytes = holder_left_bytes(h);
    h->now = (struct holder_numbers){.held_bytes = bytes, .free_bytes = bytes, .reach_bytes = bytes};
}

/* The account that pays for orphans exists as long as they do. Without memory for it the domain's root
 * account pays. */
static struct account *orphans_account(struct holders *hs, struct holder_domain *d)
{
    struct account *root = ledger_root_of(hs->ledger, d->domain);
    if (!d->orphans && accounts_open(root, ACCOUNT_ORPHANS, ACCOUNT_NO_LIMIT, &d->orphans) < 0)
        return root;
    return d->orphans;
}

static void close_orphans(struct holders *hs, struct holder_domain *d)
{
    LIST_EACH(it, &hs->all)
        if (HOLDER(it)->state == HOLDER_ORPHAN && HOLDER(it)->of == d)
            return;
    ASSERT(!d->orphans || account_numbers(d->orphans).used == 0);
    account_close(d->orphans);
    d->orphans = NULL;
}

static void adopt(struct holder *h, struct units *const *left, uint32_t count)
{
    ASSERT(h->state == HOLDER_CLOSING);
    ASSERT(!h->ops);
    struct account *a = orphans_account(h->list, h->of);
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(left[i] && !h->left[i] && units_domain(left[i]) == h->of->domain);
        units_charge_to(left[i], a);
        h->left[i] = left[i];
    }
    h->state = HOLDER_ORPHAN;
    note_left(h);
}

void holder_remove(struct holder *h, struct units *const *left, uint32_t count)
{
    if (!h)
        return;
    struct holders *hs = h->list;
    ASSERT(h->state == HOLDER_CLOSING && count <= HOLDER_UNITS_MAX);
    pthread_mutex_lock(&hs->lock);
    if (count == 0)
        strike_off(h);
    else
        adopt(h, left, count);
    pthread_mutex_unlock(&hs->lock);
}

/* ---- cached bytes ---- */

/* Pokes the holders that were asked. `self` is the caller and needs no poke. */
static void poke_asked(struct holders *hs, const struct holder *self)
{
    LIST_EACH(it, &hs->all)
        if (HOLDER(it) != self && HOLDER(it)->share.asked > 0 && HOLDER(it)->ops)
            HOLDER(it)->ops->poke(HOLDER(it)->arg);
}

static void settle(struct holder *h, uint64_t now_ns)
{
    ASSERT(h->state == HOLDER_LIVE);
    struct holder_domain *d = h->of;
    cache_share_update(d->shares, d->share_count, find_share(h), d->cache_bytes_max, now_ns);
    poke_asked(h->list, h);
}

struct holder_share holder_publish(struct holder *h, const struct holder_numbers *n, uint64_t now_ns)
{
    struct holders *hs = h->list;
    pthread_mutex_lock(&hs->lock);
    h->now = *n;
    ASSERT(n->free_bytes <= n->held_bytes);
    if (h->state == HOLDER_LIVE) {
        struct cache_share *s = &h->share;
        s->cached = n->cached_bytes;
        s->wanted = MAX_OF(n->wanted_bytes, n->cached_bytes);
        s->oldest_ns = n->oldest_ns;
        s->cost_ns_per_mib = n->cost_ns_per_mib;
        settle(h, now_ns);
    }
    struct holder_share share = {h->share.allowed, h->share.asked};
    ASSERT(share.asked_bytes <= n->cached_bytes || h->state != HOLDER_LIVE);
    pthread_mutex_unlock(&hs->lock);
    return share;
}

uint64_t holder_allow(struct holder *h, uint64_t wanted_bytes, uint64_t now_ns)
{
    struct holders *hs = h->list;
    pthread_mutex_lock(&hs->lock);
    if (h->state == HOLDER_LIVE) {
        h->share.wanted = MAX_OF(h->share.wanted, wanted_bytes);
        settle(h, now_ns);
    }
    uint64_t allowed = h->share.allowed;
    pthread_mutex_unlock(&hs->lock);
    return allowed;
}

/* ---- wants ---- */

bool holder_want(struct holder *h, uint64_t bytes, uint64_t now_ns)
{
    ASSERT(bytes > 0);
    struct holders *hs = h->list;
    pthread_mutex_lock(&hs->lock);
    uint64_t since_ns = now_ns - MIN_OF(h->want_ns, now_ns);
    bool waits = h->want == WANT_ASKED || h->want == WANT_TAKEN;
    bool comes = waits && since_ns < WANT_PATIENCE_NS;
    bool denied = h->want == WANT_DENIED && since_ns < WANT_DENIED_NS;
    if (!waits && !denied && hs->wanted && h->state == HOLDER_LIVE) {
        h->want = WANT_ASKED;
        h->want_bytes = bytes;
        h->want_ns = now_ns;
        hs->wanted(hs->wanted_arg);
        comes = true;
    }
    pthread_mutex_unlock(&hs->lock);
    return comes;
}

void holders_listen(struct holders *hs, void (*wanted)(void *arg), void *arg)
{
    pthread_mutex_lock(&hs->lock);
    hs->wanted = wanted;
    hs->wanted_arg = arg;
    pthread_mutex_unlock(&hs->lock);
}

bool holders_next_want(struct holders *hs, struct holder_want *ret)
{
    struct holder *first = NULL;
    pthread_mutex_lock(&hs->lock);
    LIST_EACH(it, &hs->all)
        if (HOLDER(it)->want == WANT_ASKED && (!first || HOLDER(it)->want_ns < first->want_ns))
            first = HOLDER(it);
    if (first) {
        ASSERT(first->want_bytes > 0);
        ASSERT(first->state == HOLDER_LIVE);
        first->want = WANT_TAKEN;
        *ret = (struct holder_want){first->id, first->want_bytes, first->of->domain};
        memcpy(ret->name, first->name, sizeof(ret->name));
    }
    pthread_mutex_unlock(&hs->lock);
    return first != NULL;
}

static struct holder *find(struct holders *hs, uint64_t id)
{
    LIST_EACH(it, &hs->all)
        if (HOLDER(it)->id == id)
            return HOLDER(it);
    return NULL;
}

void holders_helped(struct holders *hs, uint64_t id, uint64_t bytes)
{
    pthread_mutex_lock(&hs->lock);
    struct holder *h = find(hs, id);
    if (h && h->want == WANT_TAKEN) {
        h->want = bytes > 0 ? WANT_NONE : WANT_DENIED;
        ASSERT(h->ops);
        h->ops->poke(h->arg);
    }
    pthread_mutex_unlock(&hs->lock);
}

/* ---- walking ---- */

uint32_t holders_list(struct holders *hs, struct holder_info *ret, uint32_t max)
{
    uint32_t count = 0;
    pthread_mutex_lock(&hs->lock);
    LIST_EACH(it, &hs->all) {
        const struct holder *h = HOLDER(it);
        if (count < max) {
            ret[count] = (struct holder_info){.id = h->id,
                                              .domain = h->of->domain,
                                              .state = h->state,
                                              .now = h->now,
                                              .allowed_bytes = h->share.allowed};
            snprintf(ret[count].name, sizeof(ret[count].name), "%s", h->name);
        }
        count++;
    }
    ASSERT(count == hs->count);
    pthread_mutex_unlock(&hs->lock);
    return count;
}

static bool is_of(const struct holder_domain *d, const struct domain *domain)
{
    return !domain || d->domain == domain;
}

/* The sum of budgets, unless one of them is without a limit. */
static uint64_t sum_budgets(const struct holders *hs, const struct domain *domain)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < hs->domain_count; i++)
        if (is_of(&hs->domains[i], domain))
            sum += MIN_OF(hs->domains[i].cache_bytes_max, UINT64_MAX - sum);
    return sum;
}

void holders_numbers(struct holders *hs, const struct domain *domain, struct holders_numbers *ret)
{
    struct holders_numbers n = {0};
    pthread_mutex_lock(&hs->lock);
    n.cache_bytes_max = sum_budgets(hs, domain);
    LIST_EACH(it, &hs->all) {
        const struct holder *h = HOLDER(it);
        if (!is_of(h->of, domain))
            continue;
        bool orphan = h->state == HOLDER_ORPHAN;
        n.count++;
        n.orphans += orphan;
        n.orphan_bytes += orphan ? h->now.held_bytes : 0;
        n.cached_bytes += h->now.cached_bytes;
        n.allowed_bytes += h->share.allowed;
    }
    ASSERT(n.count <= hs->count);
    ASSERT(n.orphans <= n.count);
    pthread_mutex_unlock(&hs->lock);
    *ret = n;
}

static bool is_among(uint64_t id, const uint64_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

bool holders_stalest(struct holders *hs, const struct domain *domain, const uint64_t *except,
                     uint32_t except_count, uint64_t now_ns, uint64_t *id, uint64_t *before_ns)
{
    const struct holder *first = NULL, *second = NULL;
    pthread_mutex_lock(&hs->lock);
    LIST_EACH(it, &hs->all) {
        const struct holder *h = HOLDER(it);
        if (h->of->domain != domain || h->share.oldest_ns == 0 || is_among(h->id, except, except_count))
            continue;
        if (!first || cache_share_is_staler(&h->share, &first->share, now_ns)) {
            second = first;
            first = h;
        } else if (!second || cache_share_is_staler(&h->share, &second->share, now_ns)) {
            second = h;
        }
    }
    if (first) {
        *id = first->id;
        *before_ns = second ? cache_share_older_than(&first->share, &second->share, now_ns) : UINT64_MAX;
        /* At least the oldest entry, whatever rounding gives. */
        *before_ns = MAX_OF(*before_ns, first->share.oldest_ns + 1);
        ASSERT(*before_ns > first->share.oldest_ns);
    }
    pthread_mutex_unlock(&hs->lock);
    return first != NULL;
}

/* ---- asking ---- */

/* With the lock, which it releases while it frees. 0: the orphan is removed from the list. */
static int free_orphan(struct holder *h, uint64_t *bytes)
{
    struct holders *hs = h->list;
    uint64_t before = holder_left_bytes(h);
    int failed = 0;
    *bytes = 0;
    if (h->freeing)
        return -EAGAIN;
    h->freeing = true;
    pthread_mutex_unlock(&hs->lock);
    for (uint32_t i = 0; i < HOLDER_UNITS_MAX; i++) {
        int r = units_free(h->left[i]);
        if (r == 0)
            h->left[i] = NULL;
        failed = failed ? failed : r;
    }
    ASSERT(holder_left_bytes(h) <= before);
    *bytes = before - holder_left_bytes(h);
    pthread_mutex_lock(&hs->lock);
    h->freeing = false;
    ASSERT(h->state == HOLDER_ORPHAN);
    note_left(h);
    if (failed == 0) {
        struct holder_domain *d = h->of;
        strike_off(h);
        close_orphans(hs, d);
    }
    return failed;
}

/* With the lock. */
static int ask(struct holder *h, struct holder_ask *a)
{
    ASSERT(h->state != HOLDER_ORPHAN || !h->ops);
    if (h->state == HOLDER_ORPHAN) {
        int r = free_orphan(h, &a->answer.bytes);
        holder_ask_done(a);
        return r;
    }
    int r = h->ops ? h->ops->ask(h->arg, a) : -EPIPE;
    if (r < 0)
        holder_ask_done(a);
    return r;
}

/* As `holders_ask()`, but the ask stays valid after a failure, with the partial answer; NULL: no memory. */
static int ask_by_id(struct holders *hs, uint64_t id, struct holder_ask *a)
{
    pthread_mutex_lock(&hs->lock);
    struct holder *h = find(hs, id);
    int r = h ? ask(h, a) : -ENOENT;
    pthread_mutex_unlock(&hs->lock);
    if (!h)
        holder_ask_done(a);
    return r;
}

int holders_ask(struct holders *hs, uint64_t id, enum holder_ask_kind kind, uint64_t bytes,
                uint64_t before_ns, const char *name, struct holder_ask **ret)
{
    struct holder_answer none;
    struct holder_ask *a = holder_ask_create(kind, bytes, before_ns);
    if (!a)
        return -ENOMEM;
    a->whom = name ? hash_bytes(name, strlen(name)) : 0;
    int r = ask_by_id(hs, id, a);
    if (r < 0)
        (void)holder_ask_wait(a, UINT64_MAX, &none);
    else
        *ret = a;
    return r;
}

static void fail(struct holders_reclaimed *ret, const struct holder_info *h, int error)
{
    ASSERT(ret->failed < HOLDERS_MAX);
    ASSERT(error < 0);
    snprintf(ret->failures[ret->failed].name, HOLDER_NAME_MAX, "%s", h->name);
    ret->failures[ret->failed++].error = error;
}

/* As `holders_list()`, but those of `domain` alone; NULL: all. */
static uint32_t list_domain(struct holders *hs, const struct domain *domain,
                            struct holder_info ret[HOLDERS_MAX])
{
    uint32_t all = holders_list(hs, ret, HOLDERS_MAX), count = 0;
    for (uint32_t i = 0; i < all; i++)
        if (!domain || ret[i].domain == domain)
            ret[count++] = ret[i];
    return count;
}

void holders_reclaim(struct holders *hs, const struct domain *domain, enum holder_ask_kind kind,
                     uint64_t timeout_ns, struct holders_reclaimed *ret)
{
    struct holder_info all[HOLDERS_MAX];
    struct holder_ask *asks[HOLDERS_MAX];
    int errors[HOLDERS_MAX];
    uint32_t count = list_domain(hs, domain, all);
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    *ret = (struct holders_reclaimed){0};
    ASSERT(count <= HOLDERS_MAX);
    /* All holders are asked before the first wait: they work at the same time. */
    for (uint32_t i = 0; i < count; i++) {
        asks[i] = holder_ask_create(kind, 0, 0);
        errors[i] = asks[i] ? ask_by_id(hs, all[i].id, asks[i]) : -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct holder_answer answer = {0};
        int r = asks[i] ? holder_ask_wait(asks[i], deadline_ns, &answer) : 0;
        ret->entries += answer.entries;
        ret->bytes += answer.bytes;
        r = errors[i] < 0 ? errors[i] : r;
        /* A holder that is gone has given back everything. */
        if (r < 0 && r != -ENOENT)
            fail(ret, &all[i], r);
    }
}
