/* leases.c - one table of sessions and wishes, searched as a whole: it is small, and a search happens once a
 * request.
 *
 * Nodes at which leases end are marked in the index, so a walk up a chain finds the leases that continue
 * there without asking the table at each node. */
#include "cache/leases.h"

#include "cache/prefix_lease.h"
#include "cache/share_list.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/none.h"
#include "base/page_tokens.h"

#include <errno.h>
#include <string.h>

enum kind { FREE, SESSION, WISH };

struct lease {
    enum kind kind;
    bool follows;
    uint32_t node; /* NONE: a session without a prefix yet */
    struct lease_id id;
    uint64_t tenant, deadline_ns;
    uint64_t promised; /* bytes of a session that are not held yet */
    uint64_t bytes;    /* bytes of its prefix, as it was taken */
};

struct leases {
    struct leases_opts opts;
    struct lease *list; /* [count_max] */
    uint32_t end;       /* none from here on is in use */
    uint64_t promised_of[CACHE_SHARES], wished_of[CACHE_SHARES];
    struct lease_numbers now;
};

size_t leases_arena_bytes(uint32_t count_max)
{
    return sizeof(struct leases) + count_max * sizeof(struct lease) + 2 * (size_t)64;
}

int leases_create(struct arena *a, const struct leases_opts *opts, struct leases **ret)
{
    ASSERT(opts->index && opts->count_max > 0);
    struct leases *l = ARENA_NEW(a, struct leases);
    if (!l)
        return -ENOMEM;
    l->opts = *opts;
    l->now.count_max = opts->count_max;
    l->now.bytes_max = opts->bytes_max;
    l->list = ARENA_ARRAY(a, struct lease, opts->count_max);
    if (!l->list)
        return -ENOMEM;
    *ret = l;
    return 0;
}

/* ---- the table ---- */

static struct lease *find(const struct leases *l, const struct lease_id *id)
{
    ASSERT(l->end <= l->opts.count_max);
    for (uint32_t i = 0; i < l->end; i++)
        if (l->list[i].kind == SESSION && memcmp(&l->list[i].id, id, sizeof(*id)) == 0)
            return &l->list[i];
    return NULL;
}

static struct lease *find_of(const struct leases *l, const struct lease_id *id, uint64_t tenant)
{
    struct lease *x = find(l, id);
    ASSERT(!x || x->kind == SESSION);
    return x && x->tenant == tenant ? x : NULL;
}

/* A lease of this kind and tenant that ends at the node. */
static struct lease *find_at(const struct leases *l, enum kind kind, uint64_t tenant, uint32_t node)
{
    ASSERT(kind != FREE && node != NONE);
    for (uint32_t i = 0; i < l->end; i++) {
        struct lease *x = &l->list[i];
        if (x->kind == kind && x->node == node && x->tenant == tenant)
            return x;
    }
    return NULL;
}

static bool ends_at(const struct leases *l, uint32_t node)
{
    ASSERT(node != NONE);
    for (uint32_t i = 0; i < l->end; i++)
        if (l->list[i].kind != FREE && l->list[i].node == node)
            return true;
    return false;
}

static struct lease *take(struct leases *l)
{
    for (uint32_t i = 0; i < l->opts.count_max; i++) {
        if (l->list[i].kind != FREE)
            continue;
        l->end = MAX_OF(l->end, i + 1);
        return &l->list[i];
    }
    return NULL;
}

/* The lease is at no node. */
static void give(struct leases *l, struct lease *x)
{
    ASSERT(x->kind != FREE && x->node == NONE && x->promised == 0);
    l->now.sessions -= x->kind == SESSION;
    l->now.wishes -= x->kind == WISH;
    x->kind = FREE;
    while (l->end > 0 && l->list[l->end - 1].kind == FREE)
        l->end--;
}

/* ---- where a lease is ---- */

static void attach(struct leases *l, struct lease *x, uint32_t node)
{
    struct prefix_bytes bytes;
    ASSERT(x->node == NONE && node != NONE);
    prefix_index_bytes(l->opts.index, node, &bytes);
    if (x->kind == SESSION)
        prefix_index_lease(l->opts.index, node);
    else
        prefix_index_wish(l->opts.index, node);
    prefix_index_mark_end(l->opts.index, node, true);
    x->node = node;
    x->bytes = bytes.all;
    if (x->kind == WISH)
        l->wished_of[share_list_of(x->tenant)] += x->bytes;
}

/* A session's entries become cache, which may evict them at once. */
static void detach(struct leases *l, struct lease *x)
{
    uint32_t node = x->node;
    if (node == NONE)
        return;
    x->node = NONE;
    prefix_index_mark_end(l->opts.index, node, ends_at(l, node));
    if (x->kind == SESSION) {
        prefix_index_unlease(l->opts.index, node);
        return;
    }
    ASSERT(l->wished_of[share_list_of(x->tenant)] >= x->bytes);
    l->wished_of[share_list_of(x->tenant)] -= x->bytes;
    prefix_index_unwish(l->opts.index, node);
}

