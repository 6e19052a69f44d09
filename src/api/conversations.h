/* conversations.h - the tools with which the prompts of conversations were rendered, in an account of their
 * own.
 *
 * An entry is a conversation of one tenant: the tools at the head of its prompt, and the changes that later
 * turns made, each with the message at which its text stands. Messages are hashes here, tokens and pages lie
 * elsewhere. Conversations that begin alike are entries of one key; a turn belongs to the one whose messages
 * it continues.
 * The store never holds more than opts.bytes_max. Entries are evicted as cache/share_list.h says, by their
 * bytes, so that no tenant evicts entries of another with less. conversations_file.h keeps them over a
 * restart. Any thread. */
#ifndef PLATEAU_API_CONVERSATIONS_H
#define PLATEAU_API_CONVERSATIONS_H

#include "base/buf.h"
#include "base/walk.h"
#include "memory/ledger.h"

#include <stdbool.h>

struct conversations;

struct conversations_opts {
    struct account *account; /* pays for all; NULL: nothing is counted (tests) */
    uint64_t bytes_max;      /* bytes of everything, at least CONVERSATIONS_BYTES_LEAST */
};

#define CONVERSATIONS_BYTES_LEAST   ((uint64_t)128 << 10)
#define CONVERSATIONS_STORE_PART    4  /* an entry's texts take at most bytes_max divided by this */
#define CONVERSATIONS_CHANGES_MAX   16 /* changes of one conversation */
#define CONVERSATIONS_STALE_SECONDS 1800
#define CONVERSATIONS_MESSAGES_MAX  (1u << 20) /* messages of a turn that is kept */

/* A turn, as its request has it. */
struct conversation_turn {
    uint64_t key;          /* hash of the tenant, the model and the messages that begin the conversation */
    uint64_t tenant;       /* whose share pays */
    uint64_t tools;        /* hash of the set of tools */
    const uint64_t *chain; /* [count + 1]: hash of the messages before each */
    uint32_t count;        /* messages */
    bool first;            /* no reply stands among them */
};

/* A change of tools: a text that only the caller reads. */
struct conversation_change {
    uint32_t message; /* the message whose end has its text */
    uint64_t tools;   /* hash of the set of tools after it */
    struct slice text;
};

/* The rendering of a conversation until now. */
struct conversation_past {
    uint64_t tools;    /* hash of the set of tools at the head */
    struct slice head; /* a text of the caller: these tools */
    struct conversation_change changes[CONVERSATIONS_CHANGES_MAX];
    uint32_t change_count;
};

/* 0, or -ENOMEM: the account or the system. */
int conversations_create(const struct conversations_opts *opts, struct conversations **ret);
/* NULL is fine. */
void conversations_free(struct conversations *c);

/* The charge of the store, and of texts that are read from its file. NULL: nothing is counted. */
const struct charge *conversations_charge(const struct conversations *c);

/* The conversation that the turn continues; with `turn->first`, one with the same tools and no change.
 * Changes count as far as the turn has the messages before them. The texts are in `texts` then, until it
 * changes. False: nothing was found, or `texts` has an error. */
bool conversations_find(struct conversations *c, const struct conversation_turn *turn, struct buf *texts,
                        struct conversation_past *ret);
/* Keeps the rendering of a turn, in place of the one that the turn continues. What does not fit is not
 * kept. */
void conversations_put(struct conversations *c, const struct conversation_turn *turn,
                       const struct conversation_past *past, uint64_t now_ns);

/* An entry, as it is kept. */
struct conversation_kept {
    uint64_t key, tenant;
    uint64_t chain; /* hash of the `count` messages of its last turn */
    uint32_t count;
    struct conversation_past past;
    uint64_t chains[CONVERSATIONS_CHANGES_MAX]; /* hash of the messages up to that of each change */
};
/* Calls each() for every entry, under the lock; those of one share from the least recently used on. */
void conversations_each(struct conversations *c, void (*each)(void *arg, const struct conversation_kept *e),
                        void *arg);

/* Evicts entries, as for a new one, until the store holds `bytes` less, or none. Under memory pressure. */
void conversations_give(struct conversations *c, uint64_t bytes);

struct conversations_numbers {
    uint64_t entries, bytes, bytes_max;
    uint64_t kept, evicted, refused; /* since the start: turns, entries, turns without room */
};
struct conversations_numbers conversations_numbers(struct conversations *c);

/* Asserts every invariant, under the lock. */
void conversations_check(struct conversations *c, struct walk *w);

#endif
