/* decimal.h - exact decimal numbers as digits, as JSON writes them. */
#ifndef PLATEAU_SCHEMA_DECIMAL_H
#define PLATEAU_SCHEMA_DECIMAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define DECIMAL_DIGITS_MAX 700 /* a double has at most 309 digits before the point, and 340 after it */

struct decimal {
    uint16_t whole,
        fraction;  /* digits before the point (at least 1, no needless 0) and after it (no 0 last) */
    bool negative; /* never of 0 */
    char digits[DECIMAL_DIGITS_MAX];
};

/* Converts a JSON number. A real number has the value of its shortest text that reads as the same double.
 * False: not finite, or too many digits. */
bool decimal_of(const json_t *number, struct decimal *ret);
bool decimal_is_zero(const struct decimal *d);
bool decimal_is_whole(const struct decimal *d);
int decimal_compare(const struct decimal *a, const struct decimal *b); /* < 0, 0, > 0 */
void decimal_negate(struct decimal *d);
/* The double that this number stands for has neighbours more than 1 apart: the original text is unknown. */
bool decimal_is_vague(const json_t *number);

#endif
