/* bpe_chars.h - byte pair encoding that starts from characters, as SentencePiece does it.
 *
 * A character without a token becomes the tokens of its bytes ("<0xE2>"), the unknown token, or nothing.
 * Filled while the tokenizer is read, then read from any thread. */
#ifndef PLATEAU_TOKENIZER_BPE_CHARS_H
#define PLATEAU_TOKENIZER_BPE_CHARS_H

#include "base/hash.h"

struct bpe_ids;
struct piece_ids;
struct wanted;

#define BPE_CHARS_NONE UINT32_MAX

struct bpe_chars {
    const struct bpe *bpe;
    const struct hash_map *by_text;
    uint32_t bytes[256]; /* BPE_CHARS_NONE: no such token */
    uint32_t unknown;    /* BPE_CHARS_NONE: unknown characters have no token */
    bool fuse_unknown;   /* one token for several in a row */
    struct slice mark; /* no merge crosses the place before a mark that follows another character; or empty */
};

/* Appends the tokens of `piece`, which is valid UTF-8. As bpe_encode(), and takes another 4 bytes of scratch
 * for each byte of a stretch between marks. Stretches that are in `known` are not merged again. */
int bpe_chars_encode(const struct bpe_chars *c, struct arena *scratch, struct slice piece,
                     struct piece_ids *known, const struct wanted *w, struct bpe_ids *out);

#endif
