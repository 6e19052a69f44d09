/* schema_emit_object.c - objects of a way: a chain of rules, one for each place in the order of names.
 *
 * A rule knows how many members stand before it, as far as that matters: whether there is one, for the comma,
 * and up to minProperties or maxProperties. From a rule one may go on with its name or, if that is optional,
 * with the next rule. So n optional names take 2n rules. */
#include "grammar/schema_work.h"

#define CHAIN_MAX 100000

struct object {
    struct schema_work *w;
    const struct schema_members *m;
    struct schema_named *names; /* without impossible ones */
    uint32_t count;
    uint32_t min, max, cap; /* cap: members are counted up to this one */
    sym_id *rules;          /* [count + 1][cap + 1]; reached: not UINT32_MAX */
    sym_id start;
};

static sym_id *rule_at(const struct object *o, uint32_t index, uint32_t there)
{
    return &o->rules[(size_t)index * (o->cap + 1) + there];
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

static void reach(const struct object *o, uint32_t index, uint32_t there)
{
    sym_id *rule = rule_at(o, index, there);
    if (*rule == UINT32_MAX)
        *rule = index == 0 ? o->start : grammar_rule(o->w->b);
}

static sym_id key_of(const struct object *o, rx_id content, uint32_t there)
{
    return grammar_terminal(o->w->b, json_text_key(&o->w->text, there ? ',' : '{', content));
}

/* ---- named members ---- */

static void emit_required(const struct object *o, uint32_t index, uint32_t there)
{
    struct schema_work *w = o->w;
    uint32_t after = there, end = skip_required(o, index, &after), count = 0, from = there;
    sym_id *row = schema_take(w, (2 * (size_t)(end - index) + 1) * sizeof(*row));
    if (!row || (o->max != UINT32_MAX && there + (end - index) > o->max))
        return;
    for (uint32_t i = index; i < end && !schema_failed(w); i++) {
        row[count++] = key_of(o, json_text_content(&w->text, o->names[i].name), from);
        row[count++] = schema_rule_of(w, &o->names[i].value);
        from = one_more(o, from);
    }
    reach(o, end, after);
    row[count++] = *rule_at(o, end, after);
    grammar_alternative(w->b, *rule_at(o, index, there), row, count);
}

static void emit_optional(const struct object *o, uint32_t index, uint32_t there)
{
    struct schema_work *w = o->w;
    sym_id rule = *rule_at(o, index, there);
    reach(o, index + 1, there);
    grammar_alternative(w->b, rule, rule_at(o, index + 1, there), 1);
    if (there >= o->max)
        return;
    uint32_t next = one_more(o, there);
    reach(o, index + 1, next);
    sym_id row[3] = {key_of(o, json_text_content(&w->text, o->names[index].name), there),
                     schema_rule_of(w, &o->names[index].value), *rule_at(o, index + 1, next)};
    grammar_alternative(w->b, rule, row, 3);
}

/* ---- the end ---- */

/* A member of another name. */
static sym_id other(const struct object *o, uint32_t there)
{
    sym_id rule = grammar_rule(o->w->b);
    for (uint32_t i = 0; i < o->m->other_count; i++) {
        sym_id row[2] = {key_of(o, o->m->others[i].key, there), schema_rule_of(o->w, &o->m->others[i].value)};
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
    struct piece more = piece_repeat(b, piece_sym(other(o, 1)), 0, max);
    return piece_cat(b, more, piece_sym(close)).sym;
}

static void emit_end(const struct object *o, uint32_t there)
{
    struct schema_work *w = o->w;
    sym_id rule = *rule_at(o, o->count, there);
    uint32_t left = o->max == UINT32_MAX ? RX_UNBOUNDED : MIN_OF(o->max - there, (uint32_t)PIECE_REPEAT_MAX);
    if (there == 0 && o->min == 0) {
        sym_id empty =
            grammar_terminal(w->b, rx_cat(w->s, json_text_open(&w->text, '{'), rx_literal(w->s, SLICE("}"))));
        grammar_alternative(w->b, rule, &empty, 1);
    }
    if (there > 0 && there >= o->min) {
        sym_id end = others_and_end(o, left);
        grammar_alternative(w->b, rule, &end, 1);
    }
    if (o->m->other_count == 0 || left == 0 || there + 1 < o->min || (there > 0 && there >= o->min))
        return;
    sym_id row[2] = {other(o, there), others_and_end(o, left == RX_UNBOUNDED ? left : left - 1)};
    grammar_alternative(w->b, rule, row, 2);
}

/* ---- the object ---- */

/* False: a required member cannot be there. */
static bool take_names(struct object *o)
{
    uint32_t required = 0;
    o->names = schema_take(o->w, (o->m->count + 1) * sizeof(*o->names));
    for (uint32_t i = 0; o->names && i < o->m->count; i++) {
        required += o->m->named[i].required;
        if (!o->m->named[i].value.none)
            o->names[o->count++] = o->m->named[i];
        else if (o->m->named[i].required)
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
    uint64_t places = (uint64_t)(o->count + 1) * ((uint64_t)o->cap + 1);
    if (places > CHAIN_MAX) {
        schema_fail(o->w, -E2BIG, 0,
                    "%u properties with maxProperties or minProperties %u take more than %d rules", o->count,
                    o->cap, CHAIN_MAX);
        return false;
    }
    o->rules = schema_take(o->w, places * sizeof(*o->rules));
    for (uint64_t i = 0; o->rules && i < places; i++)
        o->rules[i] = UINT32_MAX;
    return o->rules != NULL;
}

void schema_emit_object(struct schema_work *w, const struct schema_way *way, sym_id rule)
{
    struct object o = {.w = w, .min = way->members_min, .max = way->members_max, .start = rule};
    o.m = schema_members_of(w, way);
    if (!o.m || !take_names(&o) || !take_rules(&o))
        return;
    reach(&o, 0, 0);
    for (uint32_t i = 0; i <= o.count && !schema_failed(w); i++)
        for (uint32_t there = 0; there <= o.cap; there++) {
            if (*rule_at(&o, i, there) == UINT32_MAX)
                continue;
            if (i == o.count)
                emit_end(&o, there);
            else if (o.names[i].required)
                emit_required(&o, i, there);
            else
                emit_optional(&o, i, there);
        }
}