static void promise(struct leases *l, struct lease *x, uint64_t bytes)
{
    uint64_t *of = &l->promised_of[share_list_of(x->tenant)];
    ASSERT(*of >= x->promised && l->now.promised_bytes >= x->promised);
    *of += bytes - x->promised;
    l->now.promised_bytes += bytes - x->promised;
    x->promised = bytes;
}

static void end(struct leases *l, struct lease *x)
{
    ASSERT(x->kind != FREE);
    promise(l, x, 0);
    detach(l, x);
    give(l, x);
}

void leases_done(struct leases *l)
{
    for (uint32_t i = 0; l && i < l->opts.count_max; i++)
        if (l->list[i].kind != FREE)
            end(l, &l->list[i]);
    ASSERT(!l || (l->now.sessions == 0 && l->now.wishes == 0 && l->now.promised_bytes == 0));
}

/* ---- limits ---- */

/* True if the tenant's sessions may hold `bytes` more. */
static bool fits(const struct leases *l, uint64_t tenant, uint64_t bytes, struct lease_refusal *why)
{
    uint32_t share = share_list_of(tenant);
    uint64_t all = prefix_index_leased_bytes(l->opts.index) + l->now.promised_bytes;
    uint64_t own = prefix_index_leased_of(l->opts.index, share) + l->promised_of[share];
    ASSERT(own <= all);
    uint64_t others = MIN_OF(all - own, l->opts.bytes_max), limit = (l->opts.bytes_max - others) / 2;
    *why = (struct lease_refusal){.wanted_bytes = bytes,
                                  .held_bytes = all,
                                  .limit_bytes = l->opts.bytes_max,
                                  .tenant_bytes = own,
                                  .tenant_limit_bytes = limit,
                                  .by_tenant = own + bytes > limit};
    return bytes <= limit && own <= limit - bytes;
}

/* True if the session may hold the prefix that ends at the node in addition. */
static bool may_hold(const struct leases *l, const struct lease *x, uint32_t node)
{
    struct prefix_bytes bytes;
    struct prefix_leased leased;
    struct lease_refusal why;
    ASSERT(x->kind == SESSION && x->promised == 0);
    prefix_index_bytes(l->opts.index, node, &bytes);
    prefix_index_leased(l->opts.index, &leased);
    return leased.pages + bytes.unleased_pages <= l->opts.pages_max &&
           leased.snapshots + bytes.unleased_snapshots <= l->opts.states_max &&
           fits(l, x->tenant, bytes.unleased, &why);
}

/* ---- sessions ---- */

int leases_open(struct leases *l, const struct lease_open *open, struct lease_refusal *why)
{
    if (find(l, &open->id))
        return -EEXIST;
    struct lease *x = NULL;
    bool room = fits(l, open->tenant, open->bytes, why);
    ASSERT(l->now.sessions <= l->opts.count_max);
    if (room)
        x = take(l);
    if (!x) {
        l->now.refused++;
        return room ? -ENFILE : -ENOSPC;
    }
    *x = (struct lease){.kind = SESSION,
                        .follows = open->follows,
                        .node = NONE,
                        .id = open->id,
                        .tenant = open->tenant,
                        .deadline_ns = open->deadline_ns};
    promise(l, x, open->bytes);
    l->now.sessions++;
    l->now.opened++;
    return 0;
}

int leases_grow(struct leases *l, const struct lease_id *id, uint64_t tenant, uint64_t bytes,
                struct lease_refusal *why)
{
    struct lease *x = find_of(l, id, tenant);
    if (!x)
        return -ENOENT;
    if (!fits(l, tenant, bytes, why)) {
        l->now.refused++;
        return -ENOSPC;
    }
    promise(l, x, x->promised + bytes);
    ASSERT(x->promised >= bytes);
    return 0;
}

/* `node`: a usable end. The new entries are taken first, so that nothing in common is without a user. */
static int move(struct leases *l, struct lease *x, uint32_t node)
{
    struct lease was = *x;
    ASSERT(x->kind == SESSION && node != NONE);
    promise(l, x, 0);
    if (node == was.node)
        return 0;
    if (!may_hold(l, x, node))
        return -ENOSPC;
    x->node = NONE;
    attach(l, x, node);
    detach(l, &was);
    return 0;
}

int leases_hold(struct leases *l, const struct lease_id *id, uint32_t node)
{
    struct lease *x = find(l, id);
    if (!x)
        return -ENOENT;
    node = node == NONE ? NONE : prefix_index_usable(l->opts.index, node);
    if (node != NONE)
        return move(l, x, node);
    promise(l, x, 0);
    return 0;
}

