/* schema_set.c - sets of literals in one form: sorted, without doubles, and through references; and the rule
 * of each. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

#include <stdlib.h>

#define ALIASES_MAX 64

/* The node that a node with nothing but a $ref stands for. A circle stays; expanding it fails. */
static lit_id through_refs(struct schema_work *w, lit_id lit)
{
    for (uint32_t i = 0; i < ALIASES_MAX && !w->error; i++) {
        const json_t *json = w->nodes[lit / 2].json, *ref = json_object_get(json, "$ref");
        if (!json_is_string(ref))
            return lit;
        const char *key;
        json_t *value;
        if (!schema_ref_alone(w, json))
            json_object_foreach((json_t *)json, key, value)
                if (strcmp(key, "$ref") != 0 && schema_word(w->draft, key) == SCHEMA_ASSERTS)
                    return lit;
        lit = LIT(schema_doc_resolve(w, lit / 2, json_string_value(ref))) | (lit & 1);
    }
    return lit;
}

void schema_set_add(struct schema_work *w, struct schema_set_of *s, lit_id lit)
{
    lit = through_refs(w, lit);
    if (w->error || lit == LIT(SCHEMA_NODE_TRUE) || lit == LIT_NOT(LIT(SCHEMA_NODE_FALSE)))
        return;
    ASSERT(lit / 2 < w->node_count);
    if (w->nodes[lit / 2].any && !(lit & 1))
        return;
    if (lit == LIT(SCHEMA_NODE_FALSE) || w->nodes[lit / 2].any)
        s->none = true;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->lits[i] == lit)
            return;
        if (s->lits[i] == LIT_NOT(lit))
            s->none = true;
    }
    if (s->count == s->capacity) {
        lit_id *more = schema_take(w, (size_t)(s->capacity * 2 + 4) * sizeof(*more));
        if (!more)
            return;
        if (s->count)
            memcpy(more, s->lits, s->count * sizeof(*more));
        s->lits = more;
        s->capacity = s->capacity * 2 + 4;
    }
    s->lits[s->count++] = lit;
}

static int compare(const void *a, const void *b)
{
    lit_id x = *(const lit_id *)a, y = *(const lit_id *)b;
    return (x > y) - (x < y);
}

struct schema_set schema_set_done(struct schema_work *w, struct schema_set_of *s)
{
    (void)w;
    if (s->count)
        qsort(s->lits, s->count, sizeof(*s->lits), compare);
    return (struct schema_set){.count = s->none ? 0 : s->count, .none = s->none, .lits = s->lits};
}

/* ---- rules of sets ---- */

static uint32_t bucket_of(const struct schema_set *set)
{
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < set->count; i++)
        h = (h ^ set->lits[i]) * 16777619u;
    return (h ^ h >> 15) % SCHEMA_BUCKETS;
}

static bool same(const struct schema_set *a, const struct schema_set *b)
{
    return a->none == b->none && a->count == b->count &&
           (a->count == 0 || memcmp(a->lits, b->lits, a->count * sizeof(*a->lits)) == 0);
}

static struct schema_set *keep_set(struct schema_work *w, const struct schema_set *set)
{
    ASSERT(set->count == 0 || set->lits);
    struct schema_set *kept = schema_keep(w, sizeof(*kept));
    lit_id *lits = schema_keep(w, (set->count + 1) * sizeof(*lits));
    if (!kept || !lits)
        return NULL;
    if (set->count)
        memcpy(lits, set->lits, set->count * sizeof(*lits));
    *kept =
        (struct schema_set){.count = set->count, .none = set->none, .lits = lits, .rule = grammar_rule(w->b)};
    return kept;
}

sym_id schema_rule_of(struct schema_work *w, const struct schema_set *set)
{
    ASSERT(w->queued <= SCHEMA_RULES_MAX);
    struct schema_set **bucket = &w->sets[bucket_of(set)];
    for (const struct schema_set *s = *bucket; s; s = s->next)
        if (same(s, set))
            return s->rule;
    if (w->queued == SCHEMA_RULES_MAX) {
        schema_fail(w, -E2BIG, 0, "the schema has more than %d different values", SCHEMA_RULES_MAX);
        return 0;
    }
    struct schema_set *kept = keep_set(w, set);
    if (!kept)
        return 0;
    kept->next = *bucket;
    *bucket = kept;
    w->queue[w->queued++] = kept;
    return kept->rule;
}
