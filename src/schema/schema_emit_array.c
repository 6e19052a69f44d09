/* schema_emit_array.c - arrays of a way: the fixed items one by one, then the rest, counted by halves.
 *
 * uniqueItems over few values: a rule for each set of values that have been used. Over more values that would
 * be 2^n rules; then the items stand in the enum's order, one rule for each place in it. */
#include "schema/schema_work.h"

#include "base/check.h"
#include "grammar/grammar_expr.h"

#define UNIQUE_MAX       64
#define UNIQUE_ORDER_MAX 8 /* values that may stand in any order */

struct array {
    struct schema_work *w;
    uint32_t min, max, fixed;
    sym_id open, next, close; /* terminals */
    sym_id rule;
};

static sym_id item_of(struct array *a, const struct schema_alternative *way, uint32_t index)
{
    struct schema_set set = schema_item(a->w, way, index);
    return schema_rule_of(a->w, &set);
}

/* No item can stand at an index whose set is empty. */
static void cut_max(struct array *a, const struct schema_alternative *way)
{
    for (uint32_t i = 0; i <= a->fixed && i < a->max && !schema_failed(a->w); i++) {
        struct schema_set set = schema_item(a->w, way, i);
        if (set.none)
            a->max = i;
    }
}

/* The rest of the array after `index` items. */
static sym_id rest_of(struct array *a, const struct schema_alternative *way, uint32_t index)
{
    ASSERT(index <= a->max);
    struct grammar_builder *b = a->w->b;
    sym_id rule = grammar_rule(b);
    if (index >= a->max) {
        grammar_alternative(b, rule, &a->close, 1);
        return rule;
    }
    sym_id more = grammar_rule(b), pair[2] = {a->next, item_of(a, way, a->fixed)};
    grammar_alternative(b, more, pair, 2);
    uint32_t min = a->min > index ? a->min - index : 0;
    uint32_t max = a->max == RX_UNBOUNDED ? RX_UNBOUNDED : a->max - index;
    struct expr all = expr_cat(b, expr_repeat(b, expr_sym(more), min, max), expr_sym(a->close));
    grammar_alternative(b, rule, &all.sym, 1);
    return rule;
}

static void emit_items(struct array *a, const struct schema_alternative *way)
{
    ASSERT(a->max > 0);
    struct grammar_builder *b = a->w->b;
    uint32_t last = MIN_OF(MAX_OF(a->fixed, 1u), a->max);
    sym_id after = rest_of(a, way, last);
    for (uint32_t i = last; i-- > 1 && !schema_failed(a->w);) {
        sym_id rule = grammar_rule(b), row[3] = {a->next, item_of(a, way, i), after};
        if (i >= a->min)
            grammar_alternative(b, rule, &a->close, 1);
        grammar_alternative(b, rule, row, 3);
        after = rule;
    }
    sym_id row[3] = {a->open, item_of(a, way, 0), after};
    grammar_alternative(b, a->rule, row, 3);
}

/* ---- uniqueItems ---- */

struct unique {
    struct array *a;
    sym_id values[UNIQUE_MAX];
    uint32_t count;
};

/* The different values of a set that has only finite ways; false: it has others, or too many values. */
static bool list_values(struct schema_work *w, const struct schema_set *set, const json_t **values,
                        uint32_t *count)
{
    struct schema_alternatives ways = schema_expand(w, set, SCHEMA_ANY);
    for (uint32_t i = 0; i < ways.count; i++) {
        const struct schema_alternative *way = &ways.all[i];
        if (!way->finite || way->refusals)
            return false;
        for (uint32_t k = 0; k < way->values.count; k++) {
            bool known = false;
            for (uint32_t j = 0; j < *count && !known; j++)
                known = schema_equal(values[j], way->values.all[k]);
            if (!known && *count == UNIQUE_MAX)
                return false;
            if (!known)
                values[(*count)++] = way->values.all[k];
        }
    }
    return true;
}

static void make_values(struct unique *u, const json_t **values)
{
    for (uint32_t i = 0; i < u->count; i++) {
        struct schema_alternative one = {
            .types = schema_type_of(values[i]), .finite = true, .values = {1, &values[i]}};
        u->values[i] = grammar_rule(u->a->w->b);
        schema_emit_values(u->a->w, &one, u->values[i]);
    }
}

