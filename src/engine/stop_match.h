/* stop_match.h - finds stop strings in text that comes in pieces.
 *
 * The match depends on the text only, not on its cut into tokens: the string that ends first, of several
 * that end there the longest. Each byte costs a step per stop string. */
#ifndef PLATEAU_ENGINE_STOP_MATCH_H
#define PLATEAU_ENGINE_STOP_MATCH_H

#include "base/arena.h"
#include "base/slice.h"

struct stop_match;

/* Bytes of arena that stop_match_create takes at most. */
size_t stop_match_arena_bytes(const struct slice *stops, uint32_t count);
/* Copies the strings, each 1..UINT16_MAX bytes. 0 or -ENOMEM. */
int stop_match_create(struct arena *a, const struct slice *stops, uint32_t count, struct stop_match **ret);

struct stop_hit {
    uint32_t index;      /* index of the stop string */
    uint64_t text_bytes; /* its start in all text fed until now */
};
/* True when one ends in `text`; then no more is fed. */
bool stop_match_feed(struct stop_match *m, struct slice text, struct stop_hit *ret);
/* Text in which no stop string is looked for, nor one that begins in it. */
void stop_match_skip(struct stop_match *m, size_t bytes);
/* Bytes fed and skipped; and the number of last ones that may still begin a stop string. */
uint64_t stop_match_bytes(const struct stop_match *m);
uint32_t stop_match_held(const struct stop_match *m);

#endif
