/* schema_bounds.c - keywords with a number or a pattern: bounds, multiples, lengths, counts.
 *
 * A bound that a double of 2^53 or more stands for is moved inwards by one double, since the text may have
 * said a number beside it. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

#include <math.h>

static int wrong(const struct schema_keyword *o, const char *must)
{
    return schema_fail(o->w, -EINVAL, o->node, "\"%s\" must be %s", o->key, must);
}

static void refuse(const struct schema_keyword *o, uint32_t types, const char *why)
{
    if (o->negated)
        o->way->types &= types;
    schema_refuse(o->w, o->st, types, o->node, o->key, why);
}

/* ---- numbers ---- */

static struct decimal *decimal_for(const struct schema_keyword *o, const json_t *value)
{
    struct decimal *d = schema_take(o->w, sizeof(*d));
    if (d && (!json_is_number(value) || !decimal_of(value, d)))
        wrong(o, "a number");
    return d;
}

static void limit_low(struct json_number *n, const struct decimal *d, bool open)
{
    int c = n->low ? decimal_compare(d, n->low) : 1;
    if (c > 0)
        n->low = d, n->low_open = open;
    else if (c == 0)
        n->low_open |= open;
}

static void limit_high(struct json_number *n, const struct decimal *d, bool open)
{
    int c = n->high ? decimal_compare(d, n->high) : -1;
    if (c < 0)
        n->high = d, n->high_open = open;
    else if (c == 0)
        n->high_open |= open;
}

static void on_limit(const struct schema_keyword *o, bool low, bool open)
{
    const json_t *value = o->value;
    bool up = low != o->negated; /* values above it are left */
    json_t *moved = NULL;
    if (decimal_is_vague(value))
        value = moved = json_real(nextafter(json_real_value(value), up ? INFINITY : -INFINITY));
    struct decimal *d = decimal_for(o, value);
    json_decref(moved);
    if (!d || o->w->error)
        return;
    if (up)
        limit_low(&o->way->number, d, open != o->negated);
    else
        limit_high(&o->way->number, d, open != o->negated);
    if (o->negated)
        o->way->types &= SCHEMA_NUMBER;
}

/* Draft 4 says exclusiveMinimum: true beside minimum. */
static void on_minimum(const struct schema_keyword *o)
{
    bool low = o->key[1] == 'i';
    const json_t *open =
        json_object_get(o->w->nodes[o->node].json, low ? "exclusiveMinimum" : "exclusiveMaximum");
    on_limit(o, low, json_is_true(open));
}

static void on_exclusive(const struct schema_keyword *o)
{
    bool low = strcmp(o->key, "exclusiveMinimum") == 0;
    if (!json_is_boolean(o->value))
        on_limit(o, low, true);
    else if (o->negated)
        o->way->types = 0; /* It belongs to minimum, whose negation has it. */
}

static void on_multiple(const struct schema_keyword *o)
{
    struct schema_multiple *m = schema_take(o->w, sizeof(*m));
    if (!m)
        return;
    if (o->negated) {
        refuse(o, SCHEMA_NUMBER, "cannot be negated (by not, oneOf, if or dependencies)");
        return;
    }
    if (!json_is_number(o->value) || !decimal_of(o->value, &m->of) || m->of.negative ||
        decimal_is_zero(&m->of)) {
        wrong(o, "a number above 0");
        return;
    }
    m->next = o->way->multiples;
    o->way->multiples = m;
}

/* ---- lengths and counts ---- */

static uint32_t count_of(const struct schema_keyword *o)
{
    double value = json_number_value(o->value);
    return value > 2000000000.0 ? 2000000000u : (uint32_t)value;
}

