/* grammar_source.h - a grammar as a client writes it, in one of the languages of the front ends, and the
 * frame that the model's chat format puts around its text.
 *
 * The identity of a source is the SHA-256 of its scope, kind, frame and text. */
#ifndef PLATEAU_CONSTRAINT_GRAMMAR_SOURCE_H
#define PLATEAU_CONSTRAINT_GRAMMAR_SOURCE_H

#include "base/err.h"
#include "base/slice.h"
#include "base/wanted.h"

struct grammar;
struct grammar_frame;
struct structural_tokens;

#define GRAMMAR_SOURCE_BYTES_MAX ((size_t)512 << 10)
#define GRAMMAR_SOURCE_CPU_MS    200 /* the most that a compilation takes, of one processor */

enum grammar_kind {
    GRAMMAR_JSON_OBJECT, /* any object; without text */
    GRAMMAR_JSON_SCHEMA, /* the schema as JSON */
    GRAMMAR_REGEX,
    GRAMMAR_CHOICE, /* a JSON list of texts */
    GRAMMAR_GBNF,
    GRAMMAR_LARK,
    GRAMMAR_STRUCTURAL, /* a structural tag as JSON: structural.h */
    GRAMMAR_TOOLS,      /* a chat format and tools: chat/tool_source.h */
    GRAMMAR_KIND_COUNT
};

/* Whose source it is. Another tenant's, or one with another cache_salt, is another source: so the time of a
 * compilation tells nothing of others' requests. */
struct grammar_scope {
    uint64_t tenant;
    struct slice salt;
};

struct grammar_source {
    enum grammar_kind kind;
    struct slice text;                 /* UTF-8 */
    const struct grammar_frame *frame; /* NULL: none */
    /* Tokens of GRAMMAR_STRUCTURAL; NULL: none. No part of the identity: a cache has one vocabulary. */
    const struct structural_tokens *tokens;
    struct grammar_scope scope;
};

/* How errors call it, e.g. "schema". */
const char *grammar_kind_name(enum grammar_kind kind);

#define GRAMMAR_SOURCE_KEY_BYTES 32
void grammar_source_key(const struct grammar_source *s, uint8_t ret[GRAMMAR_SOURCE_KEY_BYTES]);

struct grammar_source_opts {
    const struct wanted *wanted; /* NULL: always */
    uint64_t cpu_ns;             /* bound on the calling thread's processor time; 0: GRAMMAR_SOURCE_CPU_MS */
    const struct charge *work;   /* pays for memory until the call returns */
    const struct charge *charge; /* pays for the grammar */
};

/* 0; -EINVAL (no grammar), -ENOTSUP, -E2BIG (a limit, or cpu_ns), each with the reason in `e`; -ETIME,
 * -ECANCELED (`wanted`); -ENOMEM. JSON is on the heap during the call, about 20 bytes for each of its own. */
int grammar_source_compile(const struct grammar_source *s, const struct grammar_source_opts *opts,
                           struct grammar **ret, struct err *e);

#endif
