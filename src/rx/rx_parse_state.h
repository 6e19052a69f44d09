/* rx_parse_state.h - the insides of the parser of patterns. */
#ifndef PLATEAU_RX_RX_PARSE_STATE_H
#define PLATEAU_RX_RX_PARSE_STATE_H

#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rx_parse_opts;
struct rx_set;
struct rx_store;

struct rx_parser {
    struct rx_store *store;
    struct slice text;
    size_t at;
    const struct rx_parse_opts *opts;
    struct err *e;
    uint32_t depth; /* nesting of groups */
    bool dot_all;   /* within (?s:...), where . is any character */
    int result;     /* the first failure, which ends everything */
};

/* Notes a failure at byte `at`; returns false. */
bool rx_parse_fail(struct rx_parser *p, size_t at, const char *what);
/* The code point at the parser's place, which it passes; false at the end and at broken UTF-8. */
bool rx_parse_code(struct rx_parser *p, uint32_t *ret);
static inline bool rx_parse_next_is(const struct rx_parser *p, char c)
{
    return p->at < p->text.len && p->text.ptr[p->at] == c;
}

/* After a backslash: a set, and whether it is a class like \d. `in_class`: within [...]. */
bool rx_parse_escape(struct rx_parser *p, bool in_class, struct rx_set *set, bool *many);
/* After [: to the closing bracket. */
bool rx_parse_class(struct rx_parser *p, struct rx_set *set);

#endif
