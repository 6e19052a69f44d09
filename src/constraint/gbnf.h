/* gbnf.h - llama.cpp's GBNF to rules. The start rule is `root`.
 *
 * Supported: name ::= alternatives, "literals", [classes] with ranges and ^, `.`, (groups), ? * + {m} {m,}
 * {m,n}, # comments, the escapes \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. A line that begins with |
 * continues the rule. Refused by name: tokens as <name> or <[id]>. Limits: FRONT_TEXT_* in front_text.h. */
#ifndef PLATEAU_CONSTRAINT_GBNF_H
#define PLATEAU_CONSTRAINT_GBNF_H

#include "grammar/grammar.h"

/* 0; -EINVAL, -ENOTSUP, -E2BIG, each with the line in `e`; -ENOMEM. `charge`: for the memory that the call
 * needs until it returns. */
int gbnf_compile(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                 struct err *e);

#endif
