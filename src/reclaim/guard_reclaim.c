/* guard_reclaim.c - the loop of one request for room: look, take the next thing, try again.
 *
 * The need is read from the ledger before each step instead of summing the answers, because others take
 * and give meanwhile. */
#include "reclaim/guard_state.h"
#include "reclaim/reclaim_order.h"

#include "base/check.h"
#include "base/slice.h"
#include "memory/domain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct making {
    struct guard *g;
    const struct guard_wish *w;
    struct reclaim_order order;
    struct guard_silent silent;
    const struct domain *domain; /* whose ceiling binds, as the last figures say */
    uint32_t idle_failures;      /* times that idle models gave nothing: they were too few, or taken into use
                               meanwhile */
    uint32_t surprises;          /* it should have fitted, and did not */
};

#define SURPRISES_MAX     8
#define IDLE_FAILURES_MAX 3

static int try_again(const struct guard_wish *w)
{
    struct account_numbers n;
    if (w->take)
        return w->take(w->arg);
    return account_refuses(w->account, w->bytes, &n) ? -ENOMEM : 0;
}

static uint64_t idle_bytes(struct guard *g, const struct domain *domain)
{
    return g->models.idle_bytes ? g->models.idle_bytes(g->models.arg, domain) : 0;
}

static uint64_t lacks(const struct guard_wish *w)
{
    return w->lacks ? w->lacks(w->arg) : 0;
}

/* Memory within the floors of accounts counts, too: it goes back to the driver as any other. */
static void add_others(struct making *m, struct reclaim_figures *ret)
{
    struct guard_count count;
    ret->needed_bytes = lacks(m->w);
    if (ret->needed_bytes == 0)
        return;
    m->domain = account_domain(m->w->account);
    count = guard_count(m->g, m->domain, &m->silent);
    ret->free_bytes = count.free_bytes;
    ret->cached_bytes = count.cached_bytes;
    ret->reach_bytes = count.free_bytes + count.cached_bytes;
    ret->idle_bytes = m->idle_failures < IDLE_FAILURES_MAX ? idle_bytes(m->g, m->domain) : 0;
}

static void read_figures(struct making *m, struct reclaim_figures *ret)
{
    struct account_numbers n;
    *ret = (struct reclaim_figures){0};
    if (!account_refuses(m->w->account, m->w->bytes, &n)) {
        add_others(m, ret);
        return;
    }
    m->domain = n.domain;
    ret->own_limit = !n.is_root;
    ret->needed_bytes = MIN_OF(n.reserved + m->w->bytes - n.limit, m->w->bytes);
    guard_pass_over_floors(m->g, &m->silent);
    struct guard_count count = guard_count(m->g, n.domain, &m->silent);
    ret->free_bytes = count.free_bytes;
    ret->cached_bytes = count.cached_bytes;
    ret->reach_bytes = count.reach_bytes;
    ret->idle_bytes = m->idle_failures < IDLE_FAILURES_MAX ? idle_bytes(m->g, n.domain) : 0;
}

/* ---- the refusal ---- */

static void explain(const struct guard_refusal *r, const char *name, bool own_limit, char *ret,
                    size_t bytes_max)
{
    if (own_limit) {
        snprintf(ret, bytes_max,
                 "There is no memory to load %s: with its %llu bytes the account %s would hold %llu, and its "
                 "limit is %llu. Releasing memory of other models does not help.",
                 name, (ull)r->wanted_bytes, r->binding, (ull)r->projected_bytes, (ull)r->ceiling_bytes);
        return;
    }
    char holder[DOMAIN_HOLDER_BYTES];
    snprintf(ret, bytes_max,
             "There is no memory to load %.100s: with its %llu bytes %s would hold %llu, and its "
             "ceiling is %llu. It holds %llu now. Of that %llu can be released (free units %llu, caches "
             "%llu, idle models %llu); the rest belongs to models that are busy, pinned or hold sessions or "
             "agents, and to the server itself. Unload or unpin a model, or raise %s.",
             name, (ull)r->wanted_bytes, domain_holder(r->domain, holder), (ull)r->projected_bytes,
             (ull)r->ceiling_bytes, (ull)r->current_bytes,
             (ull)(r->free_bytes + r->cached_bytes + r->idle_bytes), (ull)r->free_bytes, (ull)r->cached_bytes,
             (ull)r->idle_bytes, domain_limit_option(r->domain));
}

static void refuse(struct making *m, struct guard_refusal *ret)
{
    const struct guard_wish *w = m->w;
    struct account_numbers n = account_numbers(account_root(w->account));
    bool own_limit = account_refuses(w->account, w->bytes, &n) && !n.is_root;
    struct guard_refusal r = {.domain = n.domain,
                              .projected_bytes = n.reserved + w->bytes,
                              .ceiling_bytes = n.limit,
                              .current_bytes = n.reserved,
                              .wanted_bytes = w->bytes,
                              .idle_bytes = idle_bytes(m->g, n.domain)};
    struct guard_count count = guard_count(m->g, n.domain, NULL);
    r.free_bytes = count.free_bytes;
    r.cached_bytes = count.cached_bytes;
    snprintf(r.binding, sizeof(r.binding), "%s", n.name);
    explain(&r, w->name, own_limit, r.text, sizeof(r.text));
    *ret = r;
}

/* ---- steps ---- */

static void take(struct making *m, enum reclaim_step step, uint64_t needed)
{
    switch (step) {
    case RECLAIM_FREE:
        guard_take_free(m->g, m->domain, 0, needed);
        break;
    case RECLAIM_CACHED:
        guard_take_cached(m->g, m->domain, &m->silent, needed, m->w->name);
        break;
    case RECLAIM_IDLE:
        m->idle_failures += guard_take_idle_locked(m->g, m->domain, m->w->bytes, m->w->name) == 0;
        break;
    case RECLAIM_FITS:
    case RECLAIM_NONE:
        break;
    }
}

static int make(struct making *m, struct guard_refusal *ret)
{
    const struct guard_wish *w = m->w;
    int r = try_again(w);
    while (r == -ENOMEM) {
        struct reclaim_figures l;
        if (w->cancelled && w->cancelled(w->arg))
            return -ECANCELED;
        read_figures(m, &l);
        enum reclaim_step step = reclaim_order_next(&m->order, &l);
        m->surprises += step == RECLAIM_FITS;
        if (step == RECLAIM_NONE || m->surprises == SURPRISES_MAX)
            break;
        take(m, step, l.needed_bytes);
        r = try_again(w);
    }
    if (r == -ENOMEM)
        refuse(m, ret);
    return r;
}

static int make_once(struct guard *g, const struct guard_wish *w, struct guard_refusal *ret)
{
    struct making m = {.g = g, .w = w, .domain = account_domain(w->account)};
    pthread_mutex_lock(&g->room);
    int r = make(&m, ret);
    pthread_mutex_unlock(&g->room);
    return r;
}

int guard_reclaim(struct guard *g, const struct guard_wish *w, struct guard_refusal *ret)
{
    int r = make_once(g, w, ret);
    while (r == -ENOMEM && w->waits && w->waits(w->arg, ret))
        r = make_once(g, w, ret);
    atomic_fetch_add(r == 0 ? &g->rooms_made : &g->rooms_refused, 1);
    return r;
}
