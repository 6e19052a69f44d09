/* charsmap.h - the table of SentencePiece's normalizer, as the Precompiled stage of tokenizer.json has it: a
 * double-array trie from character sequences to their replacements.
 *
 * The bytes are a stranger's. Lookups check every index. */
#ifndef PLATEAU_TOKENIZER_CHARSMAP_H
#define PLATEAU_TOKENIZER_CHARSMAP_H

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/wanted.h"

struct charsmap {
    const uint32_t *units;
    uint32_t unit_count;
    struct slice texts; /* replacements, each ended by a zero byte */
};

struct charsmap_output {
    char *ptr; /* NULL: only counted */
    size_t len;
};

/* From base64. Empty: a table of nothing. 0, -EINVAL, -ENOMEM. */
int charsmap_read(struct charsmap *m, struct arena *a, struct slice base64, struct err *e);
/* Replaces what the table has, first by grapheme clusters of under six bytes, then by characters. 0, or the
 * result of `w`. */
int charsmap_run(const struct charsmap *m, struct slice text, const struct wanted *w,
                 struct charsmap_output *out);

#endif
