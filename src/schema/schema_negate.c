/* schema_negate.c - the exact opposite of each keyword that has one here. A keyword that speaks of one type
 * holds for values of others, so its opposite has that type only. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

/* Only values of `types` fail the keyword. */
static void refuse(const struct schema_keyword *o, uint32_t types)
{
    o->way->types &= types;
    schema_refuse(o->w, o->st, types, o->node, o->key,
                  "cannot be negated (by not, oneOf, if or dependencies); options of oneOf that differ in a "
                  "const or enum member need no negation");
}

/* ---- types and values ---- */

static void not_type(const struct schema_keyword *o, const json_t *name)
{
    bool whole;
    uint32_t types = schema_types_named(name, &whole);
    if (whole)
        o->way->number.broken = true;
    else
        o->way->types &= ~types;
}

static void on_type(const struct schema_keyword *o)
{
    size_t index;
    json_t *name;
    if (!json_is_array(o->value))
        not_type(o, o->value);
    else
        json_array_foreach((json_t *)o->value, index, name)
            not_type(o, name);
}

static void except(const struct schema_keyword *o, const json_t *value)
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

static void on_enum(const struct schema_keyword *o)
{
    size_t index;
    json_t *value;
    if (json_array_size(o->value) > SCHEMA_ENUM_MAX)
        schema_fail(o->w, -E2BIG, o->node, "\"enum\" has more than %d values", SCHEMA_ENUM_MAX);
    json_array_foreach((json_t *)o->value, index, value)
        if (!schema_failed(o->w))
            except(o, value);
}

static void on_const(const struct schema_keyword *o)
{
    except(o, o->value);
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
static void on_properties(const struct schema_keyword *o)
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
        option->atoms[2] = (struct schema_atom){
            .kind = ATOM_MEMBER, .name = text, .lit = LIT_NOT(schema_lit(o, schema, name))};
    }
}

static void on_required(const struct schema_keyword *o)
{
    size_t index;
    json_t *name;
    struct schema_choice *c =
        schema_choose(o->w, o->st, o->node, o->key, (uint32_t)json_array_size(o->value));
    if (!c)
        return;
    json_array_foreach((json_t *)o->value, index, name) {
        struct schema_option *option = add_object(c);
        option->count = 2;
        option->atoms[1] = (struct schema_atom){.kind = ATOM_ABSENT, .name = schema_text(name)};
    }
}

/* Schemas that every value satisfies: their negation has no value. */
static void on_members(const struct schema_keyword *o)
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

static void on_unique(const struct schema_keyword *o)
{
    if (json_is_true(o->value))
        refuse(o, SCHEMA_ARRAY);
    else
        o->way->types = 0;
}

static const struct schema_keyword_row table[] = {
    {"type", on_type},
    {"enum", on_enum},
    {"const", on_const},
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

void schema_negate(const struct schema_keyword *o)
{
    ASSERT(o->negated);
    if (!schema_keyword_read(o, table, COUNT_OF(table)) && !schema_combine(o) && !schema_bound(o))
        refuse(o, SCHEMA_ANY);
}
