/* schema_expand.c - a set of literals to its ways; and whether a value satisfies one. Each needs the other: a
 * way keeps those values of an enum that satisfy the rest of it.
 *
 * A state holds a way, the literals that are still to be read, and choices. Literals are read first, so that
 * types and bounds are known when options are tried: most options of an anyOf beside a type die at once. */
#include "schema/schema.h"
#include "schema/schema_state.h"

#include "base/check.h"

#define STATES_MAX  20000 /* that one set may need */
#define CHOICES_MAX 100   /* in a row */
#define NESTED_MAX  3     /* proofs within proofs that options exclude each other */

/* Drops types and values that nothing satisfies, as far as `depth` levels of required members show. False: no
 * value is left. */
static bool resolve(struct schema_work *w, struct schema_alternative *way, uint32_t depth);

/* ---- literals ---- */

static void read_keyword(struct schema_work *w, struct schema_state *st, uint32_t node, const char *key,
                         const json_t *value, bool negated)
{
    const struct schema_keyword o = {w, st, &st->way, node, key, value, negated};
    negated ? schema_negate(&o) : schema_assert(&o);
}

static void read_words(struct schema_work *w, struct schema_state *st, uint32_t node)
{
    const char *key;
    json_t *value;
    const json_t *json = w->nodes[node].json;
    if (schema_ref_alone(w, json)) {
        read_keyword(w, st, node, "$ref", json_object_get(json, "$ref"), false);
        return;
    }
    json_object_foreach((json_t *)json, key, value)
        if (!w->error && schema_word(w->draft, key) == SCHEMA_ASSERTS)
            read_keyword(w, st, node, key, value, false);
}

static uint32_t count_words(struct schema_work *w, const json_t *json, const char **ret)
{
    const char *key;
    json_t *value;
    uint32_t count = 0;
    if (schema_ref_alone(w, json)) {
        *ret = "$ref";
        return 1;
    }
    json_object_foreach((json_t *)json, key, value)
        if (schema_word(w->draft, key) == SCHEMA_ASSERTS)
            *ret = key, count++;
    return count;
}

static void add_not_word(struct schema_choice *c, uint32_t node, const char *key, const json_t *value)
{
    struct schema_option *o = schema_option_add(c);
    o->count = 1;
    o->atoms[0] = (struct schema_atom){.kind = ATOM_NOT_WORD, .node = node, .key = key, .value = value};
}

/* A negated schema: one of its keywords fails. */
static void read_negated(struct schema_work *w, struct schema_state *st, uint32_t node)
{
    const json_t *json = w->nodes[node].json;
    const char *key = NULL;
    json_t *value;
    uint32_t count = count_words(w, json, &key);
    if (count == 0)
        st->way.types = 0;
    if (count == 1)
        read_keyword(w, st, node, key, json_object_get(json, key), true);
    if (count < 2)
        return;
    struct schema_choice *c = schema_choose(w, st, node, "not", count);
    if (c)
        json_object_foreach((json_t *)json, key, value)
            if (schema_word(w->draft, key) == SCHEMA_ASSERTS)
                add_not_word(c, node, key, value);
}

static bool is_seen(const struct schema_lits *l, lit_id lit)
{
    for (; l; l = l->next)
        if (l->lit == lit)
            return true;
    return false;
}

static bool in_circle(const struct schema_chain *c, lit_id lit)
{
    for (; c; c = c->above)
        if (c->lit / 2 == lit / 2)
            return true;
    return false;
}

static void read_literal(struct schema_work *w, struct schema_state *st, struct schema_chain t)
{
    uint32_t node = t.lit / 2;
    ASSERT(node < w->node_count);
    if (node == SCHEMA_NODE_TRUE || node == SCHEMA_NODE_FALSE) {
        if ((node == SCHEMA_NODE_FALSE) != (t.lit & 1))
            st->way.types = 0;
        return;
    }
    if (in_circle(t.above, t.lit)) {
        schema_fail(w, -ENOTSUP, node, "\"$ref\" comes back to itself without a property or item between");
        return;
    }
    if (is_seen(st->seen, LIT_NOT(t.lit)))
        st->way.types = 0;
    if (is_seen(st->seen, t.lit))
        return;
    struct schema_lits *seen = schema_take(w, sizeof(*seen));
    struct schema_chain *chain = schema_take(w, sizeof(*chain));
    if (!seen || !chain)
        return;
    *seen = (struct schema_lits){t.lit, st->seen};
    *chain = t;
    st->seen = seen;
    st->now = chain;
    if (t.lit & 1)
        read_negated(w, st, node);
    else
        read_words(w, st, node);
}

