/* json_number.c - a bound is compared as people do: more digits are more, else the first different digit
 * decides. So the texts above a bound of n digits are n alternatives; the texts below it are the others. */
#include "schema/json_number.h"

#include "schema/decimal.h"
#include "schema/json_text.h"

#include "base/check.h"

static rx_id any(struct rx_store *s, uint32_t min, uint32_t max)
{
    ASSERT(min <= max);
    return rx_repeat(s, rx_byte_range(s, '0', '9'), min, max);
}

static rx_id point(struct rx_store *s)
{
    return rx_literal(s, SLICE("."));
}

static rx_id whole_numbers(struct rx_store *s)
{
    return rx_or(s, rx_literal(s, SLICE("0")),
                 rx_cat(s, rx_byte_range(s, '1', '9'), any(s, 0, RX_UNBOUNDED)));
}

/* Any fraction, or none. */
static rx_id any_fraction(struct rx_store *s)
{
    return rx_repeat(s, rx_cat(s, point(s), any(s, 1, RX_UNBOUNDED)), 0, 1);
}

/* Digits of which one is not 0. */
static rx_id not_zero(struct rx_store *s)
{
    rx_id zeros = rx_repeat(s, rx_literal(s, SLICE("0")), 0, RX_UNBOUNDED);
    return rx_cat(s, zeros, rx_cat(s, rx_byte_range(s, '1', '9'), any(s, 0, RX_UNBOUNDED)));
}

/* Continuations of the whole digits of `d` so that the number is above it, or equal unless `open`. */
static rx_id fraction_above(struct rx_store *s, const struct decimal *d, bool open)
{
    ASSERT(d->whole > 0);
    const char *f = d->digits + d->whole;
    uint32_t count = d->fraction;
    if (count == 0)
        return open ? rx_cat(s, point(s), not_zero(s)) : any_fraction(s);
    rx_id more = RX_NONE;
    for (uint32_t i = 0; i < count; i++)
        if (f[i] < '9') {
            rx_id same = rx_literal(s, (struct slice){f, i});
            rx_id tail = rx_cat(s, rx_byte_range(s, (char)(f[i] + 1), '9'), any(s, 0, RX_UNBOUNDED));
            more = rx_or(s, more, rx_cat(s, same, tail));
        }
    rx_id same = rx_literal(s, (struct slice){f, count});
    more = rx_or(s, more, rx_cat(s, same, open ? not_zero(s) : any(s, 0, RX_UNBOUNDED)));
    return rx_cat(s, point(s), more);
}

/* Texts, without sign, of numbers above the size of `d`, or equal unless `open`. */
static rx_id above(struct rx_store *s, const struct decimal *d, bool open)
{
    ASSERT(!d->negative);
    rx_id longer = rx_cat(s, rx_byte_range(s, '1', '9'), any(s, d->whole, RX_UNBOUNDED));
    rx_id all = rx_cat(s, longer, any_fraction(s));
    for (uint32_t i = 0; i < d->whole; i++) {
        if (d->digits[i] == '9')
            continue;
        rx_id larger = rx_cat(s, rx_byte_range(s, (char)(d->digits[i] + 1), '9'),
                              any(s, d->whole - 1u - i, d->whole - 1u - i));
        rx_id head = rx_literal(s, (struct slice){d->digits, i});
        all = rx_or(s, all, rx_cat(s, head, rx_cat(s, larger, any_fraction(s))));
    }
    rx_id same = rx_literal(s, (struct slice){d->digits, d->whole});
    return rx_or(s, all, rx_cat(s, same, fraction_above(s, d, open)));
}

static rx_id at_most(struct rx_store *s, const struct decimal *d, bool open)
{
    return rx_not(s, above(s, d, !open));
}

/* Sizes between two bounds on one side of 0; NULL: none. */
static rx_id between(struct rx_store *s, rx_id kind, const struct decimal *low, bool low_open,
                     const struct decimal *high, bool high_open)
{
    ASSERT((!low || !low->negative) && (!high || !high->negative));
    rx_id all = kind;
    if (low)
        all = rx_and(s, all, above(s, low, low_open));
    if (high)
        all = rx_and(s, all, at_most(s, high, high_open));
    return all;
}

/* Texts without sign. */
static rx_id kind_of(struct rx_store *s, const struct json_number *n)
{
    rx_id whole = whole_numbers(s);
    if (n->whole)
        return n->point ? rx_cat(s, whole, rx_repeat(s, rx_literal(s, SLICE(".0")), 0, 1)) : whole;
    if (n->broken)
        return rx_cat(s, whole, rx_cat(s, point(s), not_zero(s)));
    return rx_cat(s, whole, any_fraction(s));
}

