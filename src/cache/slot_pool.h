/* slot_pool.h - the pool of slots: one sequence's recurrent state each.
 *
 * Owns every slot from load to unload. A slot is free or taken by one row; it is not shared. Its units are
 * committed before it is handed out. What a slot held before is still in it: a sequence that begins reads
 * none. Engine thread only. */
#ifndef PLATEAU_CACHE_SLOT_POOL_H
#define PLATEAU_CACHE_SLOT_POOL_H

#include "cache/block_pool.h"

struct slot_pool;

struct slot_pool_opts {
    uint32_t slots_max;
    size_t slot_bytes;
    struct account *state; /* reserved from before a unit is committed */
    /* As page_pool_opts.reclaim. */
    bool (*reclaim)(void *arg, bool cached);
    /* Which slots may lie elsewhere, and how they get there; NULL: none moves. */
    bool (*is_movable)(void *arg, uint32_t slot);
    void (*move)(void *arg, uint32_t from, uint32_t to);
    void *arg; /* of these */
};

/* Bytes of arena that slot_pool_create takes at most. */
size_t slot_pool_arena_bytes(const struct slot_pool_opts *opts);
/* As page_pool_create. */
int slot_pool_create(struct arena *a, const struct slot_pool_opts *opts, struct slot_pool **ret);
struct units *slot_pool_done(struct slot_pool *p);

/* 0, -ENOSPC (all are taken), -ENOMEM (nothing has moved): others' memory has been asked for by then. */
int slot_pool_take(struct slot_pool *p, uint32_t *ret);
void slot_pool_give(struct slot_pool *p, uint32_t slot);
bool slot_pool_is_taken(const struct slot_pool *p, uint32_t slot);
/* As those of page_pool. */
void slot_pool_clock(struct slot_pool *p, uint64_t now_ns);
uint64_t slot_pool_trim(struct slot_pool *p, uint32_t units_max, uint64_t before_ns);
uint64_t slot_pool_spare_bytes(const struct slot_pool *p);
bool slot_pool_compact(struct slot_pool *p);
char *slot_pool_base(const struct slot_pool *p);
void slot_pool_numbers(const struct slot_pool *p, struct pool_numbers *ret);
void slot_pool_check(const struct slot_pool *p);
/* The same, as far as `w` goes on: about two things for each block. False: it was called off. */
bool slot_pool_walk(const struct slot_pool *p, struct walk *w);

#endif
