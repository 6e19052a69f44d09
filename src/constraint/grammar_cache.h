/* grammar_cache.h - compiled grammars of one vocabulary, with their tables, by the hash of their source.
 *
 *     compiling --> ready --> evicted
 *         \--> failed
 *
 * A source that several threads request at once is compiled by the first; the others wait for it. Ready
 * entries stay until their memory is needed: the least recently used one goes first, and none that is in
 * use. Of the last GRAMMAR_FAILED_MAX sources that exceeded a limit the error stays: a compilation's time
 * is spent once. Of others that do not compile nothing stays.
 *
 * Bound: the limit of the account behind `charge`, which pays for entries, grammars and tables. A tenant with
 * several entries in use gets no more once they take GRAMMAR_SHARE_OF_FREE times the bytes that no entry in
 * use has. So tenants that take all they get always leave room to others. Any thread. */
#ifndef PLATEAU_CONSTRAINT_GRAMMAR_CACHE_H
#define PLATEAU_CONSTRAINT_GRAMMAR_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct grammar_source;
struct grammar_source_opts;
struct grammar_vocab;
struct matcher;

#define GRAMMAR_FAILED_MAX    64
#define GRAMMAR_SHARE_OF_FREE 2

struct grammar_cache;
struct grammar_entry;

struct grammar_cache_opts {
    const struct grammar_vocab *vocab; /* outlives the cache */
    uint64_t bytes_max;                /* the account's limit: the size of tables follows from it */
    const struct charge *charge;
};

/* 0 or -ENOMEM. */
int grammar_cache_create(const struct grammar_cache_opts *opts, struct grammar_cache **ret);
/* No entry is in use. NULL is fine. */
void grammar_cache_free(struct grammar_cache *c);

/* The entry of this source, in use until grammar_cache_put(). `opts->charge` is not used. 0, or as
 * grammar_source_compile(); -ENOMEM: entries in use leave no room; -E2BIG also: the cache is too small. */
int grammar_cache_get(struct grammar_cache *c, const struct grammar_source *s,
                      const struct grammar_source_opts *opts, struct grammar_entry **ret, struct err *e);
void grammar_cache_put(struct grammar_cache *c, struct grammar_entry *g);

/* One more use of an entry in use; and one fewer, as grammar_cache_put(). */
void grammar_entry_ref(struct grammar_entry *g);
void grammar_entry_unref(struct grammar_entry *g);

/* Matchers of one entry share its tables: between these two calls they are the caller's alone. */
void grammar_entry_lock(struct grammar_entry *g);
void grammar_entry_unlock(struct grammar_entry *g);
/* A matcher at the empty text, to be freed before the entry is put back. `bytes_max`: as matcher_opts. Takes
 * the lock itself. 0, -E2BIG or -ENOMEM. */
int grammar_entry_matcher(struct grammar_entry *g, size_t bytes_max, const struct charge *charge,
                          struct matcher **ret);

/* The vocabulary's end tokens; constant. */
const uint32_t *grammar_entry_ends(const struct grammar_entry *g, uint32_t *count);

/* Evicts the least recently used entry that is not in use. False: all are in use. */
bool grammar_cache_evict(struct grammar_cache *c);
/* Evicts all that are not in use, and forgets errors. Returns how many left; `bytes`: their memory. */
uint32_t grammar_cache_clear(struct grammar_cache *c, uint64_t *bytes);

struct grammar_cache_numbers {
    uint32_t entries, used;                    /* used: in use */
    uint64_t hits, compiled, refused, evicted; /* since creation; refused: sources that do not compile */
    uint64_t recalled;                         /* errors that were known */
};
void grammar_cache_numbers(struct grammar_cache *c, struct grammar_cache_numbers *ret);

#endif
