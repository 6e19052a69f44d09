/* schema_assert.c - what each keyword demands. Keywords of bounds and lengths: schema_bounds.c. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"

/* ---- type, enum, const ---- */

static void on_type(const struct schema_keyword *o)
{
    uint32_t types = 0;
    bool number = false, whole = false, this_whole = false;
    const json_t *value = o->value;
    for (size_t i = 0; i < (json_is_array(value) ? json_array_size(value) : 1); i++) {
        uint32_t t = schema_types_named(json_is_array(value) ? json_array_get(value, i) : value, &this_whole);
        types |= t;
        number |= t == SCHEMA_NUMBER && !this_whole;
        whole |= this_whole;
    }
    o->way->types &= types;
    if (whole && !number)
        o->way->number.whole = true;
}

/* Keeps the values that are in `list` as well. */
static void keep_common(const struct schema_keyword *o, const json_t *list)
{
    ASSERT(o->way->finite);
    struct schema_values *v = &o->way->values;
    const json_t **all = schema_take(o->w, (v->count + 1) * sizeof(*all));
    uint32_t count = 0;
    if (!all)
        return;
    for (uint32_t i = 0; i < v->count && !schema_failed(o->w); i++)
        for (size_t k = 0; k < json_array_size(list); k++)
            if (schema_equal(v->all[i], json_array_get(list, k))) {
                all[count++] = v->all[i];
                break;
            }
    *v = (struct schema_values){count, all};
}

static void take_values(const struct schema_keyword *o, const json_t *list, uint32_t count)
{
    ASSERT(!o->way->finite);
    const json_t **all = schema_take(o->w, (count + 1) * sizeof(*all));
    if (!all)
        return;
    for (uint32_t i = 0; i < count; i++)
        all[i] = json_is_array(list) && o->key[0] == 'e' ? json_array_get(list, i) : list;
    o->way->values = (struct schema_values){count, all};
    o->way->finite = true;
}

static size_t value_bytes(const json_t *value, uint32_t depth)
{
    size_t index, bytes = 8;
    const char *key;
    json_t *item;
    if (depth > SCHEMA_DEPTH_MAX)
        return SCHEMA_ENUM_BYTES_MAX + 1;
    if (json_is_string(value))
        return bytes + json_string_length(value);
    if (json_is_array(value))
        json_array_foreach((json_t *)value, index, item)
            bytes += value_bytes(item, depth + 1);
    if (json_is_object(value))
        json_object_foreach((json_t *)value, key, item)
            bytes += strlen(key) + value_bytes(item, depth + 1);
    return bytes;
}

static void on_enum(const struct schema_keyword *o)
{
    bool list = strcmp(o->key, "enum") == 0;
    size_t count = list ? json_array_size(o->value) : 1;
    if (count > SCHEMA_ENUM_MAX || value_bytes(o->value, 0) > SCHEMA_ENUM_BYTES_MAX) {
        schema_fail(o->w, -E2BIG, o->node, "\"%s\" has %zu values; at most %d and %zu KiB are supported",
                    o->key, count, SCHEMA_ENUM_MAX, SCHEMA_ENUM_BYTES_MAX >> 10);
        return;
    }
    if (!o->way->finite)
        take_values(o, o->value, (uint32_t)count);
    else if (list)
        keep_common(o, o->value);
    else {
        json_t *one = json_array();
        if (!one || json_array_append(one, (json_t *)o->value) < 0)
            schema_fail(o->w, -ENOMEM, o->node, "no memory to compile the schema");
        else
            keep_common(o, one);
        json_decref(one);
    }
}

/* ---- members ---- */

static void add_part(const struct schema_keyword *o, const struct schema_part **list)
{
    ASSERT(o->node < o->w->node_count);
    for (const struct schema_part *p = *list; p; p = p->next)
        if (p->node == o->node)
            return;
    struct schema_part *p = schema_take(o->w, sizeof(*p));
    if (!p)
        return;
    *p = (struct schema_part){o->node, *list};
    *list = p;
}

static void on_members(const struct schema_keyword *o)
{
    bool additional = strcmp(o->key, "additionalProperties") == 0;
    if (json_object_size(o->value) > SCHEMA_PROPERTIES_MAX && !additional)
        schema_fail(o->w, -E2BIG, o->node, "\"%s\" has %zu members; at most %d are supported", o->key,
                    json_object_size(o->value), SCHEMA_PROPERTIES_MAX);
    else
        add_part(o, &o->way->objects);
}