/* ---- options ---- */

static void add_name(struct schema_work *w, const struct schema_name **list, struct slice name)
{
    struct schema_name *n = schema_take(w, sizeof(*n));
    if (!n)
        return;
    *n = (struct schema_name){name, *list};
    *list = n;
}

static void add_member(struct schema_work *w, struct schema_state *st, struct slice name, lit_id lit)
{
    struct schema_member *m = schema_take(w, sizeof(*m));
    if (!m)
        return;
    *m = (struct schema_member){name, lit, st->way.members};
    st->way.members = m;
}

static void take_atom(struct schema_work *w, struct schema_state *st, const struct schema_atom *a)
{
    switch (a->kind) {
    case ATOM_LIT:
        schema_state_add(w, st, a->lit);
        break;
    case ATOM_TYPES:
        st->way.types &= a->types;
        break;
    case ATOM_PRESENT:
        add_name(w, &st->way.required, a->name);
        break;
    case ATOM_ABSENT:
        add_name(w, &st->way.absent, a->name);
        break;
    case ATOM_MEMBER:
        add_member(w, st, a->name, a->lit);
        break;
    case ATOM_NOT_WORD:
        read_keyword(w, st, a->node, a->key, a->value, true);
        break;
    }
}

struct expand {
    struct schema_work *w;
    struct schema_alternatives ways;
    uint32_t states;
};

static void run(struct expand *x, struct schema_state *st, uint32_t depth);

/* No value of `types` satisfies both. */
static bool excludes(struct expand *x, lit_id a, lit_id b, uint32_t types)
{
    struct schema_work *w = x->w;
    if (a == LIT(a / 2) && b == LIT(b / 2) && schema_apart(w, a / 2, b / 2))
        return true;
    ASSERT(w->nested <= NESTED_MAX);
    if (w->nested == NESTED_MAX)
        return false;
    struct schema_set_of of = {0};
    schema_set_add(w, &of, a);
    schema_set_add(w, &of, b);
    struct schema_set both = schema_set_done(w, &of);
    size_t mark = arena_mark(w->scratch);
    w->nested++;
    struct schema_alternatives ways = schema_expand(w, &both, types);
    bool none = !w->error;
    for (uint32_t i = 0; i < ways.count && none; i++)
        none = !resolve(w, &ways.all[i], NESTED_MAX - w->nested);
    w->nested--;
    if (!w->error)
        arena_rewind(w->scratch, mark);
    return none && !w->error;
}

/* Rules out, for oneOf, the other options that are not provably apart from this one. */
static void rule_out_others(struct expand *x, struct schema_state *st, const struct schema_choice *c,
                            uint32_t option)
{
    ASSERT(option < c->count && c->options[option].count > 0);
    lit_id mine = c->options[option].atoms[0].lit;
    for (uint32_t i = 0; i < c->count && !schema_failed(x->w); i++)
        if (i != option && !excludes(x, mine, c->options[i].atoms[0].lit, st->way.types))
            schema_state_add(x->w, st, LIT_NOT(c->options[i].atoms[0].lit));
}

static void try_option(struct expand *x, const struct schema_state *from, const struct schema_open_choice *c,
                       uint32_t option, uint32_t depth)
{
    ASSERT(option < c->choice.count);
    struct schema_state st = *from;
    const struct schema_option *o = &c->choice.options[option];
    st.todo = NULL;
    st.first = st.count = st.capacity = 0;
    st.now = c->above;
    for (uint32_t i = 0; i < o->count; i++)
        take_atom(x->w, &st, &o->atoms[i]);
    for (uint32_t i = 0; i < o->more_count; i++)
        take_atom(x->w, &st, &o->more[i]);
    if (strcmp(c->choice.key, "oneOf") == 0)
        rule_out_others(x, &st, &c->choice, option);
    run(x, &st, depth + 1);
}

