/* unicode.h - properties of characters for a tokenizer.
 *
 * Results equal the `tokenizers` library's (its regex engine has Unicode 16): a
 * vocabulary is only meaningful with the splits it was trained on. Pure functions; any thread. */
#ifndef PLATEAU_UNICODE_UNICODE_H
#define PLATEAU_UNICODE_UNICODE_H

#include "base/slice.h"

enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER, /* \p{L} */
    UNICODE_MARK,   /* \p{M} */
    UNICODE_NUMBER, /* \p{N} */
    UNICODE_SPACE   /* \s: White_Space */
};

/* Any number; OTHER for a number that is not a code point. */
enum unicode_class unicode_class(uint32_t code);

/* The general category, numbered as in utf8proc; 0: unassigned. */
unsigned unicode_general_category(uint32_t code);
/* The categories called "L", "Lu", ... as bits 1 << category; 0: no such name. */
uint32_t unicode_categories_named(struct slice name);
/* True for characters that the pre-tokenizers Punctuation and BertPreTokenizer split. */
bool unicode_is_punctuation(uint32_t code);
/* A nonspacing mark that BertNormalizer drops. */
bool unicode_is_bert_accent(uint32_t code);

/* A mark that StripAccents drops. */
bool unicode_is_accent(uint32_t code);
/* A control character that BertNormalizer drops. */
bool unicode_is_bert_control(uint32_t code);
/* The one or two characters of the lower case, of Unicode 17 as far as utf8proc lacks them. */
unsigned unicode_lower(uint32_t code, uint32_t ret[2]);

/* \w: alphabetic, mark, decimal digit, connector punctuation or join control. */
bool unicode_is_word(uint32_t code);

#endif
