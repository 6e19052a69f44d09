/* schema_negate.c - the exact opposite of each keyword that has one here. A keyword that speaks of one type
 * holds for values of others, so its opposite has that type only. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

struct on {
    struct schema_work *w;
    struct schema_state *st;
    struct schema_alternative *way;
    uint32_t node;
    const char *key;
    const json_t *value;
};

static void wrong(const struct on *o, const char *must)
{
    schema_fail(o->w, -EINVAL, o->node, "\"%s\" must be %s", o->key, must);
}

static lit_id lit_in(const struct on *o, const json_t *json, const char *name)
{
    return LIT(schema_node_of(o->w, json, o->node, o->key, name));
}

/* Only values of `types` fail the keyword. */
static void refuse(struct on *o, uint32_t types)
{
    o->way->types &= types;
    schema_refuse(o->w, o->st, types, o->node, o->key,
                  "cannot be negated (by not, oneOf, if or dependencies); options of oneOf that differ in a "
                  "const or enum member need no negation");
}

/* ---- types and values ---- */

static void not_type(struct on *o, const json_t *name)
{
    static const struct {
        const char *name;
        uint32_t types;
    } all[] = {{"null", SCHEMA_NULL},     {"boolean", SCHEMA_TRUE | SCHEMA_FALSE},
               {"number", SCHEMA_NUMBER}, {"string", SCHEMA_STRING},
               {"array", SCHEMA_ARRAY},   {"object", SCHEMA_OBJECT}};
    const char *text = json_string_value(name);
    if (text && strcmp(text, "integer") == 0) {
        o->way->number.broken = true;
        return;
    }
    for (size_t i = 0; text && i < COUNT_OF(all); i++)
        if (strcmp(text, all[i].name) == 0) {
            o->way->types &= ~all[i].types;
            return;
        }
    wrong(o, "a type or a list of types");
}

static void on_type(struct on *o)
{
    size_t index;
    json_t *name;
    if (!json_is_array(o->value))
        not_type(o, o->value);
    else
        json_array_foreach((json_t *)o->value, index, name)
            not_type(o, name);
}

static void except(struct on *o, const json_t *value)
{
    struct schema_alternative *way = o->way;
    uint32_t type = schema_type_of(value);
    if (type & (SCHEMA_NULL | SCHEMA_TRUE | SCHEMA_FALSE)) {
        way->types &= ~type;
        return;
    }
    if (type == SCHEMA_STRING) {
        rx_id text = json_text_content(&o->w->text, schema_text(value));
        way->text = rx_and(o->w->s, way->text, rx_not(o->w->s, text));
        return;
    }
    if (json_is_array(value) && json_array_size(value) == 0)
        way->items_min = MAX_OF(way->items_min, 1u);
    else if (json_is_object(value) && json_object_size(value) == 0)
        way->members_min = MAX_OF(way->members_min, 1u);
    else {
        struct schema_except *e = schema_take(o->w, sizeof(*e));
        if (!e)
            return;
        *e = (struct schema_except){value, way->except};
        way->except = e;
    }
}

static void on_enum(struct on *o)
{
    size_t index;
    json_t *value;
    if (!json_is_array(o->value)) {
        wrong(o, "a list of values");
        return;
    }
    if (json_array_size(o->value) > SCHEMA_ENUM_MAX)
        schema_fail(o->w, -E2BIG, o->node, "\"enum\" has more than %d values", SCHEMA_ENUM_MAX);
    json_array_foreach((json_t *)o->value, index, value)
        if (!schema_failed(o->w))
            except(o, value);
}

static void on_const(struct on *o)
{
    except(o, o->value);
}

/* ---- combinations ---- */

static void add_lit(struct schema_choice *c, lit_id lit)
{
    struct schema_option *option = schema_option_add(c);
    option->count = 1;
    option->atoms[0] = (struct schema_atom){.kind = ATOM_LIT, .lit = lit};
}

static void on_all_of(struct on *o)
{
    size_t index;
    json_t *item;
    struct schema_choice *c =
        schema_choose(o->w, o->st, o->node, o->key, (uint32_t)json_array_size(o->value));
    if (c)
        json_array_foreach((json_t *)o->value, index, item)
            add_lit(c, LIT_NOT(lit_in(o, item, NULL)));
}

static void on_any_of(struct on *o)
{
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)o->value, index, item)
        schema_state_add(o->w, o->st, LIT_NOT(lit_in(o, item, NULL)));
}

static void on_not(struct on *o)
{
    schema_state_add(o->w, o->st, lit_in(o, o->value, NULL));
}

