/* tokenizer_state.h - the fields of a tokenizer, for tokenizer.c (which uses it) and tokenizer_json.c (which
 * fills it). Private to these two. Constant once filled. */
#ifndef PLATEAU_TOKENIZER_TOKENIZER_STATE_H
#define PLATEAU_TOKENIZER_TOKENIZER_STATE_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_chars.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pretok_stage.h"
#include "tokenizer/token_bound.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unigram.h"
#include "tokenizer/vocab.h"
#include "tokenizer/wordpiece.h"

#include "base/err.h"

#include <jansson.h>

enum tokenizer_model { TOKENIZER_BYTES, TOKENIZER_CHARS, TOKENIZER_WORDPIECE, TOKENIZER_UNIGRAM };

struct tokenizer {
    enum tokenizer_model model; /* BPE from bytes, BPE from characters, ... */
    struct pretok pretok;
    bool byte_level; /* the pre-tokenizer maps bytes to the byte-level alphabet */
    struct normalizer normalizer;
    struct token_decoder decoder;
    bool ignore_merges; /* a piece that is a token is not built by merges */
    struct vocab vocab; /* decoded tokens */
    struct vocab texts; /* tokens as the file writes them; equal to `vocab` where a byte-level decoder reads
                         * it */
    struct bpe bpe;
    struct bpe_chars chars;
    struct wordpiece wordpiece;
    struct unigram unigram;
    struct hash_map by_bytes; /* from the bytes that text has, to the id; kept unless BPE needs only merges */
    struct added_set added_all;                   /* by content as written: for tokenizer_find */
    struct added_set added_raw, added_normalized; /* for matching */
    uint32_t prefix[TOKENIZER_TEMPLATE_MAX], prefix_count;
    uint32_t suffix[TOKENIZER_TEMPLATE_MAX], suffix_count;
    struct tokenizer_pair pair;
    struct slice bos, eos; /* empty: not given */
    struct token_bound bound;
};

/* A tokenizer's files as objects. */
struct tokenizer_source {
    json_t *root;   /* tokenizer.json; the reader changes its added_tokens */
    json_t *config; /* tokenizer_config.json; NULL: no such file */
    bool view;      /* both are of model_files_is_view(): added_tokens is whole, and add_bos_token counts */
};

/* Fills `t` (zeroed). Its data lies in `a`. 0, -EINVAL, -ENOTSUP or -ENOMEM; `e` has the reason. */
int tokenizer_json_read(struct tokenizer *t, struct arena *a, const struct tokenizer_source *in,
                        struct err *e);

#endif
