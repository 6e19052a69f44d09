/* schema_combine.c - keywords that combine schemas, asserted and negated. All of allOf hold; one of a negated
 * allOf does not, so that it is an anyOf of negated schemas, and a negated anyOf is an allOf of them. */
#include "schema/schema_work.h"

#include "base/check.h"

bool schema_keyword_read(const struct schema_keyword *o, const struct schema_keyword_row *table, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(o->key, table[i].key) == 0) {
            table[i].read(o);
            return true;
        }
    return false;
}

lit_id schema_lit(const struct schema_keyword *o, const json_t *json, const char *name)
{
    return LIT(schema_node_of(o->w, json, o->node, o->key, name));
}

static void add_lit(struct schema_choice *c, lit_id lit)
{
    struct schema_option *option = schema_option_add(c);
    option->count = 1;
    option->atoms[0] = (struct schema_atom){.kind = ATOM_LIT, .lit = lit};
}

static void every(const struct schema_keyword *o)
{
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)o->value, index, item)
        schema_state_add(o->w, o->st, schema_lit(o, item, NULL) ^ o->negated);
}

static void some(const struct schema_keyword *o)
{
    size_t index;
    json_t *item;
    struct schema_choice *c =
        schema_choose(o->w, o->st, o->node, o->key, (uint32_t)json_array_size(o->value));
    if (c)
        json_array_foreach((json_t *)o->value, index, item)
            add_lit(c, schema_lit(o, item, NULL) ^ o->negated);
}

static void on_all_of(const struct schema_keyword *o)
{
    o->negated ? some(o) : every(o);
}

static void on_any_of(const struct schema_keyword *o)
{
    o->negated ? every(o) : some(o);
}

static void on_not(const struct schema_keyword *o)
{
    schema_state_add(o->w, o->st, schema_lit(o, o->value, NULL) ^ !o->negated);
}

/* The member of the node beside this keyword, as a literal; no member: true. */
static lit_id beside(const struct schema_keyword *o, const char *key)
{
    const json_t *json = json_object_get(o->w->nodes[o->node].json, key);
    return json ? LIT(schema_node_of(o->w, json, o->node, key, NULL)) : LIT(SCHEMA_NODE_TRUE);
}

static void on_if(const struct schema_keyword *o)
{
    lit_id branches[2] = {beside(o, "then"), beside(o, "else")};
    if (!o->negated && branches[0] == LIT(SCHEMA_NODE_TRUE) && branches[1] == LIT(SCHEMA_NODE_TRUE))
        return;
    lit_id condition = schema_lit(o, o->value, NULL);
    struct schema_choice *c = schema_choose(o->w, o->st, o->node, o->key, 2);
    for (uint32_t i = 0; c && i < 2; i++) {
        add_lit(c, condition ^ i);
        c->options[i].atoms[c->options[i].count++] =
            (struct schema_atom){.kind = ATOM_LIT, .lit = branches[i] ^ o->negated};
    }
    ASSERT(!c || c->count == c->capacity);
}

static void on_ref(const struct schema_keyword *o)
{
    uint32_t target = schema_doc_resolve(o->w, o->node, json_string_value(o->value));
    schema_state_add(o->w, o->st, LIT(target) ^ o->negated);
}

static const struct schema_keyword_row table[] = {
    {"allOf", on_all_of}, {"anyOf", on_any_of}, {"not", on_not},
    {"if", on_if},        {"$ref", on_ref},     {"oneOf", on_any_of}, /* not negated: the last row */
};

bool schema_combine(const struct schema_keyword *o)
{
    return schema_keyword_read(o, table, COUNT_OF(table) - o->negated);
}
