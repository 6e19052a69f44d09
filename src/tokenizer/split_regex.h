/* split_regex.h - the regular expressions of tokenizer.json, which split text or replace parts of it.
 *
 * Supported: alternatives of characters, escapes, classes (\p{..}, \s, \d, \w, ranges, nested, &&), greedy
 * and possessive quantifiers of one class, groups, (?i: of ASCII letters, (?=, (?!, \b and $. A group may
 * repeat if its rounds have one length, or if nothing follows it. Everything else is refused at load.
 * Compiled once, then read from any thread. A match never spans more than the text given. A search may go
 * back over what it has read: a pattern of k repetitions in a row takes n^k steps. So a budget bounds the
 * steps of all searches of a text, in proportion to its length. */
#ifndef PLATEAU_TOKENIZER_SPLIT_REGEX_H
#define PLATEAU_TOKENIZER_SPLIT_REGEX_H

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/wanted.h"

#define SPLIT_REGEX_BYTES_MAX 4096 /* longest pattern */

struct split_regex;

/* How many steps the patterns of a tokenizer may take on one text. A step is an item tried at a character, or
 * a character passed, about 5 ns. Used by one thread. */
struct split_budget {
    const struct wanted *wanted;    /* polled every 65,536 steps; may be NULL */
    const struct split_regex *over; /* NULL, or the pattern that found the budget used up */
    uint64_t steps;                 /* left, without the next `look` */
    uint32_t look;                  /* steps until the next look */
};

/* The budget of a text before its patterns are known; `wanted` is kept. */
void split_budget_init(struct split_budget *b, const struct wanted *wanted);
/* Adds the steps of a pattern that is to be searched in `bytes` of text. */
void split_budget_add(struct split_budget *b, const struct split_regex *r, size_t bytes);

/* Where matches are searched. */
struct split_text {
    struct slice text; /* valid UTF-8, unless `mapped` */
    bool mapped;       /* each byte is the character that the byte-level alphabet gives it */
    struct split_budget *budget;
};

/* The character at `at`, which is not the end, and its bytes. */
unsigned split_text_next(const struct split_text *in, size_t at, uint32_t *ret);

/* 0; -EINVAL: `e` names the unsupported part, or says that the pattern could match nothing; -ENOMEM. */
int split_regex_compile(struct arena *a, struct slice pattern, struct split_regex **ret, struct err *e);
/* As `split_regex_compile()`, but for the text itself, without any meaning of its characters. */
int split_regex_literal(struct arena *a, struct slice text, struct split_regex **ret, struct err *e);

/* The expression's own text, at most its first 200 bytes. */
struct slice split_regex_source(const struct split_regex *r);

struct split_match {
    size_t start, end; /* start == end: none until the end of the text */
    int error;         /* 0, -ELOOP (the budget is used up), -ECANCELED, -ETIME */
};
/* The leftmost match at or after `from`, the first alternative that matches. Never empty. */
struct split_match split_regex_find(const struct split_regex *r, const struct split_text *in, size_t from);

#endif
