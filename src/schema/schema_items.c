/* schema_items.c - what the items of a way's arrays must satisfy. items as a list is prefixItems of drafts
 * before 2020, and additionalItems its rest. */
#include "schema/schema_work.h"

#include "base/check.h"

struct items {
    const json_t *prefix, *rest;
    const char *prefix_key, *rest_key;
};

static struct items items_of(const struct schema_work *w, uint32_t node)
{
    ASSERT(node < w->node_count);
    const json_t *json = w->nodes[node].json, *items = json_object_get(json, "items");
    const json_t *prefix = w->draft && w->draft < 2020 ? NULL : json_object_get(json, "prefixItems");
    if (json_is_array(items))
        return (struct items){items, json_object_get(json, "additionalItems"), "items", "additionalItems"};
    return (struct items){prefix, items, "prefixItems", "items"};
}

static void add_item(struct schema_work *w, struct schema_set_of *of, uint32_t node, uint32_t index)
{
    struct items i = items_of(w, node);
    const json_t *schema = index < json_array_size(i.prefix) ? json_array_get(i.prefix, index) : i.rest;
    if (schema)
        schema_set_add(
            w, of,
            LIT(schema_node_of(w, schema, node, index < json_array_size(i.prefix) ? i.prefix_key : i.rest_key,
                               NULL)));
}

struct schema_set schema_item(struct schema_work *w, const struct schema_alternative *way, uint32_t index)
{
    struct schema_set_of of = {0};
    for (const struct schema_part *p = way->arrays; p; p = p->next)
        add_item(w, &of, p->node, index);
    return schema_set_done(w, &of);
}

uint32_t schema_items_fixed(struct schema_work *w, const struct schema_alternative *way)
{
    size_t count = 0;
    for (const struct schema_part *p = way->arrays; p; p = p->next) {
        size_t own = json_array_size(items_of(w, p->node).prefix);
        count = MAX_OF(count, own);
    }
    return (uint32_t)MIN_OF(count, (size_t)UINT32_MAX);
}
