/* tokenizer.h - text to token ids and back: BPE, WordPiece and Unigram as tokenizer.json describes them.
 *
 * The ids are exactly the same as in the `tokenizers` library for the same file, or the file is refused.
 * docs/tokenizers.md lists what is supported. Built once in an arena and read-only from then on: any thread
 * may use it, each with its own scratch arena. */
#ifndef PLATEAU_TOKENIZER_TOKENIZER_H
#define PLATEAU_TOKENIZER_TOKENIZER_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/wanted.h"

#define TOKENIZER_FILE_BYTES_MAX ((size_t)64 << 20) /* limit of each of the two files */
#define TOKENIZER_IDS_MAX        ((uint32_t)1 << 20)
#define TOKENIZER_MERGES_MAX     ((uint32_t)1 << 20)
#define TOKENIZER_ADDED_MAX      ((uint32_t)1 << 16)
#define TOKENIZER_TEXT_BYTES_MAX (((size_t)1 << 31) - 1)

struct model_files;
struct tokenizer;

/* Reads tokenizer.json, and tokenizer_config.json if it exists (bos_token, eos_token, added tokens).
 * Built in `a`, lives as long as `a` does; nothing stays in `a` on failure. 250 000 tokens take 13 MiB of
 * `a`, and 8 MiB more while it reads (permanently with ignore_merges). While it reads, jansson holds about
 * six times the file on the heap. 0, -ENOENT (no tokenizer.json), -EINVAL (not usable: `e` has the reason),
 * -EFBIG, -ENOMEM, or errors of open and read. */
int tokenizer_load(struct arena *a, struct model_files *files, struct tokenizer **ret, struct err *e);
/* As `tokenizer_load()`, but from the files' contents; `tokenizer_config_json` may be empty. */
int tokenizer_parse(struct arena *a, struct slice tokenizer_json, struct slice tokenizer_config_json,
                    struct tokenizer **ret, struct err *e);
/* Bytes that loading takes at most, by estimate, for a tokenizer.json of that size: about twice what a
 * vocabulary was seen to take, which is one and a half times its file. */
uint64_t tokenizer_planned_bytes(uint64_t file_bytes);

/* 1 + the highest id. Some ids below it are not tokens, and a model may have more rows: never sample
 * those. */
uint32_t tokenizer_vocab_size(const struct tokenizer *t);
/* The bytes a token decodes to behind others (not always whole characters): with the space that a U+2581 or
 * WordPiece's decoder means, and one byte for "<0x0A>". Empty when `id` is not a
 * token. Lives as long as the tokenizer. */
struct slice tokenizer_token_bytes(const struct tokenizer *t, uint32_t id);
/* The token as the vocabulary writes it. */
struct slice tokenizer_token_text(const struct tokenizer *t, uint32_t id);
struct token_decoder;
/* Returns the decoder by which detok.c writes a text's first token. */
const struct token_decoder *tokenizer_decoder(const struct tokenizer *t);
bool tokenizer_is_token(const struct tokenizer *t, uint32_t id);
/* An added token marked special: decoding may skip it. */
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
bool tokenizer_is_added(const struct tokenizer *t, uint32_t id);
/* The added token with this content, e.g. "<|im_end|>". False when not found. */
bool tokenizer_find(const struct tokenizer *t, struct slice content, uint32_t *ret);
/* The bytes of the longest added token at the start of `text`, and its id; 0: there is none. */
size_t tokenizer_added_at(const struct tokenizer *t, struct slice text, uint32_t *ret);

/* bos_token and eos_token of tokenizer_config.json, as chat templates print them; empty when not given. */
struct slice tokenizer_bos(const struct tokenizer *t);
struct slice tokenizer_eos(const struct tokenizer *t);

/* The tokens around two texts, by the post-processor; without one there are none. A text by itself is encoded
 * without them. */
#define TOKENIZER_TEMPLATE_MAX 8 /* before, between and behind, each */
struct tokenizer_template {
    uint32_t ids[TOKENIZER_TEMPLATE_MAX], count;
};
struct tokenizer_pair {
    bool known; /* else its template has another form */
    struct tokenizer_template before, between, behind;
    /* Token types are 1 from the second text on, and between the texts after `zeros` tokens. Otherwise all
     * types are 0. */
    bool typed;
    uint32_t zeros;
};
const struct tokenizer_pair *tokenizer_pair(const struct tokenizer *t);
/* Tokens of the template alone. */
uint32_t tokenizer_pair_fixed(const struct tokenizer_pair *p);
/* Two texts' ids in their template; `ret` has room for all. *second: the first token of type 1; 0: none. */
void tokenizer_pair_join(const struct tokenizer_pair *p, const uint32_t *a, uint32_t a_count,
                         const uint32_t *b, uint32_t b_count, uint32_t *ret, uint32_t *second);
/* The tokens before and behind one text: of tokenizer_opts.add_special. */
void tokenizer_around(const struct tokenizer *t, uint32_t *before, uint32_t *behind);

/* How many tokens precede given bytes of the text. */
struct tokenizer_marks {
    const size_t *bytes; /* [count], ascending */
    uint32_t *tokens;    /* [count]: tokens that certainly end before each; fewer inside a word, or where the
                       * normaliser has changed the text since the last added token */
    uint32_t count;
};

struct tokenizer_opts {
    bool added_tokens; /* match added tokens in the text; false for text that must not produce them */
    bool add_special;  /* add the post-processor's tokens (bos) around the text; false for rendered chat
                       * templates */
    struct tokenizer_marks *marks; /* to be filled in; NULL: not needed */
    const struct wanted *wanted;   /* polled every 64 KiB, also within a piece; NULL: never cancelled */
};

/* Without tokenizing, at a nanosecond a byte or less. 1: the text certainly has more than `tokens` tokens,
 * without the post-processor's. 0: it may have fewer. Or the result of `w` (NULL: never cancelled). */
int tokenizer_exceeds(const struct tokenizer *t, struct slice text, size_t tokens, const struct wanted *w);

/* Any text of more bytes has more than `tokens` tokens; SIZE_MAX: no length is too long. */
size_t tokenizer_bytes_max(const struct tokenizer *t, size_t tokens);

/* The token ids of `text` (valid UTF-8) in ids[0 .. *count). Time n log n in the length of the longest piece,
 * linear otherwise. `scratch` is rewound before returning. It needs up to 19 bytes per byte of text that is
 * not NFC (27 for NFKC), or 3 and 32 per byte of the longest piece, and 128 KiB from 2 KiB of text on. 0.
 * -E2BIG: more than `ids_max` tokens, or more than TOKENIZER_TEXT_BYTES_MAX bytes. -EINVAL: not UTF-8.
 * -ENOMEM. -ELOOP: a pattern of the tokenizer takes too many steps, in proportion to the text; `e` has it.
 * -ECANCELED or -ETIME from opts->wanted. On failure *count is untouched, but ids[] and marks are not. */
int tokenizer_encode(const struct tokenizer *t, struct arena *scratch, struct slice text,
                     const struct tokenizer_opts *opts, uint32_t *ids, size_t ids_max, size_t *count,
                     struct err *e);

/* Appends the text of the ids; bytes that are not UTF-8 become U+FFFD, ids that are not tokens are skipped.
 * In detok.c, which does the same one token at a time. 0, or the buffer's error. */
int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count, bool skip_special,
                     struct buf *ret);

#endif
