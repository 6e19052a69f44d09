/* split_regex_program.h - a compiled expression, for split_regex.c and split_regex_parse.c. */
#ifndef PLATEAU_TOKENIZER_SPLIT_REGEX_PROGRAM_H
#define PLATEAU_TOKENIZER_SPLIT_REGEX_PROGRAM_H

#include "tokenizer/split_regex.h"

#include "unicode/unicode_script.h"

enum {
    REGEX_ITEMS_MAX = 512, /* items of a whole expression */
    REGEX_SETS_MAX = 256,
    REGEX_PARTS_MAX = 2048,
    REGEX_ALTS_MAX = 128,
    REGEX_DEPTH_MAX = 8 /* nesting of groups, and of classes */
};

/* Part of a class: characters from `first` to `last`, or of the categories, or what another class has. */
struct regex_part {
    enum { PART_RANGE, PART_CATEGORIES, PART_SCRIPT, PART_SPACE, PART_WORD, PART_SET } kind;
    bool negated;
    uint32_t first, last; /* PART_SET: `first` is its index */
    uint32_t categories;  /* bits of unicode_general_category() */
    enum unicode_script script;
};

struct regex_set {
    uint64_t ascii[2]; /* the answer for characters below 0x80 */
    uint32_t part, part_count;
    bool negated;
};

struct regex_item {
    enum { ITEM_SET, ITEM_GROUP, ITEM_AHEAD, ITEM_END, ITEM_BOUNDARY } kind;
    bool negated;    /* ITEM_AHEAD */
    bool possessive; /* ITEM_SET */
    uint32_t set;
    uint32_t min, max;
    uint32_t chars;          /* characters of each round of a group that repeats; 0: they differ */
    uint32_t alt, alt_count; /* a group's alternatives in regex_alt_of[] */
};

/* Items that match one after the other. */
struct regex_alt {
    uint32_t item, item_count;
};

struct split_regex {
    struct regex_item *items;
    struct regex_set *sets;
    struct regex_part *parts;
    struct regex_alt *alts;
    uint32_t item_count, set_count, part_count, alt_count;
    uint32_t top, top_count; /* alternatives of the whole expression */
    bool repeats;            /* True if a group repeats */
    struct slice source;     /* its first bytes, for messages */
    uint64_t starts[2];      /* ASCII characters with which a match can start */
};

/* Whether a set has a character, without the table of ASCII. */
bool regex_set_has_slow(const struct split_regex *r, uint32_t set, uint32_t code);

#endif
