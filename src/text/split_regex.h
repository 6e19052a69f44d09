/* split_regex.h - the regular expressions of tokenizer.json, which split text or replace parts of it.
 *
 * Supported: alternatives of characters, escapes, classes (\p{..}, \s, \d, \w, ranges, nested, &&), greedy
 * and possessive quantifiers of one class, groups once or with "?", (?i: of ASCII letters, (?=, (?! and $.
 * Everything else is refused at load. Compiled once, then read from any thread. A match never spans more than
 * the text given; a class repeats in linear time, and no group repeats, so there is no exponential search. */
#ifndef PLATEAU_TEXT_SPLIT_REGEX_H
#define PLATEAU_TEXT_SPLIT_REGEX_H

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/wanted.h"

#define SPLIT_REGEX_BYTES_MAX 4096 /* of a pattern */

struct split_regex;

/* Where matches are searched. */
struct split_text {
    struct slice text;           /* valid UTF-8, unless `mapped` */
    bool mapped;                 /* each byte is the character that the byte-level alphabet gives it */
    const struct wanted *wanted; /* may be NULL */
};

/* The character at `at`, which is not the end, and its bytes. */
unsigned split_text_next(const struct split_text *in, size_t at, uint32_t *ret);

/* 0; -EINVAL: `e` names the unsupported part, or says that the pattern could match nothing; -ENOMEM. */
int split_regex_compile(struct arena *a, struct slice pattern, struct split_regex **ret, struct err *e);
/* The same for the text itself, without any meaning of its characters. */
int split_regex_literal(struct arena *a, struct slice text, struct split_regex **ret, struct err *e);

struct split_match {
    size_t start, end; /* start == end: none until the end of the text */
    int error;         /* of `wanted` */
};
/* The leftmost match at or after `from`, the first alternative that matches. Never empty. */
struct split_match split_regex_find(const struct split_regex *r, const struct split_text *in, size_t from);

#endif
