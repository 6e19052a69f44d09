/* rx.h - regular expressions over bytes, as values.
 *
 * A store holds expressions by structure: equal expressions have equal ids, so that a derivative that comes
 * back to an earlier expression finds it. Expressions are never freed one by one. A store that is full makes
 * every function return RX_NONE and rx_failed() true; callers check once, at the end.
 * One thread at a time. */
#ifndef PLATEAU_RX_RX_H
#define PLATEAU_RX_RX_H

#include "base/arena.h"
#include "base/slice.h"

typedef uint32_t rx_id;

enum {
    RX_NONE,  /* matches no text */
    RX_EMPTY, /* matches the empty text only */
    RX_ALL    /* matches every text */
};

#define RX_UNBOUNDED UINT32_MAX /* rx_repeat() without a maximum */

enum rx_kind { RX_K_NONE, RX_K_EMPTY, RX_K_BYTES, RX_K_CAT, RX_K_OR, RX_K_AND, RX_K_NOT, RX_K_REPEAT };

struct rx_bytes {
    uint64_t bits[4]; /* byte b: bits[b / 64] >> b % 64 & 1 */
};

struct rx_range {
    uint32_t first, last; /* code points, both included */
};

struct rx_store;

/* Bound: `nodes_max` expressions of at most 64 bytes each, in `a`. 0 or -ENOMEM. */
int rx_store_create(struct arena *a, uint32_t nodes_max, struct rx_store **ret);
bool rx_failed(const struct rx_store *s);
uint32_t rx_count(const struct rx_store *s);

rx_id rx_bytes(struct rx_store *s, const struct rx_bytes *set); /* one byte of the set */
rx_id rx_byte_range(struct rx_store *s, uint8_t first, uint8_t last);
rx_id rx_literal(struct rx_store *s, struct slice text);
rx_id rx_cat(struct rx_store *s, rx_id a, rx_id b);
rx_id rx_or(struct rx_store *s, rx_id a, rx_id b);
/* Any of `list`; sooner than one by one. */
rx_id rx_any(struct rx_store *s, const rx_id *list, uint32_t count);
rx_id rx_and(struct rx_store *s, rx_id a, rx_id b);
rx_id rx_not(struct rx_store *s, rx_id a); /* every text that `a` does not match, well-formed UTF-8 or not */
/* min to max times; max RX_UNBOUNDED: any number. A counter, never unrolled. */
rx_id rx_repeat(struct rx_store *s, rx_id a, uint32_t min, uint32_t max);
/* The UTF-8 encoding of one code point of the ranges (ascending, apart, without surrogates). */
rx_id rx_codepoints(struct rx_store *s, const struct rx_range *ranges, uint32_t count);

bool rx_nullable(const struct rx_store *s, rx_id a); /* matches the empty text */
/* The derivative: the texts that complete one of `a` after this byte. */
rx_id rx_derive(struct rx_store *s, rx_id a, uint8_t byte);

/* For readers of the structure (the plain reference): children of CAT, OR, AND (two), NOT, REPEAT (one). */
struct rx_node {
    enum rx_kind kind;
    rx_id a, b;
    uint32_t min, max;   /* REPEAT */
    struct rx_bytes set; /* BYTES */
};
struct rx_node rx_node(const struct rx_store *s, rx_id a);

#endif