static lit_id beside(const struct on *o, const char *key)
{
    const json_t *json = json_object_get(o->w->nodes[o->node].json, key);
    return json ? LIT(schema_node_of(o->w, json, o->node, key, NULL)) : LIT(SCHEMA_NODE_TRUE);
}

static void on_if(struct on *o)
{
    lit_id condition = lit_in(o, o->value, NULL),
           both[2][2] = {{condition, LIT_NOT(beside(o, "then"))},
                         {LIT_NOT(condition), LIT_NOT(beside(o, "else"))}};
    struct schema_choice *c = schema_choose(o->w, o->st, o->node, o->key, 2);
    for (int i = 0; c && i < 2; i++) {
        add_lit(c, both[i][0]);
        c->options[i].atoms[c->options[i].count++] =
            (struct schema_atom){.kind = ATOM_LIT, .lit = both[i][1]};
    }
}

static void on_ref(struct on *o)
{
    if (!json_is_string(o->value)) {
        wrong(o, "a string");
        return;
    }
    uint32_t target = schema_doc_resolve(o->w, o->node, json_string_value(o->value));
    schema_state_add(o->w, o->st, LIT_NOT(LIT(target)));
}

/* ---- members ---- */

static struct schema_option *add_object(struct schema_choice *c)
{
    struct schema_option *option = schema_option_add(c);
    option->count = 1;
    option->atoms[0] = (struct schema_atom){.kind = ATOM_TYPES, .types = SCHEMA_OBJECT};
    return option;
}

/* A member is there and does not satisfy its schema. */
static void on_properties(struct on *o)
{
    const char *name;
    json_t *schema;
    struct schema_choice *c =
        schema_choose(o->w, o->st, o->node, o->key, (uint32_t)json_object_size(o->value));
    if (!c)
        return;
    json_object_foreach((json_t *)o->value, name, schema) {
        struct schema_option *option = add_object(c);
        struct slice text = slice_of(name);
        option->count = 3;
        option->atoms[1] = (struct schema_atom){.kind = ATOM_PRESENT, .name = text};
        option->atoms[2] =
            (struct schema_atom){.kind = ATOM_MEMBER, .name = text, .lit = LIT_NOT(lit_in(o, schema, name))};
    }
}

static void on_required(struct on *o)
{
    size_t index;
    json_t *name;
    struct schema_choice *c =
        schema_choose(o->w, o->st, o->node, o->key, (uint32_t)json_array_size(o->value));
    if (!c)
        return;
    json_array_foreach((json_t *)o->value, index, name) {
        if (!json_is_string(name)) {
            wrong(o, "a list of names");
            return;
        }
        struct schema_option *option = add_object(c);
        option->count = 2;
        option->atoms[1] = (struct schema_atom){.kind = ATOM_ABSENT, .name = schema_text(name)};
    }
}

/* Schemas that every value satisfies: their negation has no value. */
static void on_members(struct on *o)
{
    uint32_t node = 0;
    bool any = json_is_true(o->value) || (json_is_object(o->value) && json_object_size(o->value) == 0);
    if (!any && json_is_object(o->value) && strcmp(o->key, "patternProperties") != 0) {
        node = schema_node_of(o->w, o->value, o->node, o->key, NULL);
        any = o->w->nodes[node].any;
    }
    if (any)
        o->way->types = 0;
    else
        refuse(o, strstr(o->key, "tems") ? SCHEMA_ARRAY : SCHEMA_OBJECT);
}

static void on_unique(struct on *o)
{
    if (json_is_true(o->value))
        refuse(o, SCHEMA_ARRAY);
    else
        o->way->types = 0;
}

static const struct {
    const char *key;
    void (*on)(struct on *o);
} table[] = {
    {"type", on_type},
    {"enum", on_enum},
    {"const", on_const},
    {"allOf", on_all_of},
    {"anyOf", on_any_of},
    {"not", on_not},
    {"if", on_if},
    {"$ref", on_ref},
    {"properties", on_properties},
    {"patternProperties", on_members},
    {"additionalProperties", on_members},
    {"propertyNames", on_members},
    {"required", on_required},
    {"items", on_members},
    {"additionalItems", on_members},
    {"uniqueItems", on_unique},
    {"unevaluatedProperties", on_members},
    {"unevaluatedItems", on_members},
};

void schema_negate(struct schema_work *w, struct schema_state *st, uint32_t node, const char *key,
                   const json_t *value)
{
    struct on o = {w, st, schema_state_alternative(st), node, key, value};
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (strcmp(key, table[i].key) == 0) {
            table[i].on(&o);
            return;
        }
    if (!schema_bound(w, st, node, key, value, true))
        refuse(&o, SCHEMA_ANY);
}
