/* unicode.h - what a tokenizer needs to know about characters: their class and normalisation form C.
 *
 * Answers as the `tokenizers` library does (its regex engine knows Unicode 16, its normaliser Unicode 9): a
 * vocabulary is only meaningful with the splits it was trained on. Pure functions; any thread. */
#ifndef PLATEAU_TEXT_UNICODE_H
#define PLATEAU_TEXT_UNICODE_H

#include "base/arena.h"
#include "base/slice.h"
#include "base/wanted.h"

enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER, /* \p{L} */
    UNICODE_MARK,   /* \p{M} */
    UNICODE_NUMBER, /* \p{N} */
    UNICODE_SPACE   /* \s: White_Space */
};

/* Any number; what is no code point is OTHER. */
enum unicode_class unicode_class(uint32_t code);

/* \w: alphabetic, mark, decimal digit, connector punctuation or join control. */
bool unicode_is_word(uint32_t code);

/* Normalisation form C of `text`, which is valid UTF-8: `text` itself when it is in that form already, else a
 * copy in `scratch` of at most three times the size. Linear time. Looks at `w` (may be NULL) every 64 KiB,
 * but a run of marks is ordered and composed at a stretch. 0, -ENOMEM, or what `w` says; `scratch` is left as
 * it is then. */
int unicode_nfc(struct arena *scratch, struct slice text, const struct wanted *w, struct slice *ret);

#endif
