/* prefix_events.h - the pages of a prefix index, announced as they come and go.
 *
 * A router that knows the prefixes of each server sends a request to the server with its prefix. It learns
 * them from events: a page was added behind another, a page has gone. Events name pages that a hit can use: a
 * chain up to its last snapshot, or with all its pages where the model has no recurrent layers. A page is
 * announced after the page before it, and taken back before it. Only pages of the first group are announced,
 * and of these the ones that came to prefix_index_add() with their tokens.
 *
 * A page for which the taker has no room is announced at a later prefix_events_tend(). A removal without room
 * is lost: the taker gets PREFIX_CLEARED, and then every page again, a piece at each call.
 *
 * Bound: 144 bytes for each page of the first group, in the arena of the index. Engine thread only. */
#ifndef PLATEAU_CACHE_PREFIX_EVENTS_H
#define PLATEAU_CACHE_PREFIX_EVENTS_H

#include "base/page_tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct prefix_events;
struct prefix_index;
struct prefix_key;

enum prefix_event_kind { PREFIX_STORED, PREFIX_REMOVED, PREFIX_CLEARED };
struct prefix_event {
    uint32_t kind;         /* enum prefix_event_kind */
    uint64_t hash, parent; /* the page, and the one before it; parent 0: none. Zero with PREFIX_CLEARED */
    uint32_t tokens[PAGE_TOKENS]; /* with PREFIX_STORED */
};

struct prefix_events_opts {
    /* Takes the event. False: it has no room. */
    bool (*put)(void *arg, const struct prefix_event *e);
    /* True once when every page is to be announced again, although nothing was lost. */
    bool (*wants_all)(void *arg);
    void *arg;
};

/* The number that names a page to others: the last 8 bytes of its key, big-endian, and never 0. */
uint64_t prefix_event_hash(const struct prefix_key *key);

/* Bytes of arena for an index of so many pages. */
size_t prefix_events_arena_bytes(uint32_t pages_max);
/* Once, while the index is empty. 0 or -ENOMEM. */
int prefix_events_open(struct arena *a, struct prefix_index *ix, const struct prefix_events_opts *opts);
/* Announces the next piece of the pages that are due. True: there is more, later. False also without a
 * taker. */
bool prefix_events_tend(struct prefix_index *ix);

#endif
