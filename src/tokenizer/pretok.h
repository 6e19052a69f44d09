/* pretok.h - splits text into the pieces that byte pair encoding works on.
 *
 * Each rule is one of the regular expressions found in tokenizer.json files, as code. Pure; any thread. */
#ifndef PLATEAU_TOKENIZER_PRETOK_H
#define PLATEAU_TOKENIZER_PRETOK_H

#include "base/slice.h"
#include "base/wanted.h"

enum pretok_rule {
    PRETOK_QWEN2,   /* Qwen2, Qwen2.5, Qwen3, Qwen3-Next, Qwen3-VL */
    PRETOK_QWEN3_5, /* marks join letters */
    PRETOK_LLAMA3   /* up to three digits in a piece */
};

/* The rule whose regular expression is exactly this. False when not found. */
bool pretok_rule_find(struct slice regex, enum pretok_rule *ret);
struct slice pretok_rule_regex(enum pretok_rule rule);

/* End of the piece that starts at `from` < text.len: at least one character. `text` is valid UTF-8 and must
 * be whole: (?!\S) treats its end as the end. All pieces of a text take linear time together. SIZE_MAX:
 * cancelled by `w` (may be NULL). */
size_t pretok_end(enum pretok_rule rule, struct slice text, size_t from, const struct wanted *w);

#endif
