/* piece.h - a part of a grammar under construction: an expression while possible, else a symbol.
 *
 * Regular parts stay single terminals, so a matcher follows them in its automaton and not in its parser. */
#ifndef PLATEAU_GRAMMAR_PIECE_H
#define PLATEAU_GRAMMAR_PIECE_H

#include "grammar/grammar.h"

struct piece {
    bool regular;
    rx_id rx;   /* regular */
    sym_id sym; /* not regular */
};

#define PIECE_REPEAT_MAX 1000000 /* repeats of a part that is not regular */

struct piece piece_rx(rx_id rx);
struct piece piece_sym(sym_id sym);
sym_id piece_symbol(struct grammar_builder *b, struct piece p);

struct piece piece_cat(struct grammar_builder *b, struct piece x, struct piece y);
struct piece piece_or(struct grammar_builder *b, struct piece x, struct piece y);
/* min <= max; max RX_UNBOUNDED: any number. Of a part that is not regular both are at most PIECE_REPEAT_MAX;
 * it takes a number of rules that grows with the logarithm of the counts. */
struct piece piece_repeat(struct grammar_builder *b, struct piece x, uint32_t min, uint32_t max);

#endif