/* The choice with the fewest options, out of the list. */
static const struct schema_open_choice *pick(struct schema_work *w, struct schema_state *st)
{
    ASSERT(st->choices);
    const struct schema_open_choice *best = st->choices, *rest = NULL;
    for (const struct schema_open_choice *c = st->choices; c; c = c->next)
        if (c->choice.count < best->choice.count)
            best = c;
    for (const struct schema_open_choice *c = st->choices; c; c = c->next) {
        if (c == best)
            continue;
        struct schema_open_choice *copy = schema_take(w, sizeof(*copy));
        if (!copy)
            return NULL;
        *copy = *c;
        copy->next = rest;
        rest = copy;
    }
    st->choices = rest;
    return best;
}

static void add_way(struct expand *x, const struct schema_alternative *way)
{
    struct schema_alternatives *l = &x->ways;
    ASSERT(way->types != 0);
    if (l->count == SCHEMA_WAYS_MAX) {
        schema_fail(x->w, -E2BIG, way->objects ? way->objects->node : 0,
                    "allOf, anyOf, oneOf and the like combine to more than %d alternatives", SCHEMA_WAYS_MAX);
        return;
    }
    if (l->count == l->capacity) {
        uint32_t capacity = l->capacity ? l->capacity * 2 : 4;
        struct schema_alternative *more = schema_take(x->w, capacity * sizeof(*more));
        if (!more)
            return;
        if (l->count)
            memcpy(more, l->all, l->count * sizeof(*more));
        l->all = more;
        l->capacity = capacity;
    }
    l->all[l->count++] = *way;
}

static void run(struct expand *x, struct schema_state *st, uint32_t depth)
{
    struct schema_work *w = x->w;
    if (depth > CHOICES_MAX || ++x->states > STATES_MAX) {
        schema_fail(w, -E2BIG, 0, "allOf, anyOf, oneOf, not and if combine to too many alternatives");
        return;
    }
    while (st->first < st->count && st->way.types && !schema_failed(w))
        read_literal(w, st, st->todo[st->first++]);
    if (!st->way.types || w->error)
        return;
    if (!st->choices) {
        if (resolve(w, &st->way, 0))
            add_way(x, &st->way);
        return;
    }
    const struct schema_open_choice *c = pick(w, st);
    for (uint32_t i = 0; c && i < c->choice.count && !schema_failed(w); i++)
        try_option(x, st, c, i, depth);
}

struct schema_alternatives schema_expand(struct schema_work *w, const struct schema_set *set, uint32_t types)
{
    struct expand x = {.w = w};
    struct schema_state st = {.way = {.types = set->none ? 0 : types,
                                      .text = w->text.text,
                                      .items_max = UINT32_MAX,
                                      .members_max = UINT32_MAX}};
    ASSERT((types & ~(uint32_t)SCHEMA_ANY) == 0);
    /* 5.0 is an integer; but clients whose languages have integers refuse it. */
    st.way.number.point = w->draft != 4 && !w->opts->plain;
    for (uint32_t i = 0; i < set->count && st.way.types; i++)
        schema_state_add(w, &st, set->lits[i]);
    run(&x, &st, 0);
    return x.ways;
}

/* ---- propertyNames ---- */

/* The strings of a set. */
static rx_id strings_of(struct schema_work *w, const struct schema_set *set)
{
    struct schema_alternatives ways = schema_expand(w, set, SCHEMA_STRING);
    rx_id all = RX_NONE;
    for (uint32_t i = 0; i < ways.count && !schema_failed(w); i++) {
        const struct schema_alternative *way = &ways.all[i];
        for (const struct schema_refusal *r = way->refusals; r; r = r->next)
            schema_fail(w, -ENOTSUP, r->node, "\"%s\" %s", r->keyword, r->why);
        rx_id text = way->finite ? RX_NONE : way->text;
        for (uint32_t k = 0; k < way->values.count; k++) {
            ASSERT(json_is_string(way->values.all[k]));
            rx_id one = json_text_content(&w->text, schema_text(way->values.all[k]));
            text = text == RX_NONE ? one : rx_or(w->s, text, one);
        }
        all = all == RX_NONE ? text : rx_or(w->s, all, text);
    }
    return all;
}