void leases_follow(struct leases *l, uint64_t tenant, uint32_t node)
{
    uint32_t to = node == NONE || l->now.sessions == 0 ? NONE : prefix_index_usable(l->opts.index, node);
    uint32_t at = to == NONE ? NONE : prefix_index_parent(l->opts.index, to);
    while (at != NONE) {
        /* Its parent stays: the session that moved first references all nodes before `to`. */
        uint32_t parent = prefix_index_parent(l->opts.index, at);
        for (uint32_t i = 0; prefix_index_is_marked(l->opts.index, at) && i < l->end; i++) {
            struct lease *x = &l->list[i];
            if (x->kind == SESSION && x->follows && x->node == at && x->tenant == tenant)
                (void)move(l, x, to);
        }
        at = parent;
    }
}

bool leases_extend(struct leases *l, const struct lease_id *id, uint64_t tenant, uint64_t deadline_ns)
{
    struct lease *x = find_of(l, id, tenant);
    if (x)
        x->deadline_ns = deadline_ns;
    return x != NULL;
}

bool leases_end(struct leases *l, const struct lease_id *id, uint64_t tenant)
{
    struct lease *x = find_of(l, id, tenant);
    if (x)
        end(l, x);
    return x != NULL;
}

/* ---- wishes ---- */

static bool is_wanted(const struct lease_wish *wishes, uint32_t count, uint32_t node)
{
    for (uint32_t i = 0; i < count; i++)
        if (wishes[i].node == node)
            return true;
    return false;
}

/* The tenant's wish that ends deepest before the node, at none of the request's own. */
static struct lease *find_before(const struct leases *l, uint64_t tenant, uint32_t node,
                                 const struct lease_wish *wishes, uint32_t count)
{
    for (uint32_t at = prefix_index_parent(l->opts.index, node); at != NONE;
         at = prefix_index_parent(l->opts.index, at)) {
        struct lease *x = NULL;
        if (prefix_index_is_marked(l->opts.index, at) && !is_wanted(wishes, count, at))
            x = find_at(l, WISH, tenant, at);
        if (x)
            return x;
    }
    return NULL;
}

/* The wish with the earliest deadline, in the share with most wished bytes. NULL: there is only `keep`. */
static struct lease *worst(const struct leases *l, const struct lease *keep)
{
    struct lease *ret = NULL;
    for (uint32_t i = 0; i < l->end; i++) {
        struct lease *x = &l->list[i];
        if (x->kind != WISH || x == keep)
            continue;
        uint64_t of = l->wished_of[share_list_of(x->tenant)];
        uint64_t most = ret ? l->wished_of[share_list_of(ret->tenant)] : 0;
        if (!ret || of > most || (of == most && x->deadline_ns < ret->deadline_ns))
            ret = x;
    }
    return ret;
}

static void drop(struct leases *l, struct lease *x)
{
    ASSERT(x->kind == WISH);
    l->now.dropped++;
    end(l, x);
}

/* Makes room for a wish at the node by dropping others. False: it has no room. */
static bool make_room(struct leases *l, uint32_t node, const struct lease *keep)
{
    for (;;) {
        struct prefix_bytes bytes;
        prefix_index_bytes(l->opts.index, node, &bytes);
        uint64_t wished = prefix_index_wished_bytes(l->opts.index);
        if (wished + bytes.unwished <= l->opts.bytes_max)
            return true;
        struct lease *x = worst(l, keep);
        if (!x || bytes.all > l->opts.bytes_max)
            return false;
        drop(l, x);
    }
}

/* A place for a new wish; sessions keep a quarter of the table. */
static struct lease *take_wish(struct leases *l, uint64_t tenant, uint64_t deadline_ns)
{
    struct lease *x = l->now.wishes < l->opts.count_max - l->opts.count_max / 4 ? take(l) : NULL;
    struct lease *other = x ? NULL : worst(l, NULL);
    if (other) {
        drop(l, other);
        x = take(l);
    }
    if (!x)
        return NULL;
    *x = (struct lease){.kind = WISH, .node = NONE, .tenant = tenant, .deadline_ns = deadline_ns};
    l->now.wishes++;
    return x;
}

static bool wish(struct leases *l, uint64_t tenant, const struct lease_wish *wishes, uint32_t count,
                 uint32_t i)
{
    uint32_t node = wishes[i].node;
    ASSERT(i < count && count <= LEASE_WISHES_MAX);
    struct lease *x = find_at(l, WISH, tenant, node);
    if (x) {
        x->deadline_ns = MAX_OF(x->deadline_ns, wishes[i].deadline_ns);
        return true;
    }
    x = find_before(l, tenant, node, wishes, count);
    if (!make_room(l, node, x))
        return false;
    if (!x)
        x = take_wish(l, tenant, 0);
    if (!x)
        return false;
    x->deadline_ns = MAX_OF(x->deadline_ns, wishes[i].deadline_ns);
    detach(l, x);
    attach(l, x, node);
    return true;
}

