/* schema_members.c - the members of a way's objects: which names, in which order, and what each value must
 * satisfy.
 *
 * Names of all nodes stand in the order of the document. Other keys fall into classes: one for each
 * combination of patterns that match. Classes whose values satisfy the same set become one. */
#include "schema/schema_work.h"

#include "base/check.h"

#include <stdlib.h>

struct gather {
    struct schema_work *w;
    const struct schema_alternative *way;
    struct schema_members *m;
    uint32_t capacity;
    uint32_t *places; /* hash table of names; index + 1 */
    uint32_t place_count;
    const struct schema_part **parts; /* in the document's order */
    uint32_t part_count;
    struct slice patterns[SCHEMA_PATTERNS_MAX];
    rx_id pattern_rx[SCHEMA_PATTERNS_MAX];
    uint32_t pattern_count;
    rx_id names; /* that propertyNames allows */
};

/* ---- names ---- */

static uint32_t hash_of(struct slice name)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (uint8_t)name.ptr[i]) * 16777619u;
    return h;
}

static uint32_t *place_of(const struct gather *g, struct slice name)
{
    ASSERT(g->m->count < g->place_count);
    uint32_t at = hash_of(name) & (g->place_count - 1);
    while (g->places[at] && !slice_eq(g->m->named[g->places[at] - 1].name, name))
        at = (at + 1) & (g->place_count - 1);
    return &g->places[at];
}

static struct schema_named *named(const struct gather *g, struct slice name)
{
    uint32_t *place = place_of(g, name);
    if (!*place) {
        g->m->named[g->m->count] = (struct schema_named){.name = name};
        *place = ++g->m->count;
        ASSERT(2 * g->m->count <= g->place_count);
    }
    return &g->m->named[*place - 1];
}

static const json_t *keyword(const struct gather *g, uint32_t part, const char *key)
{
    ASSERT(part < g->part_count);
    return json_object_get(g->w->nodes[g->parts[part]->node].json, key);
}

static size_t count_names(const struct gather *g)
{
    size_t count = 0;
    for (uint32_t i = 0; i < g->part_count; i++)
        count += json_object_size(keyword(g, i, "properties"));
    for (const struct schema_member *m = g->way->members; m; m = m->next)
        count++;
    for (const struct schema_name *n = g->way->required; n; n = n->next)
        count++;
    for (const struct schema_name *n = g->way->absent; n; n = n->next)
        count++;
    return count;
}

static void add_required(const struct gather *g, const struct schema_name *list)
{
    /* The list has the latest first. */
    if (!list)
        return;
    uint32_t count = 0, i = 0;
    for (const struct schema_name *n = list; n; n = n->next)
        count++;
    const struct schema_name **all = schema_take(g->w, count * sizeof(*all));
    if (!all)
        return;
    for (const struct schema_name *n = list; n; n = n->next)
        all[i++] = n;
    ASSERT(i == count);
    while (i-- > 0)
        named(g, all[i]->text)->required = true;
}

static void gather_names(const struct gather *g)
{
    for (uint32_t i = 0; i < g->part_count; i++) {
        const char *name;
        json_t *value;
        json_object_foreach((json_t *)keyword(g, i, "properties"), name, value)
            named(g, slice_of(name));
    }
    add_required(g, g->way->required);
    for (const struct schema_member *m = g->way->members; m; m = m->next)
        named(g, m->name);
    for (const struct schema_name *n = g->way->absent; n; n = n->next)
        named(g, n->text);
}

/* ---- patterns ---- */

static void add_pattern(struct gather *g, uint32_t node, const char *pattern)
{
    struct slice text = slice_of(pattern);
    for (uint32_t i = 0; i < g->pattern_count; i++)
        if (slice_eq(g->patterns[i], text))
            return;
    if (g->pattern_count == SCHEMA_PATTERNS_MAX) {
        schema_fail(g->w, -E2BIG, node, "\"patternProperties\" of one object has more than %d patterns",
                    SCHEMA_PATTERNS_MAX);
        return;
    }
    ASSERT(g->pattern_count < SCHEMA_PATTERNS_MAX);
    g->patterns[g->pattern_count] = text;
    g->pattern_rx[g->pattern_count++] = schema_pattern_rx(g->w, node, "patternProperties", text);
}

