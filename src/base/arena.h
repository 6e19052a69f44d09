/* arena.h - memory with one lifetime.
 *
 * An arena reserves an address range once and commits it in grains as it fills; every grain is charged
 * before it is committed. Blocks are never freed one by one: the arena is reset or destroyed whole. The
 * arena argument of a function tells the lifetime of what it makes: process, model, row or step.
 * One thread at a time. */
#ifndef PLATEAU_BASE_ARENA_H
#define PLATEAU_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct charge;

struct arena_opts {
    size_t bytes_max;            /* address range; rounded up to the grain */
    size_t grain;                /* commit step, a power of two >= 4096; 0 = 64 KiB */
    const struct charge *charge; /* copied; NULL = uncounted */
};

/* 0, -EINVAL, -ENOMEM (no address space, or the charge said no to the first grain). */
int arena_create(const struct arena_opts *opts, struct arena **ret);

/* Gives everything back. NULL is fine. */
void arena_free(struct arena *a);

/* `bytes` bytes aligned to 64 (or `align`, a power of two <= 4096), zeroed. NULL when the arena is full or
 * the charge said no: the caller returns -ENOMEM. Zero bytes give a valid pointer. */
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_alloc_align(struct arena *a, size_t bytes, size_t align);

#define ARENA_NEW(a, type)          ((type *)arena_alloc_align((a), sizeof(type), _Alignof(type)))
#define ARENA_ARRAY(a, type, count) ((type *)arena_alloc_array((a), (count), sizeof(type)))
/* arena_alloc(count * size), NULL on overflow. */
void *arena_alloc_array(struct arena *a, size_t count, size_t size);

/* A copy of the bytes with a terminating zero. */
char *arena_strndup(struct arena *a, const char *ptr, size_t len);

/* Forgets all blocks; commits stay (the next use zeroes what it hands out). */
void arena_reset(struct arena *a);

/* A mark and the way back to it: blocks made since are forgotten. */
size_t arena_mark(const struct arena *a);
void arena_rewind(struct arena *a, size_t mark);

/* Commits (and so charges and populates) the first `bytes` now, so that later use cannot fail or fault. */
int arena_commit(struct arena *a, size_t bytes);

size_t arena_committed_bytes(const struct arena *a);
/* Whether a block was refused because of bytes_max, and not by the charge or the system. */
bool arena_overran(const struct arena *a);

#endif
