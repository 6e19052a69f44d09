/* json_number.h - sets of numbers as expressions of their texts.
 *
 * A set without bounds, multiples and exceptions has every text of a number. Others have no exponents. A
 * whole number may be written as 1 and, with `point`, as 1.0. */
#ifndef PLATEAU_SCHEMA_JSON_NUMBER_H
#define PLATEAU_SCHEMA_JSON_NUMBER_H

#include "rx/rx.h"

#include <stdbool.h>

struct decimal;
struct json_text;

struct json_number {
    const struct decimal *low, *high; /* NULL: no bound */
    bool low_open, high_open;         /* the bound itself is outside */
    bool whole, broken;               /* only whole numbers; only others */
    bool point;                       /* 1.0 as a text of 1 */
};

/* No exponents: any number of the set; RX_NONE if it has none. */
rx_id json_number_rx(struct json_text *t, const struct json_number *n);
/* The texts of one number. */
rx_id json_number_one(struct json_text *t, const struct decimal *d, bool point);
/* Every text without exponent of one number, for complements. */
rx_id json_number_spellings(struct json_text *t, const struct decimal *d);
bool json_number_is_empty(const struct json_number *n);
/* Is `d` within the bounds and of the kind? */
bool json_number_has(const struct json_number *n, const struct decimal *d);

#endif