static void gather_patterns(struct gather *g)
{
    for (uint32_t i = 0; i < g->part_count; i++) {
        const char *pattern;
        json_t *value;
        json_object_foreach((json_t *)keyword(g, i, "patternProperties"), pattern, value)
            if (!g->w->error)
                add_pattern(g, g->parts[i]->node, pattern);
    }
}

/* Adds the schemas of this part's patterns in `matched`. False: none matches. */
static bool add_matched(const struct gather *g, uint32_t part, uint32_t matched, struct schema_set_of *of)
{
    const json_t *map = keyword(g, part, "patternProperties");
    uint32_t node = g->parts[part]->node;
    bool any = false;
    for (uint32_t p = 0; p < g->pattern_count; p++) {
        const json_t *schema = matched >> p & 1 ? json_object_get(map, g->patterns[p].ptr) : NULL;
        if (!schema)
            continue;
        any = true;
        schema_set_add(g->w, of,
                       LIT(schema_node_of(g->w, schema, node, "patternProperties", g->patterns[p].ptr)));
    }
    return any;
}

static void add_additional(const struct gather *g, uint32_t part, struct schema_set_of *of)
{
    const json_t *schema = keyword(g, part, "additionalProperties");
    if (schema)
        schema_set_add(g->w, of,
                       LIT(schema_node_of(g->w, schema, g->parts[part]->node, "additionalProperties", NULL)));
}

/* ---- values ---- */

static struct schema_set set_of_named(const struct gather *g, const struct schema_named *n, uint32_t matched)
{
    ASSERT(matched < 1u << g->pattern_count);
    struct schema_set_of of = {0};
    for (uint32_t i = 0; i < g->part_count; i++) {
        const json_t *schema = json_object_get(keyword(g, i, "properties"), n->name.ptr);
        if (schema)
            schema_set_add(g->w, &of,
                           LIT(schema_node_of(g->w, schema, g->parts[i]->node, "properties", n->name.ptr)));
        if (!add_matched(g, i, matched, &of) && !schema)
            add_additional(g, i, &of);
    }
    for (const struct schema_member *m = g->way->members; m; m = m->next)
        if (slice_eq(m->name, n->name))
            schema_set_add(g->w, &of, m->lit);
    for (const struct schema_name *a = g->way->absent; a; a = a->next)
        if (slice_eq(a->text, n->name))
            of.none = true;
    return schema_set_done(g->w, &of);
}

static void fill_named(const struct gather *g)
{
    for (uint32_t i = 0; i < g->m->count && !schema_failed(g->w); i++) {
        struct schema_named *n = &g->m->named[i];
        uint32_t matched = 0;
        for (uint32_t p = 0; p < g->pattern_count; p++)
            if (json_text_matches(&g->w->text, g->pattern_rx[p], n->name))
                matched |= 1u << p;
        n->value = set_of_named(g, n, matched);
        if (g->names != g->w->text.text && !json_text_matches(&g->w->text, g->names, n->name))
            n->value.none = true;
    }
}

/* ---- other keys ---- */

static int compare_slices(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    int r = memcmp(x->ptr, y->ptr, MIN_OF(x->len, y->len));
    return r ? r : (x->len > y->len) - (x->len < y->len);
}

/* Keys that are not named. */
static rx_id other_keys(const struct gather *g)
{
    struct slice *names = schema_take(g->w, (g->m->count + 1) * sizeof(*names));
    if (!names || g->m->count == 0)
        return g->names;
    for (uint32_t i = 0; i < g->m->count; i++)
        names[i] = g->m->named[i].name;
    qsort(names, g->m->count, sizeof(*names), compare_slices);
    rx_id known = json_text_one_of(&g->w->text, names, g->m->count);
    return rx_and(g->w->s, g->names, rx_not(g->w->s, known));
}

