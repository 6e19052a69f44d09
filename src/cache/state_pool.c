/* state_pool.c - a block pool as a type of its own, so that a state cannot be given to the pages. */
#include "cache/state_pool.h"

#include "base/check.h"

#include <errno.h>

struct state_pool {
    struct state_pool_opts opts;
    struct block_pool *blocks;
};

static struct block_pool_opts block_opts(const struct state_pool_opts *opts)
{
    return (struct block_pool_opts){opts->states_max, opts->state_bytes, opts->state};
}

size_t state_pool_arena_bytes(const struct state_pool_opts *opts)
{
    struct block_pool_opts b = block_opts(opts);
    return sizeof(struct state_pool) + 64 + block_pool_arena_bytes(&b);
}

int state_pool_create(struct arena *a, const struct state_pool_opts *opts, struct state_pool **ret)
{
    struct block_pool_opts b = block_opts(opts);
    struct state_pool *p = ARENA_NEW(a, struct state_pool);
    if (!p)
        return -ENOMEM;
    p->opts = *opts;
    int r = block_pool_create(a, &b, &p->blocks);
    if (r == 0)
        *ret = p;
    return r;
}

struct units *state_pool_done(struct state_pool *p)
{
    return p ? block_pool_done(p->blocks) : NULL;
}

int state_pool_take(struct state_pool *p, uint32_t *ret)
{
    const struct state_pool_opts *o = &p->opts;
    int r = block_pool_take(p->blocks, ret);
    while (r == -ENOMEM && o->reclaim && (o->reclaim(o->arg, false) || o->reclaim(o->arg, true)))
        r = block_pool_take(p->blocks, ret);
    ASSERT(r < 0 || *ret < o->states_max);
    return r;
}

void state_pool_give(struct state_pool *p, uint32_t state)
{
    block_pool_give(p->blocks, state);
}

bool state_pool_is_taken(const struct state_pool *p, uint32_t state)
{
    return block_pool_is_taken(p->blocks, state);
}

void state_pool_clock(struct state_pool *p, uint64_t now_ns)
{
    block_pool_clock(p->blocks, now_ns);
}

uint64_t state_pool_trim(struct state_pool *p, uint32_t units_max, uint64_t before_ns)
{
    return block_pool_trim(p->blocks, units_max, before_ns);
}

uint64_t state_pool_spare_bytes(const struct state_pool *p)
{
    return block_pool_spare_bytes(p->blocks);
}

bool state_pool_compact(struct state_pool *p)
{
    ASSERT(!p->opts.move || p->opts.is_movable);
    struct block_mover m = {p->opts.is_movable, p->opts.move, p->opts.arg};
    return p->opts.move && block_pool_compact(p->blocks, &m);
}

dev_ptr state_pool_base(const struct state_pool *p)
{
    return block_pool_base(p->blocks);
}

void state_pool_copy(const struct state_pool *p, uint32_t from, uint32_t to)
{
    block_pool_copy(p->blocks, from, to);
}

int state_pool_get(const struct state_pool *p, uint32_t state, uint64_t offset, uint64_t bytes, void *host)
{
    return block_pool_get(p->blocks, state, offset, bytes, host);
}

void state_pool_put(const struct state_pool *p, uint32_t state, uint64_t offset, uint64_t bytes,
                    const void *host)
{
    block_pool_put(p->blocks, state, offset, bytes, host);
}

void state_pool_numbers(const struct state_pool *p, struct pool_numbers *ret)
{
    block_pool_numbers(p->blocks, ret);
}

void state_pool_check(const struct state_pool *p)
{
    block_pool_check(p->blocks);
}

bool state_pool_walk(const struct state_pool *p, struct walk *w)
{
    return block_pool_walk(p->blocks, w);
}
