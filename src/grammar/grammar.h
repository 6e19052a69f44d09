/* grammar.h - a language as rules over terminals: what front ends build and matchers follow.
 *
 * A terminal is a regular expression over bytes, or one special token. A rule has alternatives, each a row of
 * rules and terminals. The language is every concatenation of texts that the terminals match: there is no
 * longest match and no white space of its own. Rules may be recursive in any way.
 *
 * A builder takes rules and terminals in any order; grammar_finish() checks, simplifies and makes the
 * grammar, which never changes: any thread may read it. Failures of the builder are kept until then. */
#ifndef PLATEAU_GRAMMAR_GRAMMAR_H
#define PLATEAU_GRAMMAR_GRAMMAR_H

#include "rx/rx.h"

struct charge;
struct err;
struct wanted;

typedef uint32_t sym_id; /* a rule or a terminal */

struct grammar_limits {
    size_t bytes_max;     /* bytes of builder and grammar together */
    uint32_t nodes_max;   /* expressions, and as many again that matchers derive */
    uint32_t symbols_max; /* rules, terminals, and places in alternatives together */
};

extern const struct grammar_limits grammar_limits_default; /* 1 Mi bytes of grammar as described in docs */

struct grammar_builder;
struct grammar;

/* 0 or -ENOMEM. */
int grammar_builder_create(const struct grammar_limits *limits, const struct charge *charge,
                           struct grammar_builder **ret);
void grammar_builder_free(struct grammar_builder *b); /* NULL is fine; after grammar_finish() as well */
/* When to give up, and where the grammar is charged (before: as the builder). Either may be NULL. `wanted`
 * outlives the builder. */
void grammar_builder_bound(struct grammar_builder *b, const struct wanted *wanted,
                           const struct charge *charge);
/* 0, or why `wanted` ended the work: the builder has failed then. */
int grammar_builder_stopped(const struct grammar_builder *b);
struct rx_store *grammar_rx(struct grammar_builder *b);

sym_id grammar_rule(struct grammar_builder *b); /* a new one, without alternatives */
/* Equal expressions give the same symbol. */
sym_id grammar_terminal(struct grammar_builder *b, rx_id expression);
/* A special token of the vocabulary; never matched by its bytes. */
sym_id grammar_token(struct grammar_builder *b, uint32_t token);
/* One more way to write `rule`. count 0: the empty text. */
void grammar_alternative(struct grammar_builder *b, sym_id rule, const sym_id *symbols, uint32_t count);
bool grammar_builder_failed(const struct grammar_builder *b); /* memory or a limit */

/* Takes all that the builder has; it stays to be freed. 0; -EINVAL (no text derives from `start`: `e` says
 * why); -E2BIG (a limit); -ETIME, -ECANCELED; -ENOMEM. */
int grammar_finish(struct grammar_builder *b, sym_id start, struct grammar **ret, struct err *e);
void grammar_free(struct grammar *g);
size_t grammar_bytes(const struct grammar *g); /* bytes of its charge */

#endif
