/* schema_emit.c - a way as alternatives of its set's rule. Everything regular is one terminal. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

/* Arrays and objects that a negation left out. */
static void check_except(struct schema_work *w, const struct schema_alternative *way)
{
    struct schema_alternative rest = *way;
    rest.except = NULL;
    for (const struct schema_except *e = way->except; e; e = e->next)
        if ((schema_type_of(e->value) & (SCHEMA_ARRAY | SCHEMA_OBJECT)) &&
            schema_alternative_accepts(w, &rest, e->value))
            schema_fail(w, -ENOTSUP, 0,
                        "an array or object of enum or const cannot be negated (by not, oneOf or if)");
}

static void check_refusals(struct schema_work *w, const struct schema_alternative *way)
{
    for (const struct schema_refusal *r = way->refusals; r; r = r->next)
        if (r->types & way->types)
            schema_fail(w, -ENOTSUP, r->node, "\"%s\" %s", r->keyword, r->why);
}

static bool is_plain(const struct schema_work *w, const struct schema_alternative *way)
{
    const struct json_number *n = &way->number;
    return way->types == SCHEMA_ANY && way->text == w->text.text && !way->except && !n->low && !n->high &&
           !n->whole && !n->broken && !way->multiples && !way->arrays && !way->objects && !way->unique &&
           way->items_min == 0 && way->items_max == UINT32_MAX && way->members_min == 0 &&
           way->members_max == UINT32_MAX && !way->required && !way->absent && !way->members && !way->names;
}

void schema_emit_alternative(struct schema_work *w, const struct schema_alternative *way, sym_id rule)
{
    ASSERT(way->types != 0);
    check_refusals(w, way);
    if (schema_failed(w))
        return;
    if (way->finite) {
        schema_emit_values(w, way, rule);
        return;
    }
    check_except(w, way);
    if (is_plain(w, way)) {
        sym_id any = json_text_any(&w->text);
        grammar_alternative(w->b, rule, &any, 1);
        return;
    }
    rx_id plain = schema_words_rx(w->s, way->types);
    if (way->types & SCHEMA_STRING)
        plain = rx_or(w->s, plain, json_text_quoted(&w->text, way->text));
    schema_emit_terminal(w, rule, plain);
    if (way->types & SCHEMA_NUMBER)
        schema_emit_number(w, way, rule);
    if (way->types & SCHEMA_ARRAY)
        schema_emit_array(w, way, rule);
    if (way->types & SCHEMA_OBJECT)
        schema_emit_object(w, way, rule);
}
