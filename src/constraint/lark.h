/* lark.h - a subset of Lark's grammars to rules. The start rule is `start`.
 *
 * Supported: rules and terminals with | ? * + ~n ~n..m {n,m} (groups) [optional groups], "strings" with the
 * flag i, "a".."z", /regular expressions/ (rx_parse.h), // and # comments, aliases and priorities (without
 * effect), the prefixes ? ! _, and %import common.NAME of: DIGIT HEXDIGIT INT SIGNED_INT DECIMAL FLOAT
 * SIGNED_FLOAT NUMBER SIGNED_NUMBER ESCAPED_STRING LCASE_LETTER UCASE_LETTER LETTER WORD CNAME WS_INLINE WS
 * CR LF NEWLINE SH_COMMENT CPP_COMMENT C_COMMENT SQL_COMMENT.
 * Of llguidance: %json {SCHEMA} in a rule, with `x-guidance`; the attributes [lazy] and [suffix=TERMINAL],
 * whose rule matches as few bytes as possible. %llguidance {...}, [capture], [stop_capture] have no effect.
 * Refused by name: other attributes and options of these, %ignore, %declare, %override, %extend, %lark,
 * %regex, templates, other imports, flags of expressions, tokens as <name>. Terminals match any of their
 * texts, not the longest one. Limits: FRONT_TEXT_* in front_text.h. */
#ifndef PLATEAU_CONSTRAINT_LARK_H
#define PLATEAU_CONSTRAINT_LARK_H

#include "grammar/grammar.h"
#include "rx/rx_parse.h"

/* As `gbnf_compile()`, but without %json. */
int lark_compile(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                 struct err *e);

struct schema_opts;

/* How its texts are written in another notation. */
struct lark_opts {
    const struct charge *charge;
    rx_encode_fn *encode; /* NULL: as UTF-8 */
    void *encode_arg;
    rx_id within;                      /* only texts of this expression; RX_NONE: all */
    const struct schema_opts *schemas; /* options of %json blocks, in no other notation; NULL: these are
                                        * refused */
};

/* With `within`, a grammar without recursion is one expression, so that the whole text lies within. Of a
 * recursive one each terminal does. */
int lark_compile_as(struct grammar_builder *b, struct slice text, const struct lark_opts *opts, sym_id *ret,
                    struct err *e);

#endif
