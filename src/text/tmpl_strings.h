/* tmpl_strings.h - what templates do with text: filters and methods of strings. */
#ifndef PLATEAU_TEXT_TMPL_STRINGS_H
#define PLATEAU_TEXT_TMPL_STRINGS_H

#include "text/tmpl_builtins.h"

struct tmpl_value tmpl_lower(struct tmpl_run *run, struct slice s);
struct tmpl_value tmpl_upper(struct tmpl_run *run, struct slice s);
bool tmpl_equal_caseless(struct tmpl_run *run, struct slice x, struct slice y);
/* The whole text, blanks around it aside, as Python's float() takes it. */
bool tmpl_parse_float(struct tmpl_run *run, struct slice s, double *ret);
/* A copy that owns its bytes. False: no memory or too deep. */
bool tmpl_deep_copy(struct arena *a, const struct tmpl_value *v, uint32_t depth, struct tmpl_value *ret);

struct tmpl_value tmpl_filter_capitalize(struct tmpl_run *run, struct tmpl_value v,
                                         const struct tmpl_args *args);
struct tmpl_value tmpl_filter_escape(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args);
struct tmpl_value tmpl_filter_indent(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args);
struct tmpl_value tmpl_filter_lower(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args);
struct tmpl_value tmpl_filter_replace(struct tmpl_run *run, struct tmpl_value v,
                                      const struct tmpl_args *args);
struct tmpl_value tmpl_filter_title(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args);
struct tmpl_value tmpl_filter_trim(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args);
struct tmpl_value tmpl_filter_upper(struct tmpl_run *run, struct tmpl_value v, const struct tmpl_args *args);

#endif
