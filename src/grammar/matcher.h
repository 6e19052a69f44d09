/* matcher.h - where one output stands in its grammar, and which tokens may come next.
 *
 * A matcher follows the tokens of one sequence. It keeps a mark per token, so that tokens can be taken back
 * (draft tokens that were not accepted). All memory is taken at creation: no function after it allocates.
 * Matchers of one `tables` share its lazily built automaton and masks: one thread at a time for all of
 * them. */
#ifndef PLATEAU_GRAMMAR_MATCHER_H
#define PLATEAU_GRAMMAR_MATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar;

/* The tokens of a model as a trie of their bytes, with the slices: sets of tokens that are plain characters
 * of a string. Built at load, read from any thread. */
struct grammar_vocab;

struct grammar_vocab_opts {
    uint32_t size; /* 1 + the highest id */
    /* The bytes of a token; empty: no token, or a special one, which only grammar_token() allows. */
    struct slice (*bytes)(void *arg, uint32_t id);
    void *arg;
    const uint32_t *ends; /* tokens that end an output: allowed where the grammar is complete */
    uint32_t end_count;
    const struct charge *charge;
};

/* Returns the most bytes of `charge` that grammar_vocab_create() takes, with all it needs on the way, for a
 * vocabulary whose tokens have few letters that no other begins with. Plans count on it. */
size_t grammar_vocab_planned_bytes(uint32_t size);
/* About 28 bytes a token of `charge` stay. 0, -E2BIG or -ENOMEM. */
int grammar_vocab_create(const struct grammar_vocab_opts *opts, struct grammar_vocab **ret);
void grammar_vocab_free(struct grammar_vocab *v);
size_t grammar_vocab_bytes(const struct grammar_vocab *v);

/* The automaton of a grammar's terminals and the cache of masks, for one vocabulary. */
struct matcher_tables;

struct matcher_tables_opts {
    const struct grammar *grammar;     /* both outlive it */
    const struct grammar_vocab *vocab; /* NULL: bytes only, no masks */
    size_t bytes_max;                  /* 0: MATCHER_TABLES_BYTES; full: emptied and built again */
    const struct charge *charge;
};

#define MATCHER_TABLES_BYTES ((size_t)2 << 20)

int matcher_tables_create(const struct matcher_tables_opts *opts, struct matcher_tables **ret);
void matcher_tables_free(struct matcher_tables *t);

struct matcher;

struct matcher_opts {
    struct matcher_tables *tables; /* outlives it */
    size_t bytes_max;              /* limit of its stack; 0: MATCHER_BYTES */
    uint32_t items_max;            /* limit of a row; 0: MATCHER_ITEMS */
    const struct charge *charge;
};

#define MATCHER_BYTES ((size_t)512 << 10)
#define MATCHER_ITEMS 2000
#define MATCHER_KEEP  64

int matcher_create(const struct matcher_opts *opts, struct matcher **ret);
void matcher_free(struct matcher *m);
void matcher_reset(struct matcher *m); /* to the empty text */

/* 1: taken. 0: the grammar does not allow it, and nothing has changed. -E2BIG: the grammar is too complex
 * here (items_max, bytes_max, or a row of too many steps); nothing has changed. An end token is allowed
 * where matcher_may_end(), and nothing after it. */
int matcher_take(struct matcher *m, uint32_t token);
/* As `matcher_take()`, but takes bytes, as one mark. */
int matcher_take_bytes(struct matcher *m, struct slice bytes);
/* How many marks there are, and back to the first `count` of them. The last MATCHER_KEEP can be taken
 * back. */
uint32_t matcher_marks(const struct matcher *m);
void matcher_rewind(struct matcher *m, uint32_t count);
/* Gives up all marks but the last `keep`, and what only the others need: the rest follows the depth of the
 * text. A matcher does so itself, with MATCHER_KEEP, when three quarters of its stack are used. */
void matcher_compact(struct matcher *m, uint32_t keep);
bool matcher_may_end(const struct matcher *m);
bool matcher_has_ended(const struct matcher *m); /* an end token was taken */

struct matcher_mask {
    uint32_t count;  /* tokens allowed */
    uint32_t single; /* the only one, where count is 1 */
};

/* Tokens that come next where the grammar leaves one text only: the longest ones, and none that others might
 * go beyond. Other cuts of that text may be allowed too: these are draft tokens. No end tokens. Returns how
 * many of them, at most `max`; nothing changes. */
uint32_t matcher_forced(struct matcher *m, uint32_t max, uint32_t *ret);

/* Sets bit t of bits[(size + 31) / 32] for every token that may come next, and clears the others. 0, or
 * -E2BIG: too complex, or more than `work_max` steps of the automaton (0: no limit). */
int matcher_mask(struct matcher *m, uint64_t work_max, uint32_t *bits, struct matcher_mask *ret);

#endif