uint32_t leases_wish(struct leases *l, uint64_t tenant, const struct lease_wish *wishes, uint32_t count)
{
    struct lease_wish at[LEASE_WISHES_MAX];
    uint32_t ends = 0, tokens = 0;
    for (uint32_t i = 0; i < MIN_OF(count, (uint32_t)LEASE_WISHES_MAX); i++) {
        uint32_t node = wishes[i].node == NONE ? NONE : prefix_index_usable(l->opts.index, wishes[i].node);
        if (node != NONE)
            at[ends++] = (struct lease_wish){node, wishes[i].deadline_ns};
    }
    for (uint32_t i = 0; i < ends; i++)
        if (wish(l, tenant, at, ends, i))
            tokens = prefix_index_depth(l->opts.index, at[i].node) * PAGE_TOKENS;
    return tokens;
}

/* Only wishes lose their node: a session references it. */
void leases_leaving(void *arg, uint32_t node)
{
    struct leases *l = arg;
    for (uint32_t i = 0; l && i < l->end; i++) {
        ASSERT(l->list[i].kind != SESSION || l->list[i].node != node);
        if (l->list[i].kind == WISH && l->list[i].node == node)
            drop(l, &l->list[i]);
    }
}

/* ---- time ---- */

bool leases_expire(struct leases *l, uint64_t now_ns)
{
    for (uint32_t i = 0; i < l->end; i++) {
        if (l->list[i].kind == FREE || l->list[i].deadline_ns > now_ns)
            continue;
        l->now.expired++;
        ASSERT(l->now.sessions + l->now.wishes > 0);
        end(l, &l->list[i]);
        return true;
    }
    return false;
}

uint64_t leases_due_ns(const struct leases *l)
{
    uint64_t due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < l->end; i++)
        if (l->list[i].kind != FREE)
            due_ns = MIN_OF(due_ns, l->list[i].deadline_ns);
    return due_ns;
}

/* ---- looking ---- */

uint32_t leases_tokens(const struct leases *l, const struct lease_id *id)
{
    const struct lease *x = find(l, id);
    ASSERT(!x || x->kind == SESSION);
    return !x || x->node == NONE ? 0 : prefix_index_depth(l->opts.index, x->node) * PAGE_TOKENS;
}

uint32_t leases_each(const struct leases *l, lease_fn *each, void *arg)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->end; i++) {
        const struct lease *x = &l->list[i];
        if (x->kind != SESSION)
            continue;
        struct lease_info info = {.id = x->id,
                                  .tenant = x->tenant,
                                  .deadline_ns = x->deadline_ns,
                                  .bytes = x->node == NONE ? x->promised : x->bytes,
                                  .tokens = leases_tokens(l, &x->id),
                                  .follows = x->follows};
        each(arg, count++, &info);
    }
    ASSERT(count == l->now.sessions);
    return count;
}

void leases_numbers(const struct leases *l, struct lease_numbers *ret)
{
    *ret = l->now;
    ASSERT(ret->sessions + ret->wishes <= ret->count_max);
}

void leases_check(const struct leases *l)
{
    uint32_t sessions = 0, wishes = 0;
    uint64_t promised = 0, wished[CACHE_SHARES] = {0};
    for (uint32_t i = 0; i < l->opts.count_max; i++) {
        const struct lease *x = &l->list[i];
        ASSERT_OF(x->kind == FREE || i < l->end, "lease %u: in use beyond the end, %u", i, l->end);
        if (x->kind == FREE)
            continue;
        sessions += x->kind == SESSION;
        wishes += x->kind == WISH;
        promised += x->promised;
        ASSERT_OF(x->kind == SESSION || (x->node != NONE && x->promised == 0), "lease %u: a wish of nothing",
                  i);
        ASSERT_OF(x->node == NONE || prefix_index_is_marked(l->opts.index, x->node),
                  "lease %u: ends at node %u, which does not know it", i, x->node);
        if (x->kind == WISH)
            wished[share_list_of(x->tenant)] += x->bytes;
    }
    ASSERT_OF(sessions == l->now.sessions && wishes == l->now.wishes,
              "%u sessions and %u wishes, %u and %u counted", sessions, wishes, l->now.sessions,
              l->now.wishes);
    ASSERT(promised == l->now.promised_bytes);
    ASSERT(memcmp(wished, l->wished_of, sizeof(wished)) == 0);
    ASSERT(prefix_index_leased_bytes(l->opts.index) <= l->opts.bytes_max);
    ASSERT(prefix_index_wished_bytes(l->opts.index) <= l->opts.bytes_max);
}
