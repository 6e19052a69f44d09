/* normalizer.h - the normalizer of a tokenizer.json: stages that change the text before it is split.
 *
 * Filled while the file is read, then read from any thread. */
#ifndef PLATEAU_TOKENIZER_NORMALIZER_H
#define PLATEAU_TOKENIZER_NORMALIZER_H

#include "tokenizer/charsmap.h"

#include "base/arena.h"
#include "base/slice.h"
#include "unicode/unicode_normal.h"

struct split_budget;
struct split_regex;

#define NORMALIZER_STAGES_MAX 16

struct normalizer_stage {
    enum {
        NORMALIZE_FORM,
        NORMALIZE_LOWERCASE,
        NORMALIZE_MARKS,        /* StripAccents: drops every mark */
        NORMALIZE_BERT_ACCENTS, /* drops nonspacing marks */
        NORMALIZE_BERT_CLEAN,   /* drops controls, blanks become spaces */
        NORMALIZE_BERT_CHINESE, /* spaces around each ideograph */
        NORMALIZE_NMT,          /* drops other controls, other blanks become spaces */
        NORMALIZE_STRIP,
        NORMALIZE_REPLACE,
        NORMALIZE_PREPEND,
        NORMALIZE_CHARSMAP
    } kind;
    enum unicode_form form;
    bool left, right; /* NORMALIZE_STRIP */
    const struct split_regex *regex;
    struct slice content; /* text that replaces a match, or is prepended */
    bool keeps_bytes;     /* NORMALIZE_REPLACE: one space becomes one longer character */
    struct charsmap charsmap;
};

struct normalizer {
    struct normalizer_stage stages[NORMALIZER_STAGES_MAX];
    uint32_t count;
};

/* The normalised text: `text` itself, a part of it, or a copy in `scratch`, which each stage that changes
 * something adds to. 0, -ENOMEM, -ELOOP (the budget is used up), -ECANCELED or -ETIME. */
int normalizer_run(const struct normalizer *n, struct arena *scratch, struct slice text,
                   struct split_budget *b, struct slice *ret);

#endif
