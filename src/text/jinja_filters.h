/* jinja_filters.h - the filters that look at several values, for the table in jinja_filters.c. */
#ifndef PLATEAU_TEXT_JINJA_FILTERS_H
#define PLATEAU_TEXT_JINJA_FILTERS_H

#include "text/jinja_value.h"

jinja_builtin_fn jinja_filter_batch;
jinja_builtin_fn jinja_filter_dictsort;
jinja_builtin_fn jinja_filter_first;
jinja_builtin_fn jinja_filter_items;
jinja_builtin_fn jinja_filter_join;
jinja_builtin_fn jinja_filter_last;
jinja_builtin_fn jinja_filter_length;
jinja_builtin_fn jinja_filter_list;
jinja_builtin_fn jinja_filter_map;
jinja_builtin_fn jinja_filter_max;
jinja_builtin_fn jinja_filter_min;
jinja_builtin_fn jinja_filter_reject;
jinja_builtin_fn jinja_filter_rejectattr;
jinja_builtin_fn jinja_filter_reverse;
jinja_builtin_fn jinja_filter_select;
jinja_builtin_fn jinja_filter_selectattr;
jinja_builtin_fn jinja_filter_sort;
jinja_builtin_fn jinja_filter_sum;
jinja_builtin_fn jinja_filter_unique;

#endif
