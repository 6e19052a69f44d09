/* leases.c - one table of sessions and wishes, searched as a whole: it is small, and a search happens once a
 * request.
 *
 * Nodes at which leases end are marked in the index, so a walk up a chain finds the leases that continue
 * there without asking the table at each node. */
#include "cache/leases.h"

#include "cache/prefix_key.h"
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
    uint64_t bytes;    /* bytes of its prefix when it was taken */
    /* A session in the tier below. */
    uint32_t below; /* the tier's number of it; NONE: a lease of the pools alone */
    bool writing;   /* the tier does not have all of it yet */
    struct prefix_key end;
    uint32_t tokens;
    uint64_t below_bytes, stored_bytes;
};

struct leases {
    struct leases_opts opts;
    struct lease *list; /* [count_max] */
    uint32_t end;       /* none from here on is in use */
    uint32_t looked;    /* the lease that leases_next_lack() was at */
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
    ASSERT(x->below == NONE && !x->writing);
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

/* ---- sessions in the tier below ---- */

/* The tier, if it has leases, else NULL. */
static const struct tier_io *tier_of(const struct leases *l)
{
    const struct tier_io *t = l->opts.tier;
    return t && t->arg && t->lease_open ? t : NULL;
}

static void set_writing(struct leases *l, struct lease *x, bool writing)
{
    ASSERT(x->below != NONE && l->now.writing >= x->writing);
    l->now.writing += writing - x->writing;
    x->writing = writing;
}

static void end_below(struct leases *l, struct lease *x)
{
    const struct tier_io *t = tier_of(l);
    if (x->below == NONE)
        return;
    ASSERT(x->kind == SESSION && l->now.below > 0);
    set_writing(l, x, false);
    if (t) /* else its client has closed, and ended it */
        t->lease_end(t->arg, x->below);
    x->below = NONE;
    l->now.below--;
}

static void end(struct leases *l, struct lease *x)
{
    ASSERT(x->kind != FREE);
    promise(l, x, 0);
    end_below(l, x);
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

bool leases_fit(const struct leases *l, uint64_t tenant, uint64_t bytes)
{
    struct lease_refusal why;
    bool fit = fits(l, tenant, bytes, &why);
    ASSERT(!fit || bytes <= l->opts.bytes_max);
    return fit;
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

/* Promises what the session needs, in the pools or in the tier below. */
static int promise_open(struct leases *l, const struct lease_open *open, uint32_t *below,
                        struct lease_refusal *why)
{
    const struct tier_io *t = tier_of(l);
    *below = NONE;
    ASSERT(!open->below || open->bytes == 0);
    if (!open->below)
        return fits(l, open->tenant, open->bytes, why) ? 0 : -ENOSPC;
    return t ? t->lease_open(t->arg, share_list_of(open->tenant), open->counts, below, why) : -ENODEV;
}

int leases_open(struct leases *l, const struct lease_open *open, struct lease_refusal *why)
{
    uint32_t below;
    if (find(l, &open->id))
        return -EEXIST;
    struct lease *x = take(l);
    ASSERT(l->now.sessions <= l->opts.count_max);
    int r = x ? promise_open(l, open, &below, why) : -ENFILE;
    if (r < 0) {
        l->now.refused++;
        return r;
    }
    *x = (struct lease){.kind = SESSION,
                        .follows = open->follows,
                        .node = NONE,
                        .id = open->id,
                        .tenant = open->tenant,
                        .deadline_ns = open->deadline_ns,
                        .below = below};
    promise(l, x, open->bytes);
    l->now.sessions++;
    l->now.below += open->below;
    l->now.opened++;
    return 0;
}

static int grow_below(struct leases *l, const struct lease *x, const uint32_t counts[TIER_KINDS],
                      struct lease_refusal *why)
{
    const struct tier_io *t = tier_of(l);
    ASSERT(x->below != NONE && counts);
    return t ? t->lease_grow(t->arg, x->below, counts, why) : -ENODEV;
}

int leases_grow(struct leases *l, const struct lease_id *id, uint64_t tenant, uint64_t bytes,
                const uint32_t counts[TIER_KINDS], struct lease_refusal *why)
{
    struct lease *x = find_of(l, id, tenant);
    if (!x)
        return -ENOENT;
    int r = x->below != NONE ? grow_below(l, x, counts, why) : fits(l, tenant, bytes, why) ? 0 : -ENOSPC;
    if (r < 0) {
        l->now.refused++;
        return r;
    }
    if (x->below == NONE)
        promise(l, x, x->promised + bytes);
    ASSERT(x->below == NONE || x->promised == 0);
    return 0;
}

/* The pools' entries of the session are those that end at the node, if they fit. New entries are taken first,
 * so that nothing in common is without a user. */
static void move_in_pools(struct leases *l, struct lease *x, uint32_t node)
{
    struct lease was = *x;
    ASSERT(x->kind == SESSION && node != NONE && node != was.node);
    x->node = NONE;
    attach(l, x, node);
    detach(l, &was);
}

/* The tier below holds the prefix up to the node; the pools do too until it is written, if it fits there. */
static int move_below(struct leases *l, struct lease *x, uint32_t node, const struct prefix_key *keys)
{
    const struct tier_io *t = tier_of(l);
    uint32_t depth = prefix_index_depth(l->opts.index, node), first[TIER_KINDS];
    ASSERT(keys && depth > 0);
    prefix_index_firsts(l->opts.index, depth, first);
    int r = t ? t->lease_hold(t->arg, x->below, keys, depth, first, &x->below_bytes) : -ENODEV;
    if (r < 0)
        return r;
    x->end = keys[depth - 1];
    x->tokens = depth * PAGE_TOKENS;
    set_writing(l, x, true);
    if (node == x->node)
        return 0;
    if (may_hold(l, x, node))
        move_in_pools(l, x, node);
    else
        detach(l, x);
    return 0;
}

/* `node`: a usable end. */
static int move(struct leases *l, struct lease *x, uint32_t node, const struct prefix_key *keys)
{
    ASSERT(x->kind == SESSION && node != NONE);
    promise(l, x, 0);
    if (x->below != NONE)
        return move_below(l, x, node, keys);
    if (node == x->node)
        return 0;
    if (!may_hold(l, x, node))
        return -ENOSPC;
    move_in_pools(l, x, node);
    return 0;
}

int leases_hold(struct leases *l, const struct lease_id *id, uint32_t node, const struct prefix_key *keys)
{
    struct lease *x = find(l, id);
    if (!x)
        return -ENOENT;
    node = node == NONE ? NONE : prefix_index_usable(l->opts.index, node);
    if (node != NONE)
        return move(l, x, node, keys);
    promise(l, x, 0);
    return 0;
}

/* True if the session's prefix in the tier below ends on the way to keys[count - 1], or there. */
static bool is_on_way(const struct lease *x, const struct prefix_key *keys, uint32_t count)
{
    uint32_t pages = x->tokens / PAGE_TOKENS;
    ASSERT(x->below != NONE);
    return pages > 0 && pages <= count && prefix_key_eq(&x->end, &keys[pages - 1]);
}

static void follow_below(struct leases *l, uint64_t tenant, uint32_t node, const struct prefix_key *keys)
{
    uint32_t count = prefix_index_depth(l->opts.index, node);
    ASSERT(l->now.below <= l->now.sessions && (keys || l->now.below == 0));
    for (uint32_t i = 0; l->now.below > 0 && i < l->end; i++) {
        struct lease *x = &l->list[i];
        if (x->kind == SESSION && x->below != NONE && x->follows && x->tenant == tenant &&
            x->tokens < count * PAGE_TOKENS && is_on_way(x, keys, count))
            (void)move(l, x, node, keys);
    }
}

void leases_follow(struct leases *l, uint64_t tenant, uint32_t node, const struct prefix_key *keys)
{
    uint32_t to = node == NONE || l->now.sessions == 0 ? NONE : prefix_index_usable(l->opts.index, node);
    uint32_t at = to == NONE ? NONE : prefix_index_parent(l->opts.index, to);
    if (to != NONE)
        follow_below(l, tenant, to, keys);
    while (at != NONE) {
        /* Its parent stays: the session that moved first references all nodes before `to`. */
        uint32_t parent = prefix_index_parent(l->opts.index, at);
        for (uint32_t i = 0; prefix_index_is_marked(l->opts.index, at) && i < l->end; i++) {
            struct lease *x = &l->list[i];
            if (x->kind == SESSION && x->below == NONE && x->follows && x->node == at && x->tenant == tenant)
                (void)move(l, x, to, keys);
        }
        at = parent;
    }
}

/* The next session after the last one that is being written. */
static struct lease *next_written(struct leases *l)
{
    for (uint32_t i = 0; l->now.writing > 0 && i < l->end; i++) {
        l->looked = l->looked + 1 < l->end ? l->looked + 1 : 0;
        ASSERT(l->looked < l->end);
        if (l->list[l->looked].kind == SESSION && l->list[l->looked].writing)
            return &l->list[l->looked];
    }
    return NULL;
}

enum tier_lease_state leases_next_lack(struct leases *l, struct lease_lack *ret)
{
    const struct tier_io *t = tier_of(l);
    struct lease *x = t ? next_written(l) : NULL;
    struct tier_lease is = {0};
    if (!x)
        return TIER_LEASE_WHOLE;
    enum tier_lease_state state = t->lease_look(t->arg, x->below, &is);
    ASSERT(is.stored_bytes <= is.bytes);
    x->below_bytes = is.bytes;
    x->stored_bytes = is.stored_bytes;
    *ret = (struct lease_lack){is.key, is.kind, x->tenant};
    if (state != TIER_LEASE_WHOLE)
        return state;
    set_writing(l, x, false);
    detach(l, x);
    return TIER_LEASE_WAITS;
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
    *x = (struct lease){
        .kind = WISH, .node = NONE, .tenant = tenant, .deadline_ns = deadline_ns, .below = NONE};
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

static struct lease_info info_of(const struct leases *l, const struct lease *x)
{
    bool below = x->below != NONE;
    uint32_t pages = x->node == NONE ? 0 : prefix_index_depth(l->opts.index, x->node);
    ASSERT(x->kind == SESSION);
    return (struct lease_info){.id = x->id,
                               .tenant = x->tenant,
                               .deadline_ns = x->deadline_ns,
                               .bytes = below             ? x->below_bytes
                                        : x->node == NONE ? x->promised
                                                          : x->bytes,
                               .stored_bytes = x->stored_bytes,
                               .tokens = below ? x->tokens : pages * PAGE_TOKENS,
                               .follows = x->follows,
                               .below = below};
}

bool leases_info(const struct leases *l, const struct lease_id *id, struct lease_info *ret)
{
    const struct lease *x = find(l, id);
    if (x)
        *ret = info_of(l, x);
    ASSERT(!x || x->kind == SESSION);
    return x != NULL;
}

uint32_t leases_each(const struct leases *l, lease_fn *each, void *arg)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < l->end; i++) {
        if (l->list[i].kind != SESSION)
            continue;
        struct lease_info info = info_of(l, &l->list[i]);
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
    uint32_t sessions = 0, wishes = 0, below = 0, writing = 0;
    uint64_t promised = 0, wished[CACHE_SHARES] = {0};
    for (uint32_t i = 0; i < l->opts.count_max; i++) {
        const struct lease *x = &l->list[i];
        ASSERT_OF(x->kind == FREE || i < l->end, "lease %u: in use beyond the end, %u", i, l->end);
        if (x->kind == FREE)
            continue;
        sessions += x->kind == SESSION;
        wishes += x->kind == WISH;
        promised += x->promised;
        below += x->below != NONE;
        writing += x->writing;
        ASSERT_OF(x->below != NONE ? x->kind == SESSION && x->promised == 0 : !x->writing,
                  "lease %u: in the tier below, and not", i);
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
    ASSERT(below == l->now.below && writing == l->now.writing);
    ASSERT(promised == l->now.promised_bytes);
    ASSERT(memcmp(wished, l->wished_of, sizeof(wished)) == 0);
    ASSERT(prefix_index_leased_bytes(l->opts.index) <= l->opts.bytes_max);
    ASSERT(prefix_index_wished_bytes(l->opts.index) <= l->opts.bytes_max);
}
