#include "schema/decimal.h"

#include "base/check.h"
#include "base/wide_integer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* d.ddde[+-]xx in the fewest digits that read as the same value. */
static void shortest(double value, char text[40])
{
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, 40, "%.*e", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

/* digits[0 .. count) with the point after the first `point` of them, which may lie outside. */
static bool place(const char *digits, int count, int point, struct decimal *ret)
{
    ASSERT(count > 0);
    int zeros = point <= 0 ? 1 - point : 0, after = point > count ? point - count : 0;
    if (zeros + count + after > DECIMAL_DIGITS_MAX)
        return false;
    memset(ret->digits, '0', (size_t)zeros);
    memcpy(ret->digits + zeros, digits, (size_t)count);
    memset(ret->digits + zeros + count, '0', (size_t)after);
    int whole = point <= 0 ? 1 : point, all = zeros + count + after;
    while (all > whole && ret->digits[all - 1] == '0')
        all--;
    int skip = 0;
    while (whole - skip > 1 && ret->digits[skip] == '0')
        skip++;
    memmove(ret->digits, ret->digits + skip, (size_t)(all - skip));
    ret->whole = (uint16_t)(whole - skip);
    ret->fraction = (uint16_t)(all - whole);
    ASSERT(ret->whole >= 1);
    return true;
}

static bool of_real(double value, struct decimal *ret)
{
    char text[40], digits[40];
    int count = 0;
    if (!isfinite(value))
        return false;
    shortest(fabs(value), text);
    char *e = strchr(text, 'e');
    ASSERT(e);
    for (const char *at = text; at < e; at++)
        if (*at != '.')
            digits[count++] = *at;
    ret->negative = value < 0;
    return place(digits, count, 1 + atoi(e + 1), ret);
}

static bool of_digits(struct slice text, struct decimal *ret)
{
    ASSERT(text.len > 0);
    ret->negative = text.ptr[0] == '-';
    int count = (int)text.len - ret->negative;
    return place(text.ptr + ret->negative, count, count, ret);
}

bool decimal_of(const json_t *number, struct decimal *ret)
{
    char text[40];
    struct slice integer = wide_integer_text(json_real_value(number));
    if (integer.len)
        return of_digits(integer, ret);
    if (json_is_real(number))
        return of_real(json_real_value(number), ret);
    snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(number));
    return of_digits(slice_of(text), ret);
}

bool decimal_is_zero(const struct decimal *d)
{
    return d->whole == 1 && d->fraction == 0 && d->digits[0] == '0';
}

bool decimal_is_whole(const struct decimal *d)
{
    return d->fraction == 0;
}

static int compare_sizes(const struct decimal *a, const struct decimal *b)
{
    ASSERT(a->whole > 0 && b->whole > 0);
    if (a->whole != b->whole)
        return a->whole < b->whole ? -1 : 1;
    size_t both = (size_t)a->whole + MIN_OF(a->fraction, b->fraction);
    int r = memcmp(a->digits, b->digits, both);
    return r ? r : (int)a->fraction - (int)b->fraction;
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

void decimal_negate(struct decimal *d)
{
    d->negative = !d->negative && !decimal_is_zero(d);
}

bool decimal_is_vague(const json_t *number)
{
    double value = json_real_value(number);
    return json_is_real(number) && fabs(value) >= 9007199254740992.0 && !wide_integer_text(value).len;
}
