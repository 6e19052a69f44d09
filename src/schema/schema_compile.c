/* schema_compile.c - sets to rules. A set gets its rule when it is first needed and is defined later, one
 * after another, so that neither recursion of schemas nor their depth is recursion here. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/buf.h"
#include "base/check.h"

/* ---- definitions ---- */

/* The list of anyOf, if the set has that keyword only. */
static const json_t *only_any_of(const struct schema_work *w, const struct schema_set *set)
{
    const char *key;
    json_t *value;
    if (set->count != 1 || (set->lits[0] & 1))
        return NULL;
    const json_t *json = w->nodes[set->lits[0] / 2].json, *list = json_object_get(json, "anyOf");
    json_object_foreach((json_t *)json, key, value)
        if (value != list && schema_word(w->draft, key) == SCHEMA_ASSERTS)
            return NULL;
    return json_is_array(list) ? list : NULL;
}

/* Alternatives that are sets of their own: equal ones share a rule. */
static void define_any_of(struct schema_work *w, const struct schema_set *set, const json_t *list)
{
    ASSERT(set->count == 1 && !(set->lits[0] & 1));
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)list, index, item) {
        struct schema_set_of of = {0};
        schema_set_add(w, &of, LIT(schema_node_of(w, item, set->lits[0] / 2, "anyOf", NULL)));
        struct schema_set one = schema_set_done(w, &of);
        if (schema_failed(w))
            return;
        sym_id rule = schema_rule_of(w, &one);
        if (!one.none && rule != set->rule)
            grammar_alternative(w->b, set->rule, &rule, 1);
    }
}

static void define(struct schema_work *w, const struct schema_set *set)
{
    const json_t *list = only_any_of(w, set);
    arena_reset(w->scratch);
    if (list) {
        define_any_of(w, set, list);
        return;
    }
    struct schema_alternatives ways = schema_expand(w, set, SCHEMA_ANY);
    for (uint32_t i = 0; i < ways.count && !schema_failed(w); i++)
        schema_emit_alternative(w, &ways.all[i], set->rule);
}

/* ---- keywords that assert nothing ---- */

static bool is_listed(const struct buf *b, const char *name)
{
    size_t at = slice_find(buf_slice(b), slice_of(name), 0), len = strlen(name);
    for (; at != SIZE_MAX; at = slice_find(buf_slice(b), slice_of(name), at + 1))
        if ((at == 0 || b->ptr[at - 1] == ' ') && (at + len == b->len || b->ptr[at + len] == ','))
            return true;
    return false;
}

#define IGNORED_BYTES_MAX 1000

static void list_ignored(struct schema_work *w)
{
    struct buf *b = w->opts->ignored;
    for (uint32_t i = 2; b && i < w->node_count; i++) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)w->nodes[i].json, key, value) {
            if (schema_word(w->draft, key) != SCHEMA_UNKNOWN || b->len > IGNORED_BYTES_MAX ||
                strlen(key) > 60 || is_listed(b, key))
                continue;
            buf_printf(b, "%s%s", b->len ? ", " : "", key);
        }
    }
}

/* ---- entry points ---- */

static struct schema_set root_set(struct schema_work *w, const json_t *schema)
{
    struct schema_set_of of = {0};
    uint32_t root = json_is_true(schema) ? SCHEMA_NODE_TRUE : json_is_false(schema) ? SCHEMA_NODE_FALSE : 2;
    schema_set_add(w, &of, LIT(root));
    return schema_set_done(w, &of);
}

static int compile(struct schema_work *w, const json_t *schema, sym_id *ret)
{
    w->queue = schema_keep(w, SCHEMA_RULES_MAX * sizeof(*w->queue));
    if (!w->queue)
        return w->error;
    struct schema_set root = root_set(w, schema);
    sym_id start = schema_rule_of(w, &root);
    while (w->defined < w->queued && !schema_failed(w))
        define(w, w->queue[w->defined++]);
    ASSERT(w->defined <= w->queued);
    schema_failed(w);
    if (w->error)
        return w->error;
    list_ignored(w);
    *ret = start;
    return 0;
}

int schema_compile(struct grammar_builder *b, const json_t *schema, const struct schema_opts *opts,
                   sym_id *ret, struct err *e)
{
    struct schema_work w;
    int r = schema_work_open(&w, b, opts, e);
    if (r == 0)
        r = schema_doc_open(&w, schema);
    if (r == 0)
        r = compile(&w, schema, ret);
    schema_work_close(&w);
    return r;
}