/* Strings of at least (`low`) or at most `count` characters. */
static void limit_text(const struct schema_keyword *o, uint32_t count, bool low)
{
    struct schema_work *w = o->w;
    if (count > SCHEMA_LENGTH_MAX && low) {
        schema_fail(w, -E2BIG, o->node, "\"%s\" is %u; at most %d is supported", o->key, count,
                    SCHEMA_LENGTH_MAX);
        return;
    }
    if (!low && count > SCHEMA_LENGTH_MAX)
        count = SCHEMA_LENGTH_MAX;
    ASSERT(count <= SCHEMA_LENGTH_MAX);
    uint32_t min = low ? count : 0, max = low ? RX_UNBOUNDED : count;
    struct rx_node text = rx_node(w->s, o->way->text);
    if (text.kind == RX_K_REPEAT && text.a == w->text.character) {
        /* A text has one number of characters, so both bounds are one repetition, which needs no search. */
        min = MAX_OF(min, text.min);
        max = MIN_OF(max, text.max);
        o->way->text = min <= max ? rx_repeat(w->s, text.a, min, max) : RX_NONE;
        return;
    }
    o->way->text = rx_and(w->s, o->way->text, rx_repeat(w->s, w->text.character, min, max));
}

static void limit_count(uint32_t *min, uint32_t *max, uint32_t count, bool low)
{
    if (low)
        *min = MAX_OF(*min, count);
    else
        *max = MIN_OF(*max, count);
}

/* minX or maxX. Not at least n is at most n - 1. */
static void on_count(const struct schema_keyword *o)
{
    uint32_t count = count_of(o);
    bool low = o->key[1] == 'i', length = o->key[3] == 'L', items = o->key[3] == 'I';
    uint32_t type = length ? SCHEMA_STRING : items ? SCHEMA_ARRAY : SCHEMA_OBJECT;
    if (o->negated) {
        o->way->types &= type;
        if (low && count == 0)
            o->way->types = 0;
        count = low ? count - 1 : count + 1;
        low = !low;
    }
    if (!o->way->types)
        return;
    if (length)
        limit_text(o, count, low);
    else if (items)
        limit_count(&o->way->items_min, &o->way->items_max, count, low);
    else
        limit_count(&o->way->members_min, &o->way->members_max, count, low);
}

/* ---- patterns ---- */

static void limit_rx(const struct schema_keyword *o, rx_id rx)
{
    if (o->negated) {
        o->way->types &= SCHEMA_STRING;
        rx = rx_not(o->w->s, rx);
    }
    o->way->text = rx_and(o->w->s, o->way->text, rx);
}

static void on_pattern(const struct schema_keyword *o)
{
    limit_rx(o, schema_pattern_rx(o->w, o->node, o->key, schema_text(o->value)));
}

/* Validators differ about formats, so no proof that options exclude each other rests on one. */
static bool in_proof(const struct schema_keyword *o)
{
    return o->w->nested > 0 && !o->negated;
}

/* The formats here have fewer texts than their documents allow, so that they cannot be negated. */
static void on_format(const struct schema_keyword *o)
{
    rx_id rx = RX_ALL;
    if (in_proof(o))
        return;
    switch (schema_format(o->w, o->node, schema_text(o->value), &rx)) {
    case SCHEMA_FORMAT_NOTE:
        if (o->negated)
            o->way->types = 0;
        break;
    case SCHEMA_FORMAT_REFUSED:
        refuse(o, SCHEMA_STRING, "has a format that is not supported");
        break;
    case SCHEMA_FORMAT_KNOWN:
        if (o->negated)
            refuse(o, SCHEMA_STRING, "cannot be negated (by not, oneOf, if or dependencies)");
        else
            limit_rx(o, rx);
        break;
    }
}

static const struct schema_keyword_row table[] = {
    {"minimum", on_minimum},
    {"maximum", on_minimum},
    {"exclusiveMinimum", on_exclusive},
    {"exclusiveMaximum", on_exclusive},
    {"multipleOf", on_multiple},
    {"minLength", on_count},
    {"maxLength", on_count},
    {"minItems", on_count},
    {"maxItems", on_count},
    {"minProperties", on_count},
    {"maxProperties", on_count},
    {"pattern", on_pattern},
    {"format", on_format},
};

bool schema_bound(const struct schema_keyword *o)
{
    return schema_keyword_read(o, table, COUNT_OF(table));
}
