/* pretok_stage.h - the pre-tokenizer of a tokenizer.json: stages, each of which splits the pieces of the one
 * before it.
 *
 * Filled while the file is read, then read from any thread. */
#ifndef PLATEAU_TOKENIZER_PRETOK_STAGE_H
#define PLATEAU_TOKENIZER_PRETOK_STAGE_H

#include "tokenizer/pretok.h"

#include "base/arena.h"

struct split_budget;
struct split_regex;

#define PRETOK_STAGES_MAX 16

/* Treatment of a match and of the text between two matches. */
enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS /* adjacent matches are one piece, too */
};

enum prepend_scheme { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct pretok_stage {
    enum {
        STAGE_RULE,        /* a regex of pretok.h, isolated */
        STAGE_SPLIT,       /* any other regex */
        STAGE_PUNCTUATION, /* each character of unicode_is_punctuation() */
        STAGE_SPACE,       /* a space before a piece that has none */
        STAGE_METASPACE    /* blanks become `replacement` */
    } kind;
    enum pretok_rule rule;
    const struct split_regex *regex;
    enum split_behavior behavior;
    bool invert; /* matches and gaps swap roles */
    bool mapped; /* after ByteLevel: characters of the byte-level alphabet */
    enum prepend_scheme prepend;
    bool splits; /* STAGE_METASPACE */
    struct slice replacement;
};

struct pretok {
    struct pretok_stage stages[PRETOK_STAGES_MAX];
    uint32_t count;
};

struct pretok_piece {
    struct slice text;
    bool first;  /* it starts where the whole text starts */
    bool copied; /* it lies in `scratch` */
    /* Bytes at the start of the first piece that the whole text lacks. So a piece after them is first,
     * too. */
    size_t added;
};

/* An error of `emit` ends the run. */
typedef int pretok_emit_fn(void *arg, const struct pretok_piece *piece);

struct pretok_run {
    const struct pretok *pretok;
    struct arena *scratch;
    struct split_budget *budget; /* budget of its patterns; all stages poll its flag */
    pretok_emit_fn *emit;
    void *arg;
};

/* Gives every piece of `text` to run->emit, in order. A stage that changes the text takes up to four bytes of
 * scratch for each of its bytes, until it is done with them. 0, -ENOMEM, -ELOOP (the budget is used up), or
 * the result of the budget's flag or `emit`. */
int pretok_pieces(const struct pretok_run *run, const struct pretok_piece *text);

#endif
