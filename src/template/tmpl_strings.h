/* tmpl_strings.h - what templates do with text: filters and methods of strings. */
#ifndef PLATEAU_TEMPLATE_TMPL_STRINGS_H
#define PLATEAU_TEMPLATE_TMPL_STRINGS_H

#include "template/tmpl_builtins.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tmpl_value tmpl_lower(struct tmpl_run *run, struct slice s);
struct tmpl_value tmpl_upper(struct tmpl_run *run, struct slice s);
bool tmpl_equal_caseless(struct tmpl_run *run, struct slice x, struct slice y);
/* The whole text, blanks around it aside, as Python's float() takes it. */
bool tmpl_parse_float(struct tmpl_run *run, struct slice s, double *ret);
/* Length in bytes of the code point at the front or, `back`, at the end of s. */
size_t tmpl_edge_char(struct slice s, bool back);
/* Python's str.isspace for one code point. */
bool tmpl_is_blank(struct slice c);
/* The text without blanks, or without any of `chars`, on these sides. */
enum { TMPL_STRIP_LEFT = 1, TMPL_STRIP_RIGHT = 2 };
struct slice tmpl_strip(struct tmpl_run *run, struct slice s, const struct tmpl_value *chars, unsigned sides);
/* A copy that owns its bytes. False: no memory or too deep. */
bool tmpl_deep_copy(struct arena *a, const struct tmpl_value *v, uint32_t depth, struct tmpl_value *ret);

tmpl_builtin_fn tmpl_filter_capitalize, tmpl_filter_center, tmpl_filter_escape, tmpl_filter_format,
    tmpl_filter_indent, tmpl_filter_lower, tmpl_filter_replace, tmpl_filter_title, tmpl_filter_trim,
    tmpl_filter_truncate, tmpl_filter_upper, tmpl_filter_wordcount, tmpl_method_format;

#endif
