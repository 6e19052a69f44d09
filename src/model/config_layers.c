/* config_layers.c - what each layer is: its blocks, and its numbers where layers differ. */
#include "model/blocks.h"
#include "model/config.h"
#include "model/family.h"
#include "model/json_read.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>

static const struct layer_kind full_attention[LAYER_KINDS_MAX] = {
    {.names = {"full_attention", "attention"}, .mixer = &block_attention}};

static const struct layer_kind *kinds_of(const struct family *f)
{
    return f->kinds[0].mixer ? f->kinds : full_attention;
}

/* ---- kinds ---- */

static const struct layer_kind *kind_named(const struct layer_kind *kinds, const char *name)
{
    for (uint32_t k = 0; k < LAYER_KINDS_MAX && kinds[k].mixer; k++) {
        for (size_t i = 0; i < COUNT_OF(kinds[k].names) && kinds[k].names[i]; i++) {
            if (strcmp(kinds[k].names[i], name) == 0)
                return &kinds[k];
        }
    }
    return NULL;
}

static const char *list_kinds(const struct layer_kind *kinds, char *ret, size_t bytes_max)
{
    size_t at = 0;
    for (uint32_t k = 0; k < LAYER_KINDS_MAX && kinds[k].mixer && at < bytes_max; k++)
        at += (size_t)snprintf(ret + at, bytes_max - at, "%s%s", at ? ", " : "", kinds[k].names[0]);
    return ret;
}

static const struct layer_kind *listed_kind(struct json_read *r, const json_t *types, uint32_t index,
                                            const struct config *c)
{
    char known[160];
    const struct layer_kind *kinds = kinds_of(c->family);
    const char *name = json_string_value(json_array_get(types, index));
    const struct layer_kind *found = name ? kind_named(kinds, name) : NULL;
    if (!found)
        json_read_fail(r, -ENOTSUP, "layer_types[%u] is '%.40s'; %s has %s", index,
                       name ? name : "not a string", c->family_name, list_kinds(kinds, known, sizeof(known)));
    return found ? found : kinds;
}

static uint32_t read_interval(struct json_read *r, const struct layer_pattern *p)
{
    uint32_t every = p->every;
    for (size_t i = 0; i < COUNT_OF(p->keys) && p->keys[i]; i++)
        every = json_read_u32_or(r, p->keys[i], 1, CONFIG_LAYERS_MAX, every);
    return every;
}

/* ---- numbers ---- */

static uint32_t rope_of(const struct layer_kind *kind)
{
    static const uint32_t tables[] = {
        [KIND_ROPE_MAIN] = 0, [KIND_ROPE_LOCAL] = 1, [KIND_ROPE_NONE] = ROPE_ABSENT};
    return tables[kind->rope];
}

static struct layer_config layer_of(const struct config *c, const struct layer_kind *kind, bool windowed,
                                    bool sparse)
{
    return (struct layer_config){
        .mixer = kind->mixer,
        .mlp = sparse ? &block_experts : &block_mlp,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .rope = rope_of(kind),
        .window = windowed ? c->window : 0,
        .intermediate = c->intermediate,
    };
}

/* Layers that are dense in spite of the numbers. */
struct dense_list {
    uint32_t layers[CONFIG_LAYERS_MAX], count;
};

static bool is_sparse(const struct config *c, const struct dense_list *dense, uint32_t index)
{
    for (uint32_t i = 0; i < dense->count; i++) {
        if (dense->layers[i] == index)
            return false;
    }
    return c->experts > 0 && index >= c->dense_layers && (index + 1) % c->sparse_step == 0;
}

static void number_layers(struct config *c)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        enum block_state state = c->layer[i].mixer->state;
        if (state == BLOCK_KV)
            c->layer[i].index = c->kv_count++;
        else if (state == BLOCK_RECURRENT)
            c->layer[i].index = c->recurrent_count++;
    }
    c->mtp_layer.index = c->kv_count;
}

/* ---- blocks ---- */

static bool is_used(const struct config *c, const struct block *b)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        if (c->layer[i].mixer == b || c->layer[i].mlp == b)
            return true;
    }
    return c->family->mtp && (c->mtp_layer.mixer == b || c->mtp_layer.mlp == b);
}

static void read_blocks(struct json_read *r, struct config *c)
{
    for (size_t i = 0; blocks[i]; i++) {
        if (!is_used(c, blocks[i]))
            continue;
        config_keys_read(r, blocks[i]->keys, c->family->keys, c);
        if (c->shared_intermediate == 0)
            c->shared_intermediate = c->shared_experts * c->expert_intermediate;
        if (!r->error && blocks[i]->check)
            blocks[i]->check(r, c);
    }
}

static void fill_layers(struct json_read *r, const json_t *types, struct config *c)
{
    struct dense_list dense = {.count = 0};
    const struct layer_kind *kinds = kinds_of(c->family);
    uint32_t every = read_interval(r, &c->family->pattern);
    if (c->family->experts && c->family->experts->mlp_only)
        json_read_ids(r, "mlp_only_layers", CONFIG_LAYERS_MAX, dense.layers, CONFIG_LAYERS_MAX, &dense.count);
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct layer_kind *kind = every == 0 || (i + 1) % every == 0 ? &kinds[0] : &kinds[1];
        bool windowed = kind->windowed && c->use_window && i >= c->window_from;
        if (types) {
            kind = listed_kind(r, types, i, c);
            windowed = kind->windowed && c->use_window;
            if (windowed && c->window == 0)
                json_read_fail(r, -EINVAL, "sliding_window is missing: layer %u has one", i);
        }
        c->layer[i] = layer_of(c, kind, windowed, is_sparse(c, &dense, i));
    }
}

void config_layers_read(struct json_read *r, struct arena *a, struct config *c)
{
    const json_t *types = json_read_get(r, "layer_types");
    c->layer = ARENA_ARRAY(a, struct layer_config, c->layers);
    if (!c->layer) {
        json_read_fail(r, -ENOMEM, "no memory left for %u layers", c->layers);
        return;
    }
    if (types && (!json_is_array(types) || json_array_size(types) != c->layers)) {
        json_read_fail(r, -EINVAL, "layer_types must be a list of num_hidden_layers = %u names", c->layers);
        return;
    }
    fill_layers(r, types, c);
    c->mtp_layer = layer_of(c, &kinds_of(c->family)[0], false, c->experts > 0);
    if (!r->error)
        read_blocks(r, c);
    number_layers(c);
}