static void on_items(const struct schema_keyword *o)
{
    add_part(o, &o->way->arrays);
}

static void require(const struct schema_keyword *o, const json_t *name)
{
    struct schema_name *n = schema_take(o->w, sizeof(*n));
    if (!n || o->w->error)
        return;
    *n = (struct schema_name){schema_text(name), o->way->required};
    o->way->required = n;
}

static void on_required(const struct schema_keyword *o)
{
    size_t index;
    json_t *name;
    if (json_array_size(o->value) > SCHEMA_PROPERTIES_MAX)
        schema_fail(o->w, -E2BIG, o->node, "\"required\" has %zu names; at most %d are supported",
                    json_array_size(o->value), SCHEMA_PROPERTIES_MAX);
    else
        json_array_foreach((json_t *)o->value, index, name)
            require(o, name);
}

static void on_names(const struct schema_keyword *o)
{
    struct schema_lits *l = schema_take(o->w, sizeof(*l));
    if (!l)
        return;
    *l = (struct schema_lits){schema_lit(o, o->value, NULL), o->way->names};
    o->way->names = l;
}

/* Either the member is missing, or `then` holds as well. */
static void depend(const struct schema_keyword *o, const char *name, const json_t *then)
{
    struct schema_choice *c = schema_choose(o->w, o->st, o->node, o->key, 2);
    struct slice text = slice_of(name);
    if (!c)
        return;
    struct schema_option *absent = schema_option_add(c), *present = schema_option_add(c);
    absent->count = 1;
    absent->atoms[0] = (struct schema_atom){.kind = ATOM_ABSENT, .name = text};
    present->count = 2;
    present->atoms[0] = (struct schema_atom){.kind = ATOM_TYPES, .types = SCHEMA_OBJECT};
    present->atoms[1] = (struct schema_atom){.kind = ATOM_PRESENT, .name = text};
    if (json_is_string(then) || json_is_array(then)) {
        uint32_t count = json_is_array(then) ? (uint32_t)json_array_size(then) : 1;
        struct schema_atom *more = schema_take(o->w, (count + 1u) * sizeof(*more));
        for (uint32_t i = 0; more && i < count; i++) {
            const json_t *other = json_is_array(then) ? json_array_get(then, i) : then;
            more[i] = (struct schema_atom){.kind = ATOM_PRESENT, .name = schema_text(other)};
        }
        present->more = more;
        present->more_count = more ? count : 0;
        return;
    }
    present->atoms[present->count++] =
        (struct schema_atom){.kind = ATOM_LIT, .lit = schema_lit(o, then, name)};
}

static void on_dependencies(const struct schema_keyword *o)
{
    const char *name;
    json_t *then;
    json_object_foreach((json_t *)o->value, name, then)
        if (!o->w->error)
            depend(o, name, then);
}

static void on_unique(const struct schema_keyword *o)
{
    o->way->unique |= json_is_true(o->value);
}

/* ---- the rest ---- */

static void on_unsupported(const struct schema_keyword *o)
{
    uint32_t types = strcmp(o->key, "unevaluatedProperties") == 0 ? SCHEMA_OBJECT
                     : o->key[0] == 'c' || o->key[0] == 'u'       ? SCHEMA_ARRAY
                                                                  : SCHEMA_ANY;
    schema_refuse(o->w, o->st, types, o->node, o->key, "is not supported");
}

static void on_unevaluated(const struct schema_keyword *o)
{
    if (!json_is_true(o->value) && !(json_is_object(o->value) && json_object_size(o->value) == 0))
        on_unsupported(o);
}

static const struct schema_keyword_row table[] = {
    {"type", on_type},
    {"enum", on_enum},
    {"const", on_enum},
    {"properties", on_members},
    {"patternProperties", on_members},
    {"additionalProperties", on_members},
    {"propertyNames", on_names},
    {"required", on_required},
    {"dependentRequired", on_dependencies},
    {"dependentSchemas", on_dependencies},
    {"dependencies", on_dependencies},
    {"items", on_items},
    {"prefixItems", on_items},
    {"additionalItems", on_items},
    {"uniqueItems", on_unique},
    {"unevaluatedProperties", on_unevaluated},
    {"unevaluatedItems", on_unevaluated},
};

void schema_assert(const struct schema_keyword *o)
{
    ASSERT(!o->negated);
    if (!schema_keyword_read(o, table, COUNT_OF(table)) && !schema_combine(o) && !schema_bound(o))
        on_unsupported(o);
}
