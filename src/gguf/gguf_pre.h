/* gguf_pre.h - the pre-tokenizers that tokenizer.ggml.pre names, as data. Constant. */
#ifndef PLATEAU_GGUF_GGUF_PRE_H
#define PLATEAU_GGUF_GGUF_PRE_H

#include <stdbool.h>
#include <stddef.h>

struct slice;

#define GGUF_PRE_SPLITS_MAX 6

struct gguf_pre {
    const char *names[13];
    const char *patterns[GGUF_PRE_SPLITS_MAX]; /* one split after another; none: GPT-2's own */
    bool digits;                               /* True if digits stand alone in front of GPT-2's own */
    bool blanks; /* True if tokens are text with U+2581 for a blank, not bytes, and nothing splits */
    bool nfc, ignore_merges, bos;
};

/* NULL: a name that is not in the table. */
const struct gguf_pre *gguf_pre_find(struct slice name);

#endif