/* One alternative: a value that is not in `used`, and the rule after it. */
static void add_unused(struct unique *u, sym_id rule, uint32_t used, uint32_t value, const sym_id *rules)
{
    ASSERT(!(used >> value & 1));
    sym_id row[3] = {used ? u->a->next : u->a->open, u->values[value], rules[used | 1u << value]};
    grammar_alternative(u->a->w->b, rule, row, 3);
}

static void emit_any_order(struct unique *u)
{
    ASSERT(u->count <= UNIQUE_ORDER_MAX);
    struct array *a = u->a;
    sym_id rules[1u << UNIQUE_ORDER_MAX];
    for (uint32_t used = 1; used < 1u << u->count; used++)
        rules[used] = grammar_rule(a->w->b);
    rules[0] = a->rule;
    for (uint32_t used = 0; used < 1u << u->count && !schema_failed(a->w); used++) {
        uint32_t there = (uint32_t)__builtin_popcount(used);
        if (used && there >= a->min)
            grammar_alternative(a->w->b, rules[used], &a->close, 1);
        for (uint32_t i = 0; i < u->count && there < a->max; i++)
            if (!(used >> i & 1))
                add_unused(u, rules[used], used, i, rules);
    }
}

/* rules[at][there]: values from `at` on may follow, and `there` items stand already. */
static void emit_in_order(struct unique *u)
{
    ASSERT(u->count <= UNIQUE_MAX);
    struct array *a = u->a;
    uint32_t n = u->count, width = n + 1;
    sym_id *rules = schema_take(a->w, (size_t)width * width * sizeof(*rules));
    if (!rules)
        return;
    for (uint32_t at = n + 1; at-- > 0 && !schema_failed(a->w);)
        for (uint32_t there = 0; there <= at; there++) {
            sym_id rule = at == 0 ? a->rule : grammar_rule(a->w->b), *next = rules + (at + 1) * width;
            rules[at * width + there] = rule;
            if (at == n) {
                if (there > 0 && there >= a->min)
                    grammar_alternative(a->w->b, rule, &a->close, 1);
                continue;
            }
            grammar_alternative(a->w->b, rule, &next[there], 1);
            if (there >= a->max)
                continue;
            sym_id row[3] = {there ? a->next : a->open, u->values[at], next[there + 1]};
            grammar_alternative(a->w->b, rule, row, 3);
        }
}

static void emit_unique(struct array *a, const struct schema_alternative *way)
{
    struct unique u = {.a = a};
    const json_t *values[UNIQUE_MAX];
    struct schema_set set = schema_item(a->w, way, 0);
    bool listed = a->fixed == 0 && !set.none && set.count > 0 && list_values(a->w, &set, values, &u.count);
    if (!listed) {
        schema_fail(a->w, -ENOTSUP, way->arrays ? way->arrays->node : 0,
                    "\"uniqueItems\" is supported over an enum of at most %d values only", UNIQUE_MAX);
        return;
    }
    make_values(&u, values);
    if (u.count <= UNIQUE_ORDER_MAX)
        emit_any_order(&u);
    else
        emit_in_order(&u);
}

void schema_emit_array(struct schema_work *w, const struct schema_alternative *way, sym_id rule)
{
    struct grammar_builder *b = w->b;
    struct json_text *t = &w->text;
    struct array a = {.w = w,
                      .min = way->items_min,
                      .max = way->items_max,
                      .fixed = schema_items_fixed(w, way),
                      .open = grammar_terminal(b, json_text_open(t, '[')),
                      .next = grammar_terminal(b, json_text_open(t, ',')),
                      .close = grammar_terminal(b, json_text_close(t, ']')),
                      .rule = rule};
    if (a.max != RX_UNBOUNDED)
        a.max = MIN_OF(a.max, (uint32_t)GRAMMAR_REPEAT_MAX);
    if (a.min > GRAMMAR_REPEAT_MAX)
        schema_fail(w, -E2BIG, way->arrays ? way->arrays->node : 0, "\"minItems\" above %d is not supported",
                    GRAMMAR_REPEAT_MAX);
    cut_max(&a, way);
    if (a.min > a.max || schema_failed(w))
        return;
    if (a.min == 0) {
        sym_id none = grammar_terminal(b, rx_cat(w->s, json_text_open(t, '['), rx_literal(w->s, SLICE("]"))));
        grammar_alternative(b, rule, &none, 1);
    }
    if (a.max == 0)
        return;
    if (way->unique && a.max > 1)
        emit_unique(&a, way);
    else
        emit_items(&a, way);
}