static rx_id allowed_names(struct schema_work *w, const struct schema_alternative *way)
{
    struct schema_set_of of = {0};
    for (const struct schema_lits *l = way->names; l; l = l->next)
        schema_set_add(w, &of, l->lit);
    struct schema_set set = schema_set_done(w, &of);
    if (set.none)
        return RX_NONE;
    return set.count ? strings_of(w, &set) : w->text.text;
}

struct schema_members *schema_members_of(struct schema_work *w, const struct schema_alternative *way)
{
    return schema_members_make(w, way, allowed_names(w, way));
}

/* ---- values that satisfy ---- */

/* A whole number of multiples? Exact: digit by digit, as one does on paper. */
static bool is_multiple(const struct decimal *d, const struct decimal *of)
{
    uint32_t scale = of->fraction;
    uint64_t k = 0, rest = 0;
    if (d->fraction > scale)
        scale = d->fraction;
    for (uint32_t i = 0; i < of->whole + scale; i++) {
        if (k > UINT64_MAX / 20)
            return false;
        k = k * 10 + (uint64_t)(i < (uint32_t)of->whole + of->fraction ? of->digits[i] - '0' : 0);
    }
    if (k > UINT64_MAX / 20)
        return false;
    ASSERT(k > 0);
    for (uint32_t i = 0; i < d->whole + scale; i++)
        rest = (rest * 10 + (uint64_t)(i < (uint32_t)d->whole + d->fraction ? d->digits[i] - '0' : 0)) % k;
    return rest == 0;
}

static bool number_accepts(const struct schema_alternative *way, const json_t *value)
{
    ASSERT(json_is_number(value));
    struct decimal d;
    if (!decimal_of(value, &d) || !json_number_has(&way->number, &d))
        return false;
    for (const struct schema_multiple *m = way->multiples; m; m = m->next)
        if (!is_multiple(&d, &m->of))
            return false;
    return true;
}

static bool is_unique(const json_t *list)
{
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (schema_equal(json_array_get(list, i), json_array_get(list, k)))
                return false;
    return true;
}

static bool set_accepts(struct schema_work *w, const struct schema_set *set, const json_t *value);

static bool array_accepts(struct schema_work *w, const struct schema_alternative *way, const json_t *value)
{
    ASSERT(json_is_array(value));
    size_t count = json_array_size(value);
    if (count < way->items_min || count > way->items_max ||
        (way->unique && (count > 1000 || !is_unique(value))))
        return false;
    for (size_t i = 0; i < count && !schema_failed(w); i++) {
        struct schema_set item = schema_item(w, way, (uint32_t)i);
        if (!set_accepts(w, &item, json_array_get(value, i)))
            return false;
    }
    return true;
}

static const struct schema_set *member_set(struct schema_work *w, const struct schema_members *m,
                                           struct slice name)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (slice_eq(m->named[i].name, name))
            return &m->named[i].value;
    for (uint32_t i = 0; i < m->other_count; i++)
        if (json_text_matches(&w->text, m->others[i].key, name))
            return &m->others[i].value;
    return NULL;
}

static bool object_accepts(struct schema_work *w, const struct schema_alternative *way, const json_t *value)
{
    ASSERT(json_is_object(value));
    const char *key;
    json_t *member;
    size_t count = json_object_size(value);
    if (count < way->members_min || count > way->members_max)
        return false;
    const struct schema_members *m = schema_members_of(w, way);
    for (uint32_t i = 0; m && i < m->count; i++)
        if (m->named[i].required && !json_object_get(value, m->named[i].name.ptr))
            return false;
    json_object_foreach((json_t *)value, key, member) {
        const struct schema_set *set = m ? member_set(w, m, slice_of(key)) : NULL;
        if (!set || schema_failed(w) || !set_accepts(w, set, member))
            return false;
    }
    return m != NULL;
}

/* ---- ways and sets ---- */

static bool is_excepted(const struct schema_alternative *way, const json_t *value)
{
    for (const struct schema_except *e = way->except; e; e = e->next)
        if (schema_equal(e->value, value))
            return true;
    return false;
}

static bool is_among(const struct schema_alternative *way, const json_t *value)
{
    for (uint32_t i = 0; i < way->values.count; i++)
        if (schema_equal(way->values.all[i], value))
            return true;
    return false;
}

