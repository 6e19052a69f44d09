/* schema_emit_object.c - objects of a way: a chain of rules, two for each place in the order of names.
 *
 * Both know how many members stand before them, as far as that matters: whether there is one, for the comma,
 * and up to minProperties or maxProperties. `rules` stand after a member or before the first one, and go on
 * with a brace or comma or with the end. `names` stand after the brace or comma: with the place's name, or
 * with the next place if that name is optional. So the white space before names occurs once and not with each
 * name: it may be a line end and 80 spaces, and the automaton would have a rest of each name after each of
 * them. n optional names take 4n rules. */
#include "schema/schema_work.h"

#include "base/check.h"
#include "grammar/grammar_expr.h"

#define CHAIN_MAX 100000

struct object {
    struct schema_work *w;
    const struct schema_members *m;
    struct schema_named *names; /* without impossible ones */
    uint32_t count;
    uint32_t min, max, cap;      /* cap: members are counted up to this one */
    uint32_t required_end;       /* no name at or after this index is required */
    sym_id *rules, *names_rules; /* [count + 1][cap + 1]; reached: not UINT32_MAX */
    sym_id start;
};

static size_t place_of(const struct object *o, uint32_t index, uint32_t there)
{
    ASSERT(index <= o->count && there <= o->cap);
    return (size_t)index * (o->cap + 1) + there;
}

static uint32_t one_more(const struct object *o, uint32_t there)
{
    return MIN_OF(there + 1, o->cap);
}

/* The first name at or after `index` that is optional, and the members before it. */
static uint32_t skip_required(const struct object *o, uint32_t index, uint32_t *there)
{
    while (index < o->count && o->names[index].required) {
        *there = one_more(o, *there);
        index++;
    }
    return index;
}

static sym_id rule_at(const struct object *o, uint32_t index, uint32_t there)
{
    sym_id *rule = &o->rules[place_of(o, index, there)];
    if (*rule == UINT32_MAX)
        *rule = index == 0 ? o->start : grammar_rule(o->w->b);
    return *rule;
}

static sym_id names_at(const struct object *o, uint32_t index, uint32_t there)
{
    sym_id *rule = &o->names_rules[place_of(o, index, there)];
    if (*rule == UINT32_MAX)
        *rule = grammar_rule(o->w->b);
    return *rule;
}

static char head_of(uint32_t there)
{
    return there ? ',' : '{';
}

static sym_id key_of(const struct object *o, rx_id content, uint32_t there)
{
    return grammar_terminal(o->w->b, json_text_key(&o->w->text, head_of(there), content));
}

static sym_id name_of(const struct object *o, rx_id content)
{
    return grammar_terminal(o->w->b, json_text_name(&o->w->text, content));
}

static rx_id content_of(const struct object *o, uint32_t index)
{
    return json_text_content(&o->w->text, o->names[index].name);
}

/* ---- named members ---- */

/* Required names from `index` on. `headed`: the brace or comma before the first one is there already. */
static void emit_required(const struct object *o, uint32_t index, uint32_t there, bool headed)
{
    ASSERT(index < o->count && o->names[index].required);
    struct schema_work *w = o->w;
    uint32_t after = there, end = skip_required(o, index, &after), count = 0, from = there;
    sym_id *row = schema_take(w, (2 * (size_t)(end - index) + 1) * sizeof(*row));
    if (!row || (o->max != UINT32_MAX && there + (end - index) > o->max))
        return;
    for (uint32_t i = index; i < end && !schema_failed(w); i++) {
        row[count++] =
            headed && i == index ? name_of(o, content_of(o, i)) : key_of(o, content_of(o, i), from);
        row[count++] = schema_rule_of(w, &o->names[i].value);
        from = one_more(o, from);
    }
    row[count++] = rule_at(o, end, after);
    sym_id rule = headed ? names_at(o, index, there) : rule_at(o, index, there);
    grammar_alternative(w->b, rule, row, count);
}

static void emit_optional(const struct object *o, uint32_t index, uint32_t there)
{
    ASSERT(index < o->count && !o->names[index].required);
    struct schema_work *w = o->w;
    sym_id rule = names_at(o, index, there);
    sym_id row[3] = {name_of(o, content_of(o, index)), schema_rule_of(w, &o->names[index].value),
                     rule_at(o, index + 1, one_more(o, there))};
    grammar_alternative(w->b, rule, row, 3);
    if (index + 1 == o->count && o->m->other_count == 0)
        return;
    sym_id next = names_at(o, index + 1, there);
    grammar_alternative(w->b, rule, &next, 1);
}

/* ---- the end ---- */

/* A member of another name. */
static sym_id other(const struct object *o, uint32_t there, bool headed)
{
    sym_id rule = grammar_rule(o->w->b);
    for (uint32_t i = 0; i < o->m->other_count; i++) {
        rx_id key = o->m->others[i].key;
        sym_id row[2] = {headed ? name_of(o, key) : key_of(o, key, there),
                         schema_rule_of(o->w, &o->m->others[i].value)};
        grammar_alternative(o->w->b, rule, row, 2);
    }
    return rule;
}

/* Up to `max` members of other names after the first member, and the end. */
static sym_id others_and_end(const struct object *o, uint32_t max)
{
    struct grammar_builder *b = o->w->b;
    sym_id close = grammar_terminal(b, json_text_close(&o->w->text, '}'));
    if (o->m->other_count == 0 || max == 0)
        return close;
    struct expr more = expr_repeat(b, expr_sym(other(o, 1, false)), 0, max);
    return expr_cat(b, more, expr_sym(close)).sym;
}

