/* bpe.h - byte pair encoding: the merge table and its application to one piece.
 *
 * Built once, then read from any thread. A piece starts as one token per byte; the adjacent pair of lowest
 * rank (leftmost among equals) is merged until no adjacent pair has a rank. */
#ifndef PLATEAU_TOKENIZER_BPE_H
#define PLATEAU_TOKENIZER_BPE_H

#include "base/arena.h"
#include "base/slice.h"
#include "base/wanted.h"

#include <errno.h>
#include <stdbool.h>

struct bpe_slot;

/* A byte without a token. */
#define BPE_NONE UINT32_MAX

struct bpe {
    uint32_t byte_ids[256];
    bool gaps;      /* some bytes are BPE_NONE: they are left out of a text */
    uint32_t ranks; /* 1 + the highest */
    uint32_t slots_log2;
    struct bpe_slot *slots; /* 16 bytes each, at most two thirds full */
};

struct bpe_merge {
    uint32_t left, right; /* ids */
    uint32_t merged;
    uint32_t rank; /* < UINT32_MAX */
};

/* Output array of ids, owned by the caller. */
struct bpe_ids {
    uint32_t *ids;
    size_t count, max;
};

/* A table for up to `merges_max` merges in `a`. The caller sets byte_ids. 0 or -ENOMEM. */
int bpe_init(struct bpe *b, struct arena *a, uint32_t merges_max);
/* For a pair added twice the later merge applies, as in the reference. */
void bpe_add(struct bpe *b, const struct bpe_merge *merge);

/* 0, or -E2BIG when it is full. */
static inline int bpe_ids_put(struct bpe_ids *out, uint32_t id)
{
    if (out->count == out->max)
        return -E2BIG;
    out->ids[out->count++] = id;
    return 0;
}

/* Input of merges: a token for each byte, or tokens given. */
struct bpe_piece {
    const char *bytes;
    const uint32_t *ids; /* NULL: the bytes' */
    uint32_t count;
};

/* Appends the tokens of `piece` (fewer than 2^31 bytes) in n log n steps for n bytes. Above a small n it
 * takes 32 n bytes of `scratch` (33 n with gaps), and 4 for each rank above 4 KiB, and releases them before
 * it returns. Polls `w` (may be NULL) every 64 Ki steps. 0, -E2BIG (`out` is full; some tokens may be in it),
 * -ENOMEM, or the result of `w`. */
int bpe_encode(const struct bpe *b, struct arena *scratch, struct slice piece, const struct wanted *w,
               struct bpe_ids *out);
/* As `bpe_encode()`, but of a piece whose first tokens are known; `piece->count` < 2^31. */
int bpe_encode_piece(const struct bpe *b, struct arena *scratch, const struct bpe_piece *piece,
                     const struct wanted *w, struct bpe_ids *out);

#endif
