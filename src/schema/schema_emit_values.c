/* schema_emit_values.c - the values of an enum as one terminal. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

#include <stdlib.h>

rx_id schema_words_rx(struct rx_store *s, uint32_t types)
{
    rx_id all = RX_NONE;
    if (types & SCHEMA_NULL)
        all = rx_literal(s, SLICE("null"));
    if (types & SCHEMA_TRUE)
        all = rx_or(s, all, rx_literal(s, SLICE("true")));
    if (types & SCHEMA_FALSE)
        all = rx_or(s, all, rx_literal(s, SLICE("false")));
    return all;
}

void schema_emit_terminal(struct schema_work *w, sym_id rule, rx_id rx)
{
    if (rx == RX_NONE)
        return;
    sym_id terminal = grammar_terminal(w->b, rx);
    grammar_alternative(w->b, rule, &terminal, 1);
}

static rx_id value_rx(struct schema_work *w, const json_t *value, uint32_t depth);

static rx_id list_rx(struct schema_work *w, const json_t *value, uint32_t depth)
{
    rx_id all = json_text_open(&w->text, '[');
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i)
            all = rx_cat(w->s, all, json_text_open(&w->text, ','));
        all = rx_cat(w->s, all, value_rx(w, json_array_get(value, i), depth));
    }
    if (json_array_size(value) == 0)
        return rx_cat(w->s, all, rx_literal(w->s, SLICE("]")));
    return rx_cat(w->s, all, json_text_close(&w->text, ']'));
}

static rx_id object_rx(struct schema_work *w, const json_t *value, uint32_t depth)
{
    const char *name;
    json_t *member;
    rx_id all = RX_EMPTY;
    char head = '{';
    if (json_object_size(value) == 0)
        return rx_cat(w->s, json_text_open(&w->text, '{'), rx_literal(w->s, SLICE("}")));
    json_object_foreach((json_t *)value, name, member) {
        rx_id key = json_text_key(&w->text, head, json_text_content(&w->text, slice_of(name)));
        all = rx_cat(w->s, all, rx_cat(w->s, key, value_rx(w, member, depth)));
        head = ',';
    }
    return rx_cat(w->s, all, json_text_close(&w->text, '}'));
}

static rx_id value_rx(struct schema_work *w, const json_t *value, uint32_t depth)
{
    struct decimal d;
    if (depth > SCHEMA_DEPTH_MAX || schema_failed(w)) {
        schema_fail(w, -E2BIG, 0, "a value of an enum is nested more than %d deep", SCHEMA_DEPTH_MAX);
        return RX_NONE;
    }
    switch (schema_type_of(value)) {
    case SCHEMA_STRING:
        return json_text_quoted(&w->text, json_text_content(&w->text, schema_text(value)));
    case SCHEMA_ARRAY:
        return list_rx(w, value, depth + 1);
    case SCHEMA_OBJECT:
        return object_rx(w, value, depth + 1);
    case SCHEMA_NUMBER:
        return decimal_of(value, &d) ? json_number_one(&w->text, &d, !w->text.plain) : RX_NONE;
    default:
        return schema_words_rx(w->s, schema_type_of(value));
    }
}

static int compare_slices(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    int r = memcmp(x->ptr, y->ptr, MIN_OF(x->len, y->len));
    return r ? r : (x->len > y->len) - (x->len < y->len);
}

void schema_emit_values(struct schema_work *w, const struct schema_alternative *way, sym_id rule)
{
    ASSERT(way->finite);
    struct slice *strings = schema_take(w, (way->values.count + 1) * sizeof(*strings));
    uint32_t count = 0, kept = 0;
    rx_id all = RX_NONE;
    if (!strings)
        return;
    for (uint32_t i = 0; i < way->values.count && !schema_failed(w); i++) {
        const json_t *v = way->values.all[i];
        struct decimal d;
        if (json_is_string(v))
            strings[count++] = schema_text(v);
        else if (json_is_number(v) && way->number.whole && !way->number.point && decimal_of(v, &d))
            all = rx_or(w->s, all, json_number_one(&w->text, &d, false));
        else
            all = rx_or(w->s, all, value_rx(w, v, 0));
    }
    qsort(strings, count, sizeof(*strings), compare_slices);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || !slice_eq(strings[i], strings[i - 1]))
            strings[kept++] = strings[i];
    if (kept)
        all = rx_or(w->s, all, json_text_quoted(&w->text, json_text_one_of(&w->text, strings, kept)));
    schema_emit_terminal(w, rule, all);
}
