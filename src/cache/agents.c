/* agents.c - one table that is searched as a whole: it is small, and a search happens twice a request. */
#include "cache/agents.h"

#include "cache/prefix_lease.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/none.h"
#include "base/page_tokens.h"

#include <errno.h>

struct place {
    struct agent_id id;
    uint64_t due_ns;           /* without requests: when it is free */
    uint64_t until_ns;         /* see agents_keep() */
    uint32_t requests;         /* that run */
    bool taken, served;        /* served: a request of its agent was */
    bool ends;                 /* it is free at the end of its requests */
    uint32_t node[AGENT_ENDS]; /* the last used first; NONE: no prefix */
};

struct agents {
    struct agents_opts opts;
    struct place *places; /* [count_max] */
    struct agents_numbers now;
};

size_t agents_arena_bytes(uint32_t count_max)
{
    return sizeof(struct agents) + count_max * sizeof(struct place) + 2 * (size_t)64;
}

int agents_create(struct arena *arena, const struct agents_opts *opts, struct agents **ret)
{
    ASSERT(opts->index && opts->count_max > 0 && opts->tokens_max >= PAGE_TOKENS);
    struct agents *a = ARENA_NEW(arena, struct agents);
    if (!a)
        return -ENOMEM;
    a->opts = *opts;
    a->now = (struct agents_numbers){.count_max = opts->count_max, .tokens_max = opts->tokens_max};
    a->places = ARENA_ARRAY(arena, struct place, opts->count_max);
    if (!a->places)
        return -ENOMEM;
    *ret = a;
    return 0;
}

/* ---- places ---- */

static struct place *find(const struct agents *a, const struct agent_id *id)
{
    ASSERT(a->now.count <= a->opts.count_max);
    for (uint32_t i = 0; i < a->opts.count_max; i++) {
        struct place *p = &a->places[i];
        if (p->taken && p->id.tenant == id->tenant && p->id.key == id->key)
            return p;
    }
    return NULL;
}

static uint32_t tokens_of(const struct agents *a, uint32_t node)
{
    return node == NONE ? 0 : prefix_index_depth(a->opts.index, node) * PAGE_TOKENS;
}

/* The end is cache from now on, which may be evicted at once. */
static void let_go(struct agents *a, uint32_t node)
{
    if (node == NONE)
        return;
    ASSERT(a->now.tokens >= tokens_of(a, node));
    a->now.tokens -= tokens_of(a, node);
    prefix_index_unhold(a->opts.index, node);
}

static void take(struct agents *a, struct place *p, const struct agent_id *id)
{
    ASSERT(!p->taken && a->now.count < a->opts.count_max);
    *p = (struct place){.id = *id, .taken = true};
    for (uint32_t i = 0; i < AGENT_ENDS; i++)
        p->node[i] = NONE;
    a->now.count++;
    a->now.taken++;
}

static void give(struct agents *a, struct place *p)
{
    ASSERT(p->taken && p->requests == 0 && a->now.count > 0);
    for (uint32_t i = 0; i < AGENT_ENDS; i++)
        let_go(a, p->node[i]);
    p->taken = false;
    a->now.count--;
}

void agents_done(struct agents *a)
{
    for (uint32_t i = 0; a && i < a->opts.count_max; i++)
        if (a->places[i].taken)
            give(a, &a->places[i]);
    ASSERT(!a || (a->now.count == 0 && a->now.tokens == 0));
}

/* ---- requests ---- */

int agents_enter(struct agents *a, const struct agent_id *id, uint64_t now_ns, uint64_t *free_ns)
{
    struct place *p = find(a, id);
    for (uint32_t i = 0; !p && i < a->opts.count_max; i++) {
        if (a->places[i].taken)
            continue;
        p = &a->places[i];
        take(a, p, id);
    }
    if (!p) {
        uint64_t due_ns = agents_due_ns(a);
        ASSERT(a->now.count == a->opts.count_max);
        *free_ns = due_ns == UINT64_MAX ? now_ns + a->opts.idle_ns : MAX_OF(due_ns, now_ns);
        a->now.refused++;
        return -ENOSPC;
    }
    a->now.running += p->requests++ == 0;
    p->ends = false;
    return 0;
}

void agents_leave(struct agents *a, const struct agent_id *id, uint64_t now_ns, bool served)
{
    struct place *p = find(a, id);
    ASSERT(p && p->requests > 0 && a->now.running > 0);
    a->now.running -= --p->requests == 0;
    p->due_ns = MAX_OF(now_ns + a->opts.idle_ns, p->until_ns);
    p->served |= served;
    if (p->requests == 0 && (p->ends || (!p->served && p->node[0] == NONE)))
        give(a, p);
}

void agents_keep(struct agents *a, const struct agent_id *id, uint64_t until_ns)
{
    struct place *p = find(a, id);
    ASSERT(!p || p->taken);
    if (!p)
        return;
    p->until_ns = until_ns;
    p->due_ns = MAX_OF(p->due_ns, until_ns);
}