static uint32_t others_max(const struct object *o, uint32_t there)
{
    ASSERT(there <= o->max);
    return o->max == UINT32_MAX ? RX_UNBOUNDED : MIN_OF(o->max - there, (uint32_t)GRAMMAR_REPEAT_MAX);
}

/* One member of another name at least. */
static void emit_others(const struct object *o, uint32_t there, bool headed)
{
    uint32_t left = others_max(o, there);
    if (o->m->other_count == 0 || left == 0 || there + 1 < o->min)
        return;
    sym_id row[2] = {other(o, there, headed), others_and_end(o, left == RX_UNBOUNDED ? left : left - 1)};
    sym_id rule = headed ? names_at(o, o->count, there) : rule_at(o, o->count, there);
    grammar_alternative(o->w->b, rule, row, 2);
}

/* The end at `rule`, if there are enough members; before it up to `others` members of other names. */
static void emit_end(const struct object *o, sym_id rule, uint32_t there, uint32_t others)
{
    struct schema_work *w = o->w;
    if (there < o->min)
        return;
    sym_id end = there > 0 ? others_and_end(o, others)
                           : grammar_terminal(w->b, rx_cat(w->s, json_text_open(&w->text, '{'),
                                                           rx_literal(w->s, SLICE("}"))));
    grammar_alternative(w->b, rule, &end, 1);
}

/* ---- a place in the order ---- */

static void emit_rule(const struct object *o, uint32_t index, uint32_t there)
{
    struct schema_work *w = o->w;
    sym_id rule = rule_at(o, index, there);
    if (index == o->count) {
        emit_end(o, rule, there, others_max(o, there));
        if (there == 0 || there < o->min)
            emit_others(o, there, false);
        return;
    }
    if (o->names[index].required) {
        emit_required(o, index, there, false);
        return;
    }
    if (index >= o->required_end)
        emit_end(o, rule, there, 0);
    if (there >= o->max)
        return;
    sym_id row[2] = {grammar_terminal(w->b, json_text_open(&w->text, head_of(there))),
                     names_at(o, index, there)};
    grammar_alternative(w->b, rule, row, 2);
}

static void emit_names(const struct object *o, uint32_t index, uint32_t there)
{
    if (index == o->count)
        emit_others(o, there, true);
    else if (o->names[index].required)
        emit_required(o, index, there, true);
    else
        emit_optional(o, index, there);
}

/* ---- the object ---- */

/* False: a required member cannot be there. */
static bool take_names(struct object *o)
{
    uint32_t required = 0;
    o->names = schema_take(o->w, (o->m->count + 1) * sizeof(*o->names));
    for (uint32_t i = 0; o->names && i < o->m->count; i++) {
        required += o->m->named[i].required;
        if (!o->m->named[i].value.none) {
            o->names[o->count++] = o->m->named[i];
            o->required_end = o->m->named[i].required ? o->count : o->required_end;
        } else if (o->m->named[i].required)
            return false;
    }
    /* Members of other names may have equal names, so at most one of them counts for minProperties. */
    if (o->min > 1 && required < o->min && o->m->other_count)
        schema_fail(o->w, -ENOTSUP, 0,
                    "\"minProperties\" above 1 is supported where additionalProperties is false");
    if (required >= o->min)
        o->min = required ? 1 : o->min;
    return o->names && !o->w->error;
}

static bool take_rules(struct object *o)
{
    o->cap = MAX_OF(o->max == UINT32_MAX ? 1u : o->max, MAX_OF(o->min, 1u));
    if (o->max != UINT32_MAX && o->cap > o->count + 1u)
        o->cap = o->m->other_count ? o->cap : o->count + 1u;
    ASSERT(o->cap > 0);
    uint64_t places = (uint64_t)(o->count + 1) * ((uint64_t)o->cap + 1);
    if (places > CHAIN_MAX) {
        schema_fail(o->w, -E2BIG, 0,
                    "%u properties with maxProperties or minProperties %u take more than %d rules", o->count,
                    o->cap, CHAIN_MAX);
        return false;
    }
    o->rules = schema_take(o->w, places * sizeof(*o->rules));
    o->names_rules = schema_take(o->w, places * sizeof(*o->names_rules));
    for (uint64_t i = 0; o->rules && o->names_rules && i < places; i++)
        o->rules[i] = o->names_rules[i] = UINT32_MAX;
    return o->rules && o->names_rules;
}

void schema_emit_object(struct schema_work *w, const struct schema_alternative *way, sym_id rule)
{
    struct object o = {.w = w, .min = way->members_min, .max = way->members_max, .start = rule};
    o.m = schema_members_of(w, way);
    if (!o.m || !take_names(&o) || !take_rules(&o))
        return;
    o.rules[0] = rule;
    for (uint32_t i = 0; i <= o.count && !schema_failed(w); i++)
        for (uint32_t there = 0; there <= o.cap; there++) {
            if (o.rules[place_of(&o, i, there)] != UINT32_MAX)
                emit_rule(&o, i, there);
            if (o.names_rules[place_of(&o, i, there)] != UINT32_MAX)
                emit_names(&o, i, there);
        }
}
