/* added.h - added tokens: tokens matched in the text itself, before it is split into pieces.
 *
 * Two sets, as in the reference: tokens matched in the raw text, and tokens ("normalized") matched afterwards
 * in the normalised text between them. Within a set the leftmost match wins, and the longest at one place.
 * Built once, then read from any thread. */
#ifndef PLATEAU_TOKENIZER_ADDED_H
#define PLATEAU_TOKENIZER_ADDED_H

#include "base/slice.h"
#include "base/wanted.h"

struct added_token {
    struct slice content; /* its text; not empty */
    uint32_t id;
    bool single_word;    /* only where no word character is adjacent */
    bool lstrip, rstrip; /* the match includes white space before it, after it */
};

struct added_set {
    const struct added_token *tokens; /* in the order of their bytes */
    uint32_t count;
    bool starts[256]; /* some token starts with this byte */
};

/* Sorts `tokens` (owned by the set from then on) and builds the set over them. Returns NULL, or a token whose
 * content occurs twice: the set cannot be used then. */
const struct added_token *added_set_init(struct added_set *set, struct added_token *tokens, uint32_t count);

/* The token with this content; false when not found. */
bool added_set_find(const struct added_set *set, struct slice content, uint32_t *ret);

/* The longest token at the start of `text`; NULL: none. */
const struct added_token *added_set_longest(const struct added_set *set, struct slice text);

/* A walk over the matches in a text. */
struct added_walk {
    const struct added_set *set;
    struct slice text;
    size_t search;                  /* where the next match may start */
    size_t from;                    /* end of the last match and its white space */
    size_t space_from, space_until; /* a run of white space already measured */
    const struct wanted *wanted;
    size_t look; /* where to poll next */
};

struct added_match {
    struct slice before; /* the text since the last match; may be empty */
    bool found;          /* false: `before` is the rest, the walk is over */
    int error;           /* result of wanted_check() that ended the walk; the rest is unknown */
    uint32_t id;
};

/* It is polled every 64 KiB; NULL: never. */
void added_walk_init(struct added_walk *w, const struct added_set *set, struct slice text,
                     const struct wanted *wanted);
/* The next match. Time: the text's length times the length of the longest token, in all. */
struct added_match added_walk_next(struct added_walk *w);

#endif