bool agents_end(struct agents *a, const struct agent_id *id)
{
    struct place *p = find(a, id);
    if (p && p->requests == 0)
        give(a, p);
    else if (p)
        p->ends = true;
    return p != NULL;
}

/* ---- ends of conversations ---- */

static bool continues(const struct agents *a, uint32_t node, uint32_t end)
{
    ASSERT(node != NONE && end != NONE);
    uint32_t depth = prefix_index_depth(a->opts.index, end);
    while (node != NONE && prefix_index_depth(a->opts.index, node) > depth)
        node = prefix_index_parent(a->opts.index, node);
    return node == end;
}

/* The deepest usable end at the node or before it that a place may hold. */
static uint32_t end_within(const struct agents *a, uint32_t node)
{
    while (node != NONE) {
        node = prefix_index_usable(a->opts.index, node);
        if (node == NONE || tokens_of(a, node) <= a->opts.tokens_max)
            break;
        node = prefix_index_parent(a->opts.index, node);
    }
    return node;
}

/* The end that gives way: one that the node continues, else the least recently used. */
static uint32_t replaced(const struct agents *a, const struct place *p, uint32_t node)
{
    ASSERT(p->taken && node != NONE);
    for (uint32_t i = 0; i < AGENT_ENDS; i++)
        if (p->node[i] != NONE && continues(a, node, p->node[i]))
            return i;
    return AGENT_ENDS - 1;
}

void agents_hold(struct agents *a, const struct agent_id *id, uint32_t node)
{
    struct place *p = find(a, id);
    ASSERT(p && p->requests > 0);
    node = end_within(a, node);
    if (node == NONE)
        return;
    /* The new entries are taken first, so that nothing in common is without a user. */
    prefix_index_hold(a->opts.index, node);
    a->now.tokens += tokens_of(a, node);
    uint32_t at = replaced(a, p, node), was = p->node[at];
    for (; at > 0; at--)
        p->node[at] = p->node[at - 1];
    p->node[0] = node;
    let_go(a, was);
    uint32_t held = tokens_of(a, node);
    for (uint32_t i = 1; i < AGENT_ENDS; i++) {
        held += tokens_of(a, p->node[i]);
        if (held <= a->opts.tokens_max)
            continue;
        held -= tokens_of(a, p->node[i]);
        let_go(a, p->node[i]);
        p->node[i] = NONE;
    }
    ASSERT(held <= a->opts.tokens_max);
}

/* ---- time ---- */

bool agents_expire(struct agents *a, uint64_t now_ns)
{
    for (uint32_t i = 0; i < a->opts.count_max; i++) {
        struct place *p = &a->places[i];
        if (!p->taken || p->requests > 0 || p->due_ns > now_ns)
            continue;
        ASSERT(a->now.count > a->now.running);
        a->now.expired++;
        give(a, p);
        return true;
    }
    return false;
}

uint64_t agents_due_ns(const struct agents *a)
{
    uint64_t due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < a->opts.count_max; i++)
        if (a->places[i].taken && a->places[i].requests == 0)
            due_ns = MIN_OF(due_ns, a->places[i].due_ns);
    return due_ns;
}

/* ---- looking ---- */

uint32_t agents_list(const struct agents *a, struct agent_id *ret)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < a->opts.count_max; i++)
        if (a->places[i].taken)
            ret[count++] = a->places[i].id;
    ASSERT(count == a->now.count);
    return count;
}

void agents_numbers(const struct agents *a, struct agents_numbers *ret)
{
    *ret = a->now;
    for (uint32_t i = 0; i < a->opts.count_max; i++)
        if (a->places[i].taken && a->places[i].requests == 0)
            ret->until_ns = MAX_OF(ret->until_ns, a->places[i].due_ns);
    ASSERT(ret->running <= ret->count && ret->count <= ret->count_max);
}

static uint64_t check_place(const struct agents *a, uint32_t i)
{
    const struct place *p = &a->places[i];
    uint64_t tokens = 0;
    ASSERT_OF(p->requests > 0 || p->served || p->node[0] != NONE, "agent %u: has a place and never used it",
              i);
    for (uint32_t e = 0; e < AGENT_ENDS; e++)
        tokens += tokens_of(a, p->node[e]);
    ASSERT_OF(tokens <= a->opts.tokens_max, "agent %u: holds %llu tokens, at most %u", i,
              (unsigned long long)tokens, a->opts.tokens_max);
    for (uint32_t other = 0; other < i; other++)
        ASSERT_OF(find(a, &a->places[other].id) != p, "agents %u and %u are one", other, i);
    return tokens;
}

void agents_check(const struct agents *a)
{
    uint32_t count = 0, running = 0;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < a->opts.count_max; i++) {
        if (!a->places[i].taken)
            continue;
        tokens += check_place(a, i);
        count++;
        running += a->places[i].requests > 0;
    }
    ASSERT_OF(count == a->now.count && running == a->now.running, "%u agents, %u running; %u and %u counted",
              count, running, a->now.count, a->now.running);
    ASSERT_OF(tokens == a->now.tokens, "agents hold %llu tokens, %llu counted", (unsigned long long)tokens,
              (unsigned long long)a->now.tokens);
}
