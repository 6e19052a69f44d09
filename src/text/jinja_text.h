/* jinja_text.h - values as text: what `{{ x }}` prints, Python's repr, and JSON as json.dumps writes it. */
#ifndef PLATEAU_TEXT_JINJA_TEXT_H
#define PLATEAU_TEXT_JINJA_TEXT_H

#include "text/jinja_value.h"

/* Python's str(). The text itself for a str, else a new one. Undefined is empty. */
int jinja_to_str(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *ret);

/* Appends repr(v). */
int jinja_put_repr(struct jinja_text *t, const struct jinja_value *v);

struct jinja_json_opts {
    bool ensure_ascii, sort_keys;
    const struct jinja_value *indent; /* NULL: one line; else the text of one level */
    struct slice item_separator, key_separator;
};
int jinja_put_json(struct jinja_text *t, const struct jinja_value *v, const struct jinja_json_opts *opts);

/* repr(float): the fewest digits that read back the same. `ret` has room for 32 bytes. */
void jinja_float_text(double v, char *ret);

/* & < > ' " as HTML has them. */
void jinja_put_escaped(struct jinja_text *t, struct slice s);

#endif
