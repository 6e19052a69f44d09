/* embedding_cache.h - the cache of image embeddings, by content, within a bound of bytes.
 *
 *     filling --> whole --> dropped
 *        \__________________/
 *
 * The key of an entry is the hash of all of the image's pixels, its shape in tokens, and its scope. A
 * tenant's requests, and requests with another cache_salt, find only entries of their own, so neither counts
 * nor time reveal another tenant's images. Users hold a reference. Unreferenced entries stay as far as
 * `keep_bytes` allows, and the least recently used one goes first. Each entry has memory of its own,
 * reserved in the account before it exists and given back to the system when the entry is dropped.
 *
 * Bound: bytes_max of embeddings, and EMBEDDING_CACHE_ENTRIES_MAX entries of 144 bytes in the arena it is
 * given. Engine thread only. */
#ifndef PLATEAU_ENGINE_EMBEDDING_CACHE_H
#define PLATEAU_ENGINE_EMBEDDING_CACHE_H

#include "base/arena.h"
#include "cache/prefix_key.h"
#include "memory/dev.h"

#include <string.h>

#define EMBEDDING_CACHE_ENTRIES_MAX 1024

/* Scope, content and shape. Two consecutive frames of a video are one image. */
struct embedding_cache_key {
    struct prefix_key scope; /* root key of tenant and cache_salt */
    uint8_t sha256[32];
    uint32_t rows, columns, frames;
};

static inline bool embedding_cache_key_eq(const struct embedding_cache_key *a,
                                          const struct embedding_cache_key *b)
{
    return prefix_key_eq(&a->scope, &b->scope) && memcmp(a->sha256, b->sha256, sizeof(a->sha256)) == 0 &&
           a->rows == b->rows && a->columns == b->columns && a->frames == b->frames;
}

struct embedding_cache_opts {
    struct account *account; /* bytes_max is not its limit, but should fit in it; entries are of its domain */
    size_t token_bytes;      /* bytes of one token's features */
    uint64_t bytes_max;      /* limit of all entries; the largest image must fit */
    uint64_t keep_bytes;     /* limit of unreferenced entries; <= bytes_max */
};

struct embedding_cache;

size_t embedding_cache_arena_bytes(void);
/* 0 or -ENOMEM. */
int embedding_cache_create(struct arena *a, const struct embedding_cache_opts *opts,
                           struct embedding_cache **ret);
/* All references are released. Before the arena goes; NULL is fine. */
void embedding_cache_done(struct embedding_cache *g);

/* Bytes of an entry for this many tokens, whole system pages. */
uint64_t embedding_cache_entry_bytes(size_t token_bytes, uint64_t tokens);

/* Returns a whole entry, or NONE. */
uint32_t embedding_cache_find(const struct embedding_cache *g, const struct embedding_cache_key *key);
/* A new entry, filling, with one reference; unreferenced entries make room. No entry of this key exists.
 * 0; -EAGAIN: referenced entries leave no room; -ENOMEM: account or system refused. On failure only
 * dropped entries have changed. */
int embedding_cache_begin(struct embedding_cache *g, const struct embedding_cache_key *key, uint32_t *ret);
/* Commits a piece of it, at most 128 KiB. 0: all of it is there; 1: there is more; -ENOBUFS: the system
 * refused, the entry is still there. */
int embedding_cache_commit(struct embedding_cache *g, uint32_t index);
/* It is filled. */
void embedding_cache_finish(struct embedding_cache *g, uint32_t index);
/* It will not be: gone, with its reference. */
void embedding_cache_abandon(struct embedding_cache *g, uint32_t index);

/* [tokens][token_bytes] in the account's domain; stays where it is while it is referenced. */
dev_ptr embedding_cache_features(const struct embedding_cache *g, uint32_t index);
void embedding_cache_ref(struct embedding_cache *g, uint32_t index);
/* The last reference to a whole entry: it stays, or goes, or another one goes for it. */
void embedding_cache_unref(struct embedding_cache *g, uint32_t index);

/* Drops the least recently used unreferenced entry; returns its bytes, 0 without one. */
uint64_t embedding_cache_evict(struct embedding_cache *g);

struct embedding_cache_numbers {
    uint32_t entries, unused; /* unused: unreferenced */
    uint64_t bytes, unused_bytes, bytes_max;
    uint64_t evicted; /* entries dropped to make room, since creation */
};
void embedding_cache_numbers(const struct embedding_cache *g, struct embedding_cache_numbers *ret);

/* Asserts every invariant. */
void embedding_cache_check(const struct embedding_cache *g);

#endif
