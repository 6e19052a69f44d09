/* front_text.h - what the parsers of grammars as text share: position, names of rules, rows of symbols. */
#ifndef PLATEAU_CONSTRAINT_FRONT_TEXT_H
#define PLATEAU_CONSTRAINT_FRONT_TEXT_H

#include "base/arena.h"
#include "base/err.h"
#include "grammar/grammar_expr.h"
#include "rx/rx_parse.h"

#define FRONT_TEXT_BYTES_MAX  ((size_t)256 << 10) /* bytes of a grammar as text */
#define FRONT_TEXT_WORK_BYTES ((size_t)16 << 20)  /* memory of a parse, at most */
#define FRONT_TEXT_DEPTH_MAX  64                  /* groups within groups */
#define FRONT_TEXT_REPEAT_MAX 1000                /* {m,n} and ~m..n */
#define FRONT_TEXT_NAMES      1024                /* places in the table of names */

struct front_name {
    struct slice name;
    uint32_t line; /* where it was used first */
    bool defined;
    sym_id rule;
    /* Set for Lark's terminals. */
    const char *body, *body_end;
    uint32_t body_line;
    bool busy, known;
    struct expr piece;
    bool lazy;          /* Lark's rules: matches as few bytes as possible */
    const char *suffix; /* the expression of [suffix=...]; NULL: none */
    struct front_name *next, *listed;
};

struct schema_opts;

struct front_text {
    struct grammar_builder *b;
    struct arena *a;
    struct err *e;
    int error;
    const char *at, *end;
    uint32_t line, depth;
    /* Set for Lark: how characters are written, the expression that terminals lie within (RX_NONE: any), and
     * whether rules are expressions, too. */
    rx_encode_fn *encode;
    void *encode_arg;
    rx_id within;
    bool flat;
    const struct schema_opts *schemas; /* options of its %json blocks; NULL: these are refused */
    struct front_name *names[FRONT_TEXT_NAMES];
    struct front_name *first, **last;
};

int front_text_open(struct front_text *f, struct grammar_builder *b, struct slice text,
                    const struct charge *charge, const char *what, struct err *e);
void front_text_close(struct front_text *f);
/* Keeps the first failure, with the line. */
int front_text_fail(struct front_text *f, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The name's entry, a new one if it was not there; NULL: no memory. */
struct front_name *front_text_name(struct front_text *f, struct slice name);

static inline bool front_text_has(const struct front_text *f, char c)
{
    return f->at < f->end && *f->at == c;
}

/* The next character, decoded and taken; of broken UTF-8 the work fails. */
uint32_t front_text_character(struct front_text *f);
/* The character that an escape stands for, after its backslash: by n, r, t, xHH, uHHHH, UHHHHHHHH, or one of
 * `plain` itself. Another one fails. */
uint32_t front_text_escape(struct front_text *f, const char *plain);
/* A decimal number up to FRONT_TEXT_REPEAT_MAX, taken. */
uint32_t front_text_number(struct front_text *f);

/* A growing row of pieces; neighbouring regular ones become one. */
struct front_sequence {
    struct expr *pieces;
    uint32_t count, capacity;
};
void front_sequence_add(struct front_text *f, struct front_sequence *row, struct expr p);
/* Alternatives one by one: an expression while all are regular, else a rule. */
struct front_alternatives {
    bool some, rule_made;
    rx_id regular; /* union of the regular ones */
    sym_id rule;
};
void front_alternatives_add(struct front_text *f, struct front_alternatives *ways,
                            const struct front_sequence *row);
struct expr front_alternatives_done(struct front_text *f, const struct front_alternatives *ways);

#endif
