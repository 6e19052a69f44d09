/* jinja_list.h - sorting values. */
#ifndef PLATEAU_TEXT_JINJA_LIST_H
#define PLATEAU_TEXT_JINJA_LIST_H

#include "text/jinja_value.h"

struct jinja_keyed {
    struct jinja_value key, item;
};

/* By key, ascending or descending; equal ones keep their order either way. */
int jinja_sort(struct jinja_run *r, struct jinja_keyed *a, size_t len, bool descending);

/* The pairs of a dict by key, in an array of their own. */
int jinja_sort_pairs(struct jinja_run *r, const struct jinja_value *dict, struct jinja_pair **ret);

#endif
