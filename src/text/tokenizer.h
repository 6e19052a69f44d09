/* tokenizer.h - text to token ids and back: byte-level BPE as tokenizer.json describes it.
 *
 * The ids are exactly those of the `tokenizers` library for the same file, or the file is refused: three
 * pre-tokenizers (Qwen2, Qwen3.5, Llama 3), NFC or no normaliser, added tokens, a template that puts tokens
 * before and after the text. Built once in an arena and read-only from then on: any thread may use it, each
 * with its own scratch arena. */
#ifndef PLATEAU_TEXT_TOKENIZER_H
#define PLATEAU_TEXT_TOKENIZER_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/wanted.h"

#define TOKENIZER_FILE_BYTES_MAX ((size_t)64 << 20) /* of each of the two files */
#define TOKENIZER_IDS_MAX        ((uint32_t)1 << 20)
#define TOKENIZER_MERGES_MAX     ((uint32_t)1 << 20)
#define TOKENIZER_ADDED_MAX      ((uint32_t)1 << 16)
#define TOKENIZER_TEXT_BYTES_MAX (((size_t)1 << 31) - 1)

struct tokenizer;

/* Reads DIR/tokenizer.json, and DIR/tokenizer_config.json if it is there (bos_token, eos_token,
 * add_bos_token). Built in `a`, lives as long as `a` does; nothing stays in `a` on failure. 250 000 tokens
 * take 13 MiB of `a`, and 8 MiB more while it reads (for good if the file says ignore_merges). While it
 * reads, jansson holds about six times the file on the heap. 0, -ENOENT (no tokenizer.json), -EINVAL (not
 * usable: `e` says why), -EFBIG, -ENOMEM, or what open and read said. */
int tokenizer_load(struct arena *a, const char *dir, struct tokenizer **ret, struct err *e);
/* The same from the files' contents; `tokenizer_config_json` may be empty. */
int tokenizer_parse(struct arena *a, struct slice tokenizer_json, struct slice tokenizer_config_json,
                    struct tokenizer **ret, struct err *e);
/* Call it before the arena goes. NULL is fine. Everything lies in the arena today, so it does nothing. */
void tokenizer_done(struct tokenizer *t);

/* 1 + the highest id. Ids below it may be no token, and a model may have more rows: never sample those. */
uint32_t tokenizer_vocab_size(const struct tokenizer *t);
/* The bytes a token decodes to (not always whole characters); those of an added token are its content. Empty
 * when `id` is no token. Lives as long as the tokenizer. */
struct slice tokenizer_token_bytes(const struct tokenizer *t, uint32_t id);
bool tokenizer_is_token(const struct tokenizer *t, uint32_t id);
/* An added token marked special: decoding may skip it. */
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id);
bool tokenizer_is_added(const struct tokenizer *t, uint32_t id);
/* The added token with this content, e.g. "<|im_end|>". False when there is none. */
bool tokenizer_find(const struct tokenizer *t, struct slice content, uint32_t *ret);

/* bos_token and eos_token of tokenizer_config.json, as chat templates print them; empty when it names
 * none. */
struct slice tokenizer_bos(const struct tokenizer *t);
struct slice tokenizer_eos(const struct tokenizer *t);
/* Their ids. False when there is no such token. */
bool tokenizer_bos_id(const struct tokenizer *t, uint32_t *ret);
bool tokenizer_eos_id(const struct tokenizer *t, uint32_t *ret);

/* How many tokens lie before some bytes of the text. */
struct tokenizer_marks {
    const size_t *bytes; /* [count], ascending */
    uint32_t *tokens; /* [count]: those that certainly end before each; some fewer inside a word, or where the
                         normaliser has changed the text since the last added token */
    uint32_t count;
};

struct tokenizer_opts {
    bool
        added_tokens; /* match added tokens in the text; false for text that must not be able to write them */
    bool add_special; /* what the post-processor puts around the text (bos); false for rendered chat
                       * templates */
    struct tokenizer_marks *marks; /* to be filled in; NULL: none */
    const struct wanted *wanted;   /* looked at every 64 KiB, also within a piece; NULL: always */
};

/* Without tokenizing, at a nanosecond a byte or less: 1 when the text has more than `tokens` tokens for
 * certain (what is put around it is not counted), 0 when it may have fewer, or what `w` says (NULL: always
 * wanted). */
int tokenizer_exceeds(const struct tokenizer *t, struct slice text, size_t tokens, const struct wanted *w);

/* A text of more bytes has more than `tokens` tokens, whatever it says; SIZE_MAX: no length is too long. */
size_t tokenizer_bytes_max(const struct tokenizer *t, size_t tokens);

/* The token ids of `text` (valid UTF-8) in ids[0 .. *count). Time n log n in the length of the longest piece,
 * linear otherwise; `scratch` needs up to 19 bytes per byte of text that is not NFC, or 3 and 32 per byte of
 * the longest piece, and is rewound before returning. 0, -E2BIG (more than `ids_max` tokens, or more than
 * TOKENIZER_TEXT_BYTES_MAX bytes), -EINVAL (not UTF-8), -ENOMEM, or -ECANCELED or -ETIME as opts->wanted
 * says; *count is untouched on failure, ids[] and marks are not. */
int tokenizer_encode(const struct tokenizer *t, struct arena *scratch, struct slice text,
                     const struct tokenizer_opts *opts, uint32_t *ids, size_t ids_max, size_t *count,
                     struct err *e);

/* Appends the text of the ids; what is not UTF-8 becomes U+FFFD, an id that is no token becomes nothing.
 * detok.h does the same one token at a time. 0, or the buffer's error. */
int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count, bool skip_special,
                     struct buf *ret);

#endif
