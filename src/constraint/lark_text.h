/* lark_text.h - the words of a Lark grammar. For lark.c. */
#ifndef PLATEAU_CONSTRAINT_LARK_TEXT_H
#define PLATEAU_CONSTRAINT_LARK_TEXT_H

#include "rx/rx.h"

#include <stdbool.h>

struct front_text;

/* White space without (or with) line ends, and comments. */
void lark_skip(struct front_text *f, bool lines);
/* Over line ends, if the next line begins with |. */
void lark_skip_to_bar(struct front_text *f);
bool lark_is_name(char c);
char lark_shown(char c); /* for messages */
struct slice lark_name(struct front_text *f);
/* Over a string or an expression that begins here, with its flags. */
void lark_pass(struct front_text *f, char quote);
rx_id lark_string(struct front_text *f); /* "text", "text"i, "a".."z" */
rx_id lark_regex(struct front_text *f);
rx_id lark_common(struct front_text *f, struct slice name); /* a terminal of the module `common` */

#endif
