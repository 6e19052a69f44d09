/* schema_order.c - the members of an instance in the order of the schema. A way that accepts an object says
 * the order of its names; other names follow as they stood. */
#include "schema/schema.h"
#include "schema/schema_work.h"

#include "base/check.h"
#include "base/err.h"

static json_t *order(struct schema_work *w, const struct schema_set *set, json_t *value, uint32_t depth);

static json_t *order_array(struct schema_work *w, const struct schema_alternative *way, json_t *value,
                           uint32_t depth)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(value); i++) {
        struct schema_set item = schema_item(w, way, (uint32_t)i);
        json_array_append_new(list, order(w, &item, json_array_get(value, i), depth));
    }
    return list;
}

static void order_named(struct schema_work *w, const struct schema_members *m, json_t *value, json_t *ret,
                        uint32_t depth)
{
    for (uint32_t i = 0; i < m->count; i++) {
        json_t *member = json_object_get(value, m->named[i].name.ptr);
        if (member)
            json_object_set_new(ret, m->named[i].name.ptr, order(w, &m->named[i].value, member, depth));
    }
}

static json_t *order_object(struct schema_work *w, const struct schema_alternative *way, json_t *value,
                            uint32_t depth)
{
    const char *key;
    json_t *member, *object = json_object();
    const struct schema_members *m = schema_members_of(w, way);
    if (!m || !object)
        return object;
    order_named(w, m, value, object, depth);
    json_object_foreach(value, key, member) {
        if (json_object_get(object, key))
            continue;
        const struct schema_set *set = NULL;
        for (uint32_t i = 0; i < m->other_count && !set; i++)
            if (json_text_matches(&w->text, m->others[i].key, slice_of(key)))
                set = &m->others[i].value;
        json_object_set_new(object, key, set ? order(w, set, member, depth) : json_incref(member));
    }
    return object;
}

static json_t *order_way(struct schema_work *w, const struct schema_alternative *way, json_t *value,
                         uint32_t depth)
{
    ASSERT(json_is_array(value) || json_is_object(value));
    for (uint32_t i = 0; i < way->values.count; i++)
        if (schema_equal(way->values.all[i], value))
            return json_incref((json_t *)way->values.all[i]);
    return json_is_array(value) ? order_array(w, way, value, depth) : order_object(w, way, value, depth);
}

static json_t *order(struct schema_work *w, const struct schema_set *set, json_t *value, uint32_t depth)
{
    if ((!json_is_array(value) && !json_is_object(value)) || depth == 0 || schema_failed(w) || set->none ||
        set->count == 0)
        return json_incref(value);
    struct schema_alternatives ways = schema_expand(w, set, schema_type_of(value));
    for (uint32_t i = 0; i < ways.count && !schema_failed(w); i++)
        if (schema_alternative_accepts(w, &ways.all[i], value))
            return order_way(w, &ways.all[i], value, depth - 1);
    return json_incref(value);
}

int schema_order(const json_t *schema, const struct schema_opts *opts, json_t *instance, json_t **ret,
                 struct err *e)
{
    struct grammar_builder *b;
    struct schema_work w;
    if (grammar_builder_create(&grammar_limits_default, opts->charge, &b) < 0)
        return err_set(e, -ENOMEM, "no memory to compile the schema");
    int r = schema_work_open(&w, b, opts, e);
    if (r == 0)
        r = schema_doc_open(&w, schema);
    json_t *ordered = NULL;
    if (r == 0) {
        struct schema_set_of of = {0};
        if (json_is_object(schema))
            schema_set_add(&w, &of, LIT(2));
        struct schema_set set = schema_set_done(&w, &of);
        ordered = order(&w, &set, instance, SCHEMA_DEPTH_MAX);
        r = w.error;
    }
    if (r == 0)
        *ret = ordered;
    else
        json_decref(ordered);
    schema_work_close(&w);
    grammar_builder_free(b);
    return r;
}
