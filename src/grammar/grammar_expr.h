/* grammar_expr.h - a part of a grammar under construction: an expression while possible, else a symbol.
 *
 * Regular parts stay single terminals, so a matcher follows them in its automaton and not in its parser. */
#ifndef PLATEAU_GRAMMAR_GRAMMAR_EXPR_H
#define PLATEAU_GRAMMAR_GRAMMAR_EXPR_H

#include "grammar/grammar.h"

struct expr {
    bool regular;
    rx_id rx;   /* regular */
    sym_id sym; /* not regular */
};

#define GRAMMAR_REPEAT_MAX 1000000 /* repeats of a part that is not regular */

struct expr expr_rx(rx_id rx);
struct expr expr_sym(sym_id sym);
sym_id expr_symbol(struct grammar_builder *b, struct expr p);

struct expr expr_cat(struct grammar_builder *b, struct expr x, struct expr y);
struct expr expr_or(struct grammar_builder *b, struct expr x, struct expr y);
/* min <= max; max RX_UNBOUNDED: any number. Of a part that is not regular both are at most
 * GRAMMAR_REPEAT_MAX; it takes a number of rules that grows with the logarithm of the counts. */
struct expr expr_repeat(struct grammar_builder *b, struct expr x, uint32_t min, uint32_t max);

#endif