static bool rest_accepts(struct schema_work *w, const struct schema_alternative *way, const json_t *value)
{
    uint32_t type = schema_type_of(value);
    if (!(way->types & type) || is_excepted(way, value))
        return false;
    if (type == SCHEMA_NUMBER)
        return number_accepts(way, value);
    if (type == SCHEMA_STRING)
        return way->text == w->text.text || json_text_matches(&w->text, way->text, schema_text(value));
    if (type == SCHEMA_ARRAY)
        return array_accepts(w, way, value);
    return type != SCHEMA_OBJECT || object_accepts(w, way, value);
}

bool schema_alternative_accepts(struct schema_work *w, const struct schema_alternative *way,
                                const json_t *value)
{
    if (way->finite && !is_among(way, value))
        return false;
    return rest_accepts(w, way, value);
}

static bool set_accepts(struct schema_work *w, const struct schema_set *set, const json_t *value)
{
    if (set->none || set->count == 0)
        return !set->none;
    struct schema_alternatives ways = schema_expand(w, set, schema_type_of(value));
    for (uint32_t i = 0; i < ways.count && !schema_failed(w); i++)
        if (schema_alternative_accepts(w, &ways.all[i], value))
            return true;
    return false;
}

/* ---- the rest of a way ---- */

static void resolve_values(struct schema_work *w, struct schema_alternative *way)
{
    ASSERT(way->finite);
    const json_t **kept = schema_take(w, (way->values.count + 1) * sizeof(*kept));
    uint32_t count = 0, types = 0;
    if (!kept)
        return;
    for (uint32_t i = 0; i < way->values.count && !schema_failed(w); i++)
        if (rest_accepts(w, way, way->values.all[i])) {
            kept[count++] = way->values.all[i];
            types |= schema_type_of(way->values.all[i]);
        }
    way->values = (struct schema_values){count, kept};
    ASSERT(schema_failed(w) || (count == 0) == (types == 0));
    way->types &= types;
}

static bool set_is_empty(struct schema_work *w, const struct schema_set *set, uint32_t depth)
{
    if (set->none || depth == 0)
        return set->none;
    struct schema_alternatives ways = schema_expand(w, set, SCHEMA_ANY);
    for (uint32_t i = 0; i < ways.count && !schema_failed(w); i++)
        if (resolve(w, &ways.all[i], depth - 1))
            return false;
    return !w->error;
}

static bool object_is_empty(struct schema_work *w, const struct schema_alternative *way, uint32_t depth)
{
    ASSERT(!way->finite && (way->types & SCHEMA_OBJECT));
    if (way->members_min > way->members_max)
        return true;
    if (!way->required)
        return false;
    const struct schema_members *m = schema_members_of(w, way);
    for (uint32_t i = 0; m && i < m->count && !schema_failed(w); i++)
        if (m->named[i].required && set_is_empty(w, &m->named[i].value, depth))
            return true;
    return false;
}

static bool array_is_empty(struct schema_work *w, const struct schema_alternative *way, uint32_t depth)
{
    ASSERT(!way->finite && (way->types & SCHEMA_ARRAY));
    if (way->items_min > way->items_max)
        return true;
    for (uint32_t i = 0; way->arrays && i < MIN_OF(way->items_min, 8u) && !schema_failed(w); i++) {
        struct schema_set item = schema_item(w, way, i);
        if (set_is_empty(w, &item, depth))
            return true;
    }
    return false;
}

static bool resolve(struct schema_work *w, struct schema_alternative *way, uint32_t depth)
{
    if (way->finite)
        resolve_values(w, way);
    if (way->finite || !way->types)
        return way->types != 0;
    if ((way->types & SCHEMA_NUMBER) && json_number_is_empty(&way->number))
        way->types &= ~(uint32_t)SCHEMA_NUMBER;
    if ((way->types & SCHEMA_STRING) && way->text != w->text.text && schema_rx_none(w, way->text))
        way->types &= ~(uint32_t)SCHEMA_STRING;
    if ((way->types & SCHEMA_OBJECT) && object_is_empty(w, way, depth))
        way->types &= ~(uint32_t)SCHEMA_OBJECT;
    if ((way->types & SCHEMA_ARRAY) && array_is_empty(w, way, depth))
        way->types &= ~(uint32_t)SCHEMA_ARRAY;
    return way->types != 0;
}
