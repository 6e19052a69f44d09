/* piece_ids.h - the tokens of short pieces that came before in the same text, for models that tokenize each
 * piece by itself.
 *
 * Words come again. A table in the scratch of one encoding, one thread's. A piece takes the place of another
 * one with the same hash. */
#ifndef PLATEAU_TOKENIZER_PIECE_IDS_H
#define PLATEAU_TOKENIZER_PIECE_IDS_H

#include "base/arena.h"

struct bpe_ids;
struct slice;

#define PIECE_IDS_BYTES ((size_t)128 << 10) /* bytes of scratch */

struct piece_entry;

struct piece_ids {
    struct piece_entry *entries; /* NULL: none are kept */
};

/* Empty, in `scratch`. 0 or -ENOMEM. */
int piece_ids_init(struct piece_ids *p, struct arena *scratch);
/* Appends the tokens of `piece`. 1; 0: they are not known; -E2BIG. */
int piece_ids_put(const struct piece_ids *p, struct slice piece, struct bpe_ids *out);
/* The tokens of `piece` are those in `out` from `first` on. Long pieces and those of many tokens are not
 * kept. */
void piece_ids_keep(struct piece_ids *p, struct slice piece, const struct bpe_ids *out, size_t first);

#endif
