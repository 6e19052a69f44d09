/* grammar_state.h - the insides of a grammar and of its builder, for the files of this folder.
 *
 * `symbols` holds all alternatives one after the other, each with its end. An item of a parser is a dot, the
 * index of the symbol that comes next, with the row that its rule began in. */
#ifndef PLATEAU_GRAMMAR_GRAMMAR_STATE_H
#define PLATEAU_GRAMMAR_GRAMMAR_STATE_H

#include "grammar/grammar.h"

#include "base/charge.h"

struct rx_store;

/* A symbol: a rule's index, a terminal's index with TERMINAL, or the rule that ends here with END. */
enum { DOT_TERMINAL = 1u << 30, DOT_END = 1u << 31, DOT_INDEX = (1u << 30) - 1 };

struct corner {
    uint32_t dot, rule; /* the symbol may stand first in `rule`, at `dot` */
};

struct terminal {
    rx_id rx;       /* never nullable; RX_NONE: a special token */
    uint32_t token; /* id of a special token */
};

struct grammar {
    struct arena *arena;
    struct rx_store *rx;
    rx_id plain; /* one character of a string that is not escaped: what slices of vocabularies consist of */
    uint8_t classes[256]; /* [byte]: class of bytes that terminals do not tell apart */
    uint32_t class_count;
    uint32_t rule_count, terminal_count, dot_count;
    const uint32_t *symbols;
    const uint32_t *alternatives;    /* dots where alternatives begin, by rule */
    const uint32_t *alternatives_of; /* [rule_count + 1]: where a rule's begin in `alternatives` */
    const uint8_t *nullable;         /* by rule */
    const struct terminal *terminals;
    /* Left corners of a symbol (rules first, then terminals): where it may stand first. */
    const struct corner *corners;
    const uint32_t *corners_of; /* [rule_count + terminal_count + 1] */
    uint32_t start;             /* a rule without other uses, with one alternative of one symbol */
};

static inline uint32_t grammar_symbol(const struct grammar *g, uint32_t symbol)
{
    return (symbol & DOT_INDEX) + (symbol & DOT_TERMINAL ? g->rule_count : 0);
}

/* ---- The builder ---- */

struct words { /* a growing array */
    uint32_t *at;
    uint32_t count, room;
};

enum symbol_kind { SYMBOL_RULE, SYMBOL_TERMINAL, SYMBOL_TOKEN };

struct grammar_builder {
    struct arena *arena;
    struct grammar_limits limits;
    struct charge charge;
    struct rx_store *rx;
    struct words symbols; /* kind, value (rx_id or token), next in its bucket: three words each */
    struct words rows;    /* rule, count, symbols: of each alternative */
    uint32_t alternatives;
    uint32_t *buckets; /* hash table of terminals and tokens */
    bool failed, too_large;
};

enum { BUCKETS = 1 << 12 };

/* The work of grammar_finish(): alternatives by rule, which its passes rewrite. */
struct production {
    uint32_t next;  /* alternative of the same rule, or NO_PRODUCTION */
    uint32_t at;    /* in `symbols` */
    uint32_t count; /* 0: the empty text */
};
#define NO_PRODUCTION UINT32_MAX

struct draft {
    struct grammar_builder *b;
    struct rx_store *rx;
    struct arena *arena;
    uint32_t symbol_count;
    uint8_t *kinds;             /* enum symbol_kind, of each symbol */
    uint32_t *values;           /* rx_id or token */
    uint32_t *first_production; /* [rule]: its first row, or NO_PRODUCTION */
    struct production *productions;
    uint32_t production_count;
    uint32_t *symbols; /* symbols of all rows */
    uint32_t start;
};

/* True when the work is no longer wanted: the builder's store has failed then. */
bool grammar_late(struct draft *d);
/* Rules that are regular and small become terminals, and so do neighbouring terminals. */
bool grammar_inline(struct draft *d);
/* Which rules and terminals derive some text at all, and which are reachable then. 0, -EINVAL, -E2BIG. */
int grammar_reduce(struct draft *d, uint8_t *productive, uint8_t *reachable, struct err *e);

#endif