bool json_number_is_empty(const struct json_number *n)
{
    if (n->whole && n->broken)
        return true;
    if (!n->low || !n->high)
        return false;
    int c = decimal_compare(n->low, n->high);
    return c > 0 || (c == 0 && (n->low_open || n->high_open || (n->whole && !decimal_is_whole(n->low)) ||
                                (n->broken && decimal_is_whole(n->low))));
}

static bool is_below(const struct decimal *d, bool open)
{
    return d && (d->negative || (open && decimal_is_zero(d)));
}

/* Plain: few digits, unless a bound itself has many. */
static rx_id few_digits(struct json_text *t, const struct json_number *n, rx_id all)
{
    struct rx_store *s = t->s;
    uint32_t low = n->low ? n->low->whole : 0, high = n->high ? n->high->whole : 0;
    if (!t->plain || MAX_OF(low, high) >= JSON_DIGITS_MAX)
        return all;
    rx_id few = rx_cat(s, any(s, 1, JSON_DIGITS_MAX),
                       rx_repeat(s, rx_cat(s, point(s), any(s, 1, JSON_DIGITS_MAX)), 0, 1));
    return rx_and(s, all, rx_cat(s, rx_repeat(s, rx_literal(s, SLICE("-")), 0, 1), few));
}

rx_id json_number_rx(struct json_text *t, const struct json_number *n)
{
    struct rx_store *s = t->s;
    rx_id kind = kind_of(s, n), all = RX_NONE;
    if (json_number_is_empty(n))
        return RX_NONE;
    if (!is_below(n->high, n->high_open)) {
        const struct decimal *low = n->low && !n->low->negative ? n->low : NULL;
        all = between(s, kind, low, n->low_open, n->high, n->high_open);
    }
    struct decimal low, high;
    if (n->low)
        decimal_negate(memcpy(&low, n->low, sizeof(low)));
    if (n->high)
        decimal_negate(memcpy(&high, n->high, sizeof(high)));
    if (!n->low || !is_below(&low, n->low_open)) {
        const struct decimal *from = n->high && !high.negative ? &high : NULL;
        rx_id sizes = between(s, kind, from, n->high_open, n->low ? &low : NULL, n->low_open);
        all = rx_or(s, all, rx_cat(s, rx_literal(s, SLICE("-")), sizes));
    }
    return few_digits(t, n, all);
}

static rx_id signed_text(struct rx_store *s, const struct decimal *d, rx_id size)
{
    rx_id minus = rx_literal(s, SLICE("-"));
    if (decimal_is_zero(d))
        return rx_cat(s, rx_repeat(s, minus, 0, 1), size);
    return d->negative ? rx_cat(s, minus, size) : size;
}

static rx_id exact_text(struct rx_store *s, const struct decimal *d)
{
    ASSERT(d->whole > 0);
    rx_id whole = rx_literal(s, (struct slice){d->digits, d->whole});
    if (d->fraction == 0)
        return whole;
    struct slice f = {d->digits + d->whole, d->fraction};
    return rx_cat(s, whole, rx_cat(s, point(s), rx_literal(s, f)));
}

rx_id json_number_one(struct json_text *t, const struct decimal *d, bool with_point)
{
    rx_id text = exact_text(t->s, d);
    if (with_point && d->fraction == 0)
        text = rx_cat(t->s, text, rx_repeat(t->s, rx_literal(t->s, SLICE(".0")), 0, 1));
    return signed_text(t->s, d, text);
}

rx_id json_number_spellings(struct json_text *t, const struct decimal *d)
{
    struct rx_store *s = t->s;
    rx_id zero = rx_literal(s, SLICE("0")), text = exact_text(s, d);
    if (d->fraction)
        text = rx_cat(s, text, rx_repeat(s, zero, 0, RX_UNBOUNDED));
    else
        text = rx_cat(s, text, rx_repeat(s, rx_cat(s, point(s), rx_repeat(s, zero, 1, RX_UNBOUNDED)), 0, 1));
    return signed_text(s, d, text);
}

bool json_number_has(const struct json_number *n, const struct decimal *d)
{
    int low = n->low ? decimal_compare(d, n->low) : 1, high = n->high ? decimal_compare(d, n->high) : -1;
    if (low < 0 || (low == 0 && n->low_open) || high > 0 || (high == 0 && n->high_open))
        return false;
    return decimal_is_whole(d) ? !n->broken : !n->whole;
}
