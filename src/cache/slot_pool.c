/* slot_pool.c - a block pool as a type of its own, so that a slot cannot be given to the pages. */
#include "cache/slot_pool.h"

#include "base/check.h"

#include <errno.h>

struct slot_pool {
    struct slot_pool_opts opts;
    struct block_pool *blocks;
};

static struct block_pool_opts block_opts(const struct slot_pool_opts *opts)
{
    return (struct block_pool_opts){opts->slots_max, opts->slot_bytes, opts->state};
}

size_t slot_pool_arena_bytes(const struct slot_pool_opts *opts)
{
    struct block_pool_opts b = block_opts(opts);
    return sizeof(struct slot_pool) + 64 + block_pool_arena_bytes(&b);
}

int slot_pool_create(struct arena *a, const struct slot_pool_opts *opts, struct slot_pool **ret)
{
    struct block_pool_opts b = block_opts(opts);
    struct slot_pool *p = ARENA_NEW(a, struct slot_pool);
    if (!p)
        return -ENOMEM;
    p->opts = *opts;
    int r = block_pool_create(a, &b, &p->blocks);
    if (r == 0)
        *ret = p;
    return r;
}

struct units *slot_pool_done(struct slot_pool *p)
{
    return p ? block_pool_done(p->blocks) : NULL;
}

int slot_pool_take(struct slot_pool *p, uint32_t *ret)
{
    const struct slot_pool_opts *o = &p->opts;
    int r = block_pool_take(p->blocks, ret);
    while (r == -ENOMEM && o->reclaim && (o->reclaim(o->arg, false) || o->reclaim(o->arg, true)))
        r = block_pool_take(p->blocks, ret);
    ASSERT(r < 0 || *ret < o->slots_max);
    return r;
}

void slot_pool_give(struct slot_pool *p, uint32_t slot)
{
    block_pool_give(p->blocks, slot);
}

bool slot_pool_is_taken(const struct slot_pool *p, uint32_t slot)
{
    return block_pool_is_taken(p->blocks, slot);
}

void slot_pool_clock(struct slot_pool *p, uint64_t now_ns)
{
    block_pool_clock(p->blocks, now_ns);
}

uint64_t slot_pool_trim(struct slot_pool *p, uint32_t units_max, uint64_t before_ns)
{
    return block_pool_trim(p->blocks, units_max, before_ns);
}

uint64_t slot_pool_spare_bytes(const struct slot_pool *p)
{
    return block_pool_spare_bytes(p->blocks);
}

bool slot_pool_compact(struct slot_pool *p)
{
    ASSERT(!p->opts.move || p->opts.is_movable);
    struct block_mover m = {p->opts.is_movable, p->opts.move, p->opts.arg};
    return p->opts.move && block_pool_compact(p->blocks, &m);
}

char *slot_pool_base(const struct slot_pool *p)
{
    return block_pool_base(p->blocks);
}

void slot_pool_numbers(const struct slot_pool *p, struct pool_numbers *ret)
{
    block_pool_numbers(p->blocks, ret);
}

void slot_pool_check(const struct slot_pool *p)
{
    block_pool_check(p->blocks);
}

bool slot_pool_walk(const struct slot_pool *p, struct walk *w)
{
    return block_pool_walk(p->blocks, w);
}
