/* tokenizer_read.h - the files that read parts of tokenizer.json, for each other. */
#ifndef PLATEAU_TOKENIZER_TOKENIZER_READ_H
#define PLATEAU_TOKENIZER_TOKENIZER_READ_H

#include "base/slice.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct err;
struct tokenizer;

/* json_string_value etc. take NULL and return NULL, which becomes an empty slice. */
static inline struct slice json_slice(const json_t *string)
{
    return (struct slice){json_string_value(string), json_string_length(string)};
}

static inline bool json_is(const json_t *string, const char *value)
{
    return json_is_string(string) && slice_eq(json_slice(string), slice_of(value));
}

/* Absent, null, false, zero and "" all mean "not used". */
static inline bool json_is_off(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_number(value) && json_number_value(value) == 0);
}

int tokenizer_no_memory(struct err *e);
/* An id from 0 to TOKENIZER_IDS_MAX - 1, of `token`. */
int tokenizer_id_check(const json_t *value, struct slice token, uint32_t *ret, struct err *e);

/* The members of a list like {"type": "Sequence", KEY: [...]}, or `stage` itself as the only one. */
size_t tokenizer_stage_count(const json_t *stage, const char *key);
const json_t *tokenizer_stage_member(const json_t *stage, const char *key, size_t index);
struct slice tokenizer_stage_type(const json_t *stage);

int tokenizer_read_pre_tokenizer(struct tokenizer *t, struct arena *a, const json_t *pre, struct err *e);
/* model.type, and what is not supported of BPE. */
int tokenizer_read_kind(struct tokenizer *t, const json_t *model, struct err *e);
/* Behind the vocabulary. Not for BPE from bytes. */
int tokenizer_read_model(struct tokenizer *t, struct arena *a, const json_t *model, struct err *e);
/* A Unigram vocabulary as an object of ids, which is the caller's. */
int tokenizer_unigram_ids(const json_t *vocab, json_t **ret, struct err *e);
/* The two tokens of a merge: "A B" or ["A", "B"]. */
bool tokenizer_merge_parts(const json_t *merge, struct slice *left, struct slice *right);
/* Every character of a text is in some token. */
bool tokenizer_covers_all(const struct tokenizer *t);
/* Adds to added_tokens of `root` (tokenizer.json) the tokens and flags that `config` (tokenizer_config.json)
 * has. `vocab` maps tokens to ids. What is not usable in `root` is left for its readers. 0, -EINVAL, -ENOTSUP
 * or -ENOMEM. */
int tokenizer_merge_added(json_t *root, const json_t *vocab, const json_t *config, struct err *e);
int tokenizer_read_normalizer(struct tokenizer *t, struct arena *a, const json_t *normalizer, struct err *e);
int tokenizer_read_decoder(struct tokenizer *t, struct arena *a, const json_t *decoder, struct err *e);
int tokenizer_read_post_processor(struct tokenizer *t, const json_t *post, struct err *e);

#endif
