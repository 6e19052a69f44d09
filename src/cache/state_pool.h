/* state_pool.h - the pool of states: one sequence's recurrent state each.
 *
 * Owns every state from load to unload. A state is free or taken by one owner; it is not shared. Its units
 * are committed before it is handed out. A taken state still has its old content: a new sequence does not
 * read it. Engine thread only. */
#ifndef PLATEAU_CACHE_STATE_POOL_H
#define PLATEAU_CACHE_STATE_POOL_H

#include "cache/block_pool.h"

struct state_pool;

struct state_pool_opts {
    uint32_t states_max;
    size_t state_bytes;
    struct account *state; /* reserved from before a unit is committed */
    /* As page_pool_opts.reclaim. */
    bool (*reclaim)(void *arg, bool cached);
    /* Which states may move, and how; NULL: none moves. */
    bool (*is_movable)(void *arg, uint32_t state);
    void (*move)(void *arg, uint32_t from, uint32_t to);
    void *arg; /* for the functions above */
};

/* Bytes of arena that state_pool_create takes at most. */
size_t state_pool_arena_bytes(const struct state_pool_opts *opts);
/* As page_pool_create. */
int state_pool_create(struct arena *a, const struct state_pool_opts *opts, struct state_pool **ret);
struct units *state_pool_done(struct state_pool *p);

/* 0, -ENOSPC (all are taken), -ENOMEM (nothing has changed) after `reclaim` has failed. */
int state_pool_take(struct state_pool *p, uint32_t *ret);
void state_pool_give(struct state_pool *p, uint32_t state);
bool state_pool_is_taken(const struct state_pool *p, uint32_t state);
/* As the functions of page_pool. */
void state_pool_clock(struct state_pool *p, uint64_t now_ns);
uint64_t state_pool_trim(struct state_pool *p, uint32_t units_max, uint64_t before_ns);
uint64_t state_pool_spare_bytes(const struct state_pool *p);
bool state_pool_compact(struct state_pool *p);
dev_ptr state_pool_base(const struct state_pool *p);
/* As the functions of block_pool. */
void state_pool_copy(const struct state_pool *p, uint32_t from, uint32_t to);
int state_pool_get(const struct state_pool *p, uint32_t state, uint64_t offset, uint64_t bytes, void *host);
void state_pool_put(const struct state_pool *p, uint32_t state, uint64_t offset, uint64_t bytes,
                    const void *host);
void state_pool_numbers(const struct state_pool *p, struct pool_numbers *ret);
void state_pool_check(const struct state_pool *p);
/* The same until `w` stops it: about two checks per block. False: stopped early. */
bool state_pool_walk(const struct state_pool *p, struct walk *w);

#endif
