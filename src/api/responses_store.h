/* responses_store.h - responses that a client may refer to later, in an account of their own.
 *
 * An entry is a reply and the items that led to it, as JSON; no tokens and no pages: the prefix cache has
 * those. An entry refers to the items of the response before it, so that a conversation is stored once.
 * Items stay while an entry or a running request refers to them. The store never holds more than
 * opts.bytes_max: entries leave that no request used for ttl_ns, then the least recently used one of the
 * tenant with the most bytes, so that no tenant evicts entries of another with less.
 * Entries of other tenants are reported as not found. Any thread. */
#ifndef PLATEAU_API_RESPONSES_STORE_H
#define PLATEAU_API_RESPONSES_STORE_H

#include "base/buf.h"
#include "base/walk.h"
#include "engine/stream.h"
#include "memory/ledger.h"

#include <stdbool.h>

struct responses_store;
struct responses_items;

struct responses_store_opts {
    struct account *account; /* pays for all; NULL: nothing is counted (tests) */
    uint64_t bytes_max;      /* 0: nothing is stored */
    uint64_t ttl_ns;
};

/* An entry's name: a response of one tenant. */
struct responses_key {
    uint64_t tenant;
    struct request_id id;
};

/* Between items of a list: JSON that is written compactly has no line break of its own. */
#define RESPONSES_BETWEEN ",\n"

/* Responses of one conversation. */
#define RESPONSES_DEPTH_MAX 4096

/* One entry, or one text of items, takes at most bytes_max divided by this. */
#define RESPONSES_STORE_PART 4

/* Bytes of its tables. */
uint64_t responses_store_bytes(void);
/* 0 or -ENOMEM. */
int responses_store_create(const struct responses_store_opts *opts, struct responses_store **ret);
/* No items are referred to. NULL is fine. */
void responses_store_free(struct responses_store *s);

/* A response to store. Its items lead from `before` to its end: its input, then its output. */
struct responses_put {
    struct responses_items *before; /* NULL: a new conversation. The caller keeps its reference */
    struct slice items, reply;
    size_t input_len; /* length of the input in the items, without the output */
};

/* Stores a response. False: it is too large, its conversation too long, or memory was refused; nothing was
 * stored. */
bool responses_store_put(struct responses_store *s, struct responses_key key, const struct responses_put *p,
                         uint64_t now_ns);
/* A reference to the items of a response and all before it. NULL: there is no such response. */
struct responses_items *responses_store_take(struct responses_store *s, struct responses_key key,
                                             uint64_t now_ns);
void responses_items_unref(struct responses_items *i);
/* Appends the items, the oldest first, with RESPONSES_BETWEEN between them; `output`: also the output of the
 * last response. */
void responses_items_write(const struct responses_items *i, bool output, struct buf *ret);
/* The items of the response itself: its input, then its output. While there is a reference. */
struct slice responses_items_own(const struct responses_items *i);
/* Appends the reply. False: there is no such response. */
bool responses_store_reply(struct responses_store *s, struct responses_key key, uint64_t now_ns,
                           struct buf *ret);
/* False: there is no such response. */
bool responses_store_delete(struct responses_store *s, struct responses_key key);
/* Drops the entries that were not used for ttl_ns. */
void responses_store_expire(struct responses_store *s, uint64_t now_ns);

struct responses_store_numbers {
    uint64_t entries, bytes, bytes_max;
    uint64_t stored, found, missed, evicted, expired, refused; /* since the start */
};
struct responses_store_numbers responses_store_numbers(struct responses_store *s);

/* Evicts the least recently used entries until the store holds `bytes` less, or none. Under memory
 * pressure. */
void responses_store_give(struct responses_store *s, uint64_t bytes);

/* Asserts every invariant, under the lock. A walk that is called off has not compared the sums. */
void responses_store_check(struct responses_store *s, struct walk *w);

#endif
