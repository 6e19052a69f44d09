/* jinja_strings.h - what methods and filters do to text. Results that are a part of the input point into it. */
#ifndef PLATEAU_TEXT_JINJA_STRINGS_H
#define PLATEAU_TEXT_JINJA_STRINGS_H

#include "text/jinja_value.h"

enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };
/* Without white space, or without the characters of the str `chars` (missing or none: white space), at these sides. */
int jinja_strip(struct jinja_run *r, const struct jinja_value *s, const struct jinja_value *chars,
                unsigned sides, struct jinja_value *ret);

enum jinja_case { JINJA_LOWER, JINJA_UPPER, JINJA_CAPITALIZE, JINJA_TITLE, JINJA_TITLE_FILTER };
int jinja_change_case(struct jinja_run *r, struct slice s, enum jinja_case to, struct jinja_value *ret);

/* A list of parts. `separator` missing or none: runs of white space; `max` < 0: no bound. */
int jinja_split(struct jinja_run *r, const struct jinja_value *s, const struct jinja_value *separator,
                int64_t max, bool from_right, struct jinja_value *ret);
int jinja_split_lines(struct jinja_run *r, struct slice s, bool keep_ends, struct jinja_value *ret);

/* `max` < 0: all of them. */
int jinja_replace(struct jinja_run *r, struct slice s, struct slice old, struct slice new, int64_t max,
                  struct jinja_value *ret);

/* With `fill` up to `width` characters: on the left, on the right, or on both sides. */
int jinja_pad(struct jinja_run *r, const struct jinja_value *s, int64_t width, struct slice fill,
              unsigned sides, struct jinja_value *ret);

#endif
