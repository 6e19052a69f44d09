/* choice_rules.h - the small front ends: a list of texts, a regular expression, any JSON.
 *
 * Limits: CHOICE_COUNT_MAX texts of CHOICE_BYTES_MAX bytes together, each valid UTF-8 and not empty. A
 * regular expression: rx_parse.h. Sorting takes 16 bytes a text from the heap during the call. */
#ifndef PLATEAU_CONSTRAINT_CHOICE_RULES_H
#define PLATEAU_CONSTRAINT_CHOICE_RULES_H

#include "base/err.h"
#include "grammar/grammar.h"

#define CHOICE_COUNT_MAX 10000
#define CHOICE_BYTES_MAX ((size_t)256 << 10)

/* One of the texts. 0, -EINVAL (none, or an empty one), -E2BIG (a limit). */
int choice_compile(struct grammar_builder *b, const struct slice *texts, uint32_t count, sym_id *ret,
                   struct err *e);
/* A text that the pattern matches from its start to its end. 0 or as rx_parse(). */
int choice_compile_regex(struct grammar_builder *b, struct slice pattern, sym_id *ret, struct err *e);
/* Any JSON object, with the white space of json_text.h. */
sym_id choice_json_object(struct grammar_builder *b);

#endif
