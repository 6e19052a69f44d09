/* Any text as config.json, and as the preprocessors' files: refused with a message, or numbers within their
 * bounds. */
#include "base/check.h"
#include "base/none.h"
#include "compute/layout.h"
#include "model/blocks/blocks.h"
#include "model/config/config.h"
#include "model/config/json_read.h"
#include "model/family/vision_family.h"
#include "weights/model_json.h"

#include <math.h>

static void check_layer(const struct config *c, const struct layer_config *l)
{
    ASSERT(l->mixer && l->mlp && l->heads % l->kv_heads == 0 && l->head_dim <= CONFIG_HEAD_DIM_MAX);
    ASSERT(l->kv_from == NONE || l->kv_from < c->layers);
    ASSERT(l->rope < c->rope_count || l->rope == ROPE_ABSENT);
    ASSERT(l->mixer->state == BLOCK_KV ? l->index < c->kv_count : l->index < c->recurrent_count);
}

static void check(struct arena *a, struct config *c)
{
    float cosines[CONFIG_HEAD_DIM_MAX / 2], sines[CONFIG_HEAD_DIM_MAX / 2];
    struct rope r;
    ASSERT(c->family && c->layers <= CONFIG_LAYERS_MAX && c->hidden <= CONFIG_HIDDEN_MAX);
    ASSERT(c->heads % c->kv_heads == 0 && c->head_dim <= CONFIG_HEAD_DIM_MAX);
    ASSERT(c->kv_count + c->recurrent_count <= c->layers);
    ASSERT(c->experts == 0 || (c->top_k >= 1 && c->top_k <= c->experts));
    ASSERT(config_lay_out(a, c) == 0);
    ASSERT(c->shape.state_bytes % 64 == 0);
    for (uint32_t g = 0; g < c->shape.group_count; g++)
        ASSERT(c->shape.groups[g].page_bytes > 0 && c->shape.groups[g].page_bytes % 64 == 0);
    for (uint32_t i = 0; i < c->layers; i++)
        check_layer(c, &c->layer[i]);
    for (uint32_t i = 0; i < c->rope_count; i++) {
        ASSERT(c->ropes[i].rot >= 2 && c->ropes[i].rot <= CONFIG_HEAD_DIM_MAX && c->ropes[i].rot % 2 == 0);
        config_rope_init(&r, &c->ropes[i]);
        rope_at(&r, rope_text(c->context_max), cosines, sines);
        for (uint32_t j = 0; j < r.half; j++)
            ASSERT(isfinite(cosines[j]) && isfinite(sines[j]));
    }
}

static void check_vision(const struct config *c, struct slice text)
{
    struct vision_config v;
    struct err e = {{0}};
    json_t *root;
    if (!c->vision_family)
        return;
    ASSERT(model_json_parse(text, "config.json", &root, &e) == 0);
    int r = vision_config_read(root, root, root, c, &(struct vision_limits){0}, &v, &e);
    json_decref(root);
    ASSERT(r <= 0 && (r == 0 || e.text[0] != 0));
    if (r < 0)
        return;
    ASSERT(v.head_dim * v.heads == v.hidden && v.head_dim % 4 == 0 && v.out == c->hidden);
    ASSERT(v.shape.pixels_min > 0 && v.shape.pixels_min <= v.shape.pixels_max);
    ASSERT(v.deepstack_count <= VISION_DEEPSTACK_MAX);
    ASSERT(v.grid <= (v.family->budget ? VISION_AXIS_MAX : VISION_GRID_MAX));
    ASSERT(model_image_parts_max(&v.shape) <= VISION_TILES_MAX + 1);
    for (uint32_t i = 0; i < v.deepstack_count; i++)
        ASSERT(v.deepstack[i] < v.depth);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *a;
    struct config c;
    struct err e = {{0}};
    if (!a)
        ASSERT(arena_create(&(struct arena_opts){.bytes_max = 16 << 20}, &a) == 0);
    arena_reset(a);
    int r = config_parse(a, (struct slice){(const char *)data, size}, &c, &e);
    ASSERT(r <= 0 && (r == 0 || e.text[0] != 0));
    if (r == 0)
        check(a, &c);
    if (r == 0)
        check_vision(&c, (struct slice){(const char *)data, size});
    return 0;
}