static bool same_set(const struct schema_set *a, const struct schema_set *b)
{
    return a->none == b->none && a->count == b->count &&
           (a->count == 0 || memcmp(a->lits, b->lits, a->count * sizeof(*a->lits)) == 0);
}

static void add_others(const struct gather *g, rx_id key, struct schema_set value)
{
    for (uint32_t i = 0; i < g->m->other_count; i++)
        if (same_set(&g->m->others[i].value, &value)) {
            g->m->others[i].key = rx_or(g->w->s, g->m->others[i].key, key);
            return;
        }
    g->m->others[g->m->other_count++] = (struct schema_others){key, value};
}

static struct schema_set set_of_others(const struct gather *g, uint32_t matched)
{
    ASSERT(matched < 1u << g->pattern_count);
    struct schema_set_of of = {0};
    for (uint32_t i = 0; i < g->part_count; i++)
        if (!add_matched(g, i, matched, &of))
            add_additional(g, i, &of);
    return schema_set_done(g->w, &of);
}

/* Plain texts have no other members than those that the schema lists, if it lists some and is silent on
 * others: models invent endless ones. */
static bool is_closed(const struct gather *g)
{
    bool lists = false;
    for (uint32_t i = 0; i < g->part_count; i++) {
        if (keyword(g, i, "additionalProperties"))
            return false;
        lists |= json_object_size(keyword(g, i, "properties")) > 0;
    }
    return g->w->text.plain && lists && g->way->members_min <= g->m->count;
}

static void fill_others(const struct gather *g)
{
    ASSERT(g->pattern_count <= SCHEMA_PATTERNS_MAX);
    rx_id keys = RX_NONE;
    for (uint32_t matched = 0; matched < 1u << g->pattern_count && !schema_failed(g->w); matched++) {
        struct schema_set value = set_of_others(g, matched);
        if (value.none || (matched == 0 && is_closed(g)))
            continue;
        if (keys == RX_NONE)
            keys = other_keys(g);
        rx_id key = keys;
        for (uint32_t p = 0; p < g->pattern_count; p++)
            key =
                rx_and(g->w->s, key, matched >> p & 1 ? g->pattern_rx[p] : rx_not(g->w->s, g->pattern_rx[p]));
        if (!schema_rx_none(g->w, key))
            add_others(g, key, value);
    }
}

/* ---- all of them ---- */

static bool take_parts(struct gather *g)
{
    uint32_t i = 0;
    for (const struct schema_part *p = g->way->objects; p; p = p->next)
        g->part_count++;
    g->parts = schema_take(g->w, (g->part_count + 1) * sizeof(*g->parts));
    if (!g->parts)
        return false;
    for (const struct schema_part *p = g->way->objects; p; p = p->next)
        g->parts[g->part_count - ++i] = p;
    ASSERT(i == g->part_count);
    return true;
}

struct schema_members *schema_members_make(struct schema_work *w, const struct schema_alternative *way,
                                           rx_id names)
{
    struct gather g = {.w = w, .way = way, .place_count = 16, .names = names};
    g.m = schema_take(w, sizeof(*g.m));
    if (!g.m || !take_parts(&g))
        return NULL;
    size_t count = count_names(&g);
    while (g.place_count < 2 * count)
        g.place_count *= 2;
    ASSERT((g.place_count & (g.place_count - 1)) == 0 && g.place_count >= 2 * count);
    g.places = schema_take(w, g.place_count * sizeof(*g.places));
    g.m->named = schema_take(w, (count + 1) * sizeof(*g.m->named));
    if (!g.places || !g.m->named)
        return NULL;
    gather_names(&g);
    ASSERT(g.m->count <= count);
    gather_patterns(&g);
    fill_named(&g);
    fill_others(&g);
    return w->error ? NULL : g.m;
}
