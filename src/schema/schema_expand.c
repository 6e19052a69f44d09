/* schema_expand.c - a set of literals to its ways.
 *
 * A state holds a way, the literals that are still to be read, and choices. Literals are read first, so that
 * types and bounds are known when options are tried: most options of an anyOf beside a type die at once. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

#define STATES_MAX  20000 /* that one set may need */
#define CHOICES_MAX 100   /* in a row */
#define NESTED_MAX  3     /* proofs within proofs that options exclude each other */

struct chain {
    lit_id lit;
    const struct chain *above;
};

struct todo {
    lit_id lit;
    const struct chain *above;
};

struct open_choice {
    struct schema_choice choice;
    const struct chain *above;
    const struct open_choice *next;
};

struct schema_state {
    struct schema_alternative way;
    struct todo *todo;
    uint32_t first, count, capacity;
    const struct schema_lits *seen;
    const struct open_choice *choices;
    const struct chain *now; /* the literal that is being read */
};

struct schema_alternative *schema_state_alternative(struct schema_state *st)
{
    return &st->way;
}

void schema_state_add(struct schema_work *w, struct schema_state *st, lit_id lit)
{
    if (st->count == st->capacity) {
        uint32_t capacity = st->capacity ? st->capacity * 2 : 8;
        struct todo *more = schema_take(w, capacity * sizeof(*more));
        if (!more)
            return;
        if (st->count)
            memcpy(more, st->todo, st->count * sizeof(*more));
        st->todo = more;
        st->capacity = capacity;
    }
    st->todo[st->count++] = (struct todo){lit, st->now};
}

/* ---- choices ---- */

struct schema_choice *schema_choose(struct schema_work *w, struct schema_state *st, uint32_t node,
                                    const char *key, uint32_t count)
{
    struct open_choice *c = schema_take(w, sizeof(*c));
    struct schema_option *options = schema_take(w, (count + 1u) * sizeof(*options));
    if (!c || !options)
        return NULL;
    *c = (struct open_choice){
        {.capacity = count, .options = options, .key = key, .node = node}, st->now, st->choices};
    st->choices = c;
    return &c->choice;
}

struct schema_option *schema_option_add(struct schema_choice *c)
{
    ASSERT(c->count < c->capacity);
    return &c->options[c->count++];
}

void schema_refuse(struct schema_work *w, struct schema_state *st, uint32_t types, uint32_t node,
                   const char *key, const char *why)
{
    struct schema_refusal *r = schema_take(w, sizeof(*r));
    if (!r)
        return;
    *r = (struct schema_refusal){types, node, key, why, st->way.refusals};
    st->way.refusals = r;
}

/* ---- literals ---- */

static void read_words(struct schema_work *w, struct schema_state *st, uint32_t node)
{
    const char *key;
    json_t *value;
    const json_t *json = w->nodes[node].json;
    if (schema_ref_alone(w, json)) {
        schema_assert(w, st, node, "$ref", json_object_get(json, "$ref"));
        return;
    }
    json_object_foreach((json_t *)json, key, value)
        if (!w->error && schema_word(w->draft, key) == SCHEMA_ASSERTS)
            schema_assert(w, st, node, key, value);
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
        schema_negate(w, st, node, key, json_object_get(json, key));
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

static bool in_circle(const struct chain *c, lit_id lit)
{
    for (; c; c = c->above)
        if (c->lit / 2 == lit / 2)
            return true;
    return false;
}

static void read_literal(struct schema_work *w, struct schema_state *st, struct todo t)
{
    uint32_t node = t.lit / 2;
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
    struct chain *chain = schema_take(w, sizeof(*chain));
    if (!seen || !chain)
        return;
    *seen = (struct schema_lits){t.lit, st->seen};
    *chain = (struct chain){t.lit, t.above};
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
        schema_negate(w, st, a->node, a->key, a->value);
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
        none = !schema_alternative_resolve(w, &ways.all[i], NESTED_MAX - w->nested);
    w->nested--;
    if (!w->error)
        arena_rewind(w->scratch, mark);
    return none && !w->error;
}

/* Rules out, for oneOf, the other options that are not provably apart from this one. */
static void rule_out_others(struct expand *x, struct schema_state *st, const struct schema_choice *c,
                            uint32_t option)
{
    lit_id mine = c->options[option].atoms[0].lit;
    for (uint32_t i = 0; i < c->count && !schema_failed(x->w); i++)
        if (i != option && !excludes(x, mine, c->options[i].atoms[0].lit, st->way.types))
            schema_state_add(x->w, st, LIT_NOT(c->options[i].atoms[0].lit));
}

static void try_option(struct expand *x, const struct schema_state *from, const struct open_choice *c,
                       uint32_t option, uint32_t depth)
{
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
static const struct open_choice *pick(struct schema_work *w, struct schema_state *st)
{
    const struct open_choice *best = st->choices, *rest = NULL;
    for (const struct open_choice *c = st->choices; c; c = c->next)
        if (c->choice.count < best->choice.count)
            best = c;
    for (const struct open_choice *c = st->choices; c; c = c->next) {
        if (c == best)
            continue;
        struct open_choice *copy = schema_take(w, sizeof(*copy));
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
        if (schema_alternative_resolve(w, &st->way, 0))
            add_way(x, &st->way);
        return;
    }
    const struct open_choice *c = pick(w, st);
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
    /* 5.0 is an integer; but clients whose languages have integers refuse it. */
    st.way.number.point = w->draft != 4 && !w->opts->plain;
    for (uint32_t i = 0; i < set->count && st.way.types; i++)
        schema_state_add(w, &st, set->lits[i]);
    run(&x, &st, 0);
    return x.ways;
}
