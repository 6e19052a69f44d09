/* gguf_vision.c - tables of names and keys. The tokens that mark an image have no key: the tokenizer's texts
 * are their names. */
#include "gguf/gguf_vision.h"

#include "base/check.h"
#include "base/slice.h"
#include "gguf/gguf.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PREFIX     "model.visual."
#define BLOCKS_MAX 1024
#define EPS        1e-6

static const char *const architectures[] = {"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"};

/* Names without ".weight" and ".bias"; '#' is the number of a block. */
static const struct {
    const char *from, *to;
} names[] = {
    {"v.position_embd", "pos_embed"},
    {"v.blk.#.ln1", "blocks.#.norm1"},
    {"v.blk.#.ln2", "blocks.#.norm2"},
    {"v.blk.#.attn_qkv", "blocks.#.attn.qkv"},
    {"v.blk.#.attn_out", "blocks.#.attn.proj"},
    {"v.blk.#.ffn_up", "blocks.#.mlp.linear_fc1"},
    {"v.blk.#.ffn_down", "blocks.#.mlp.linear_fc2"},
    {"v.post_ln", "merger.norm"},
    {"mm.0", "merger.linear_fc1"},
    {"mm.2", "merger.linear_fc2"},
    {"v.deepstack.#.norm", "deepstack_merger_list.#.norm"},
    {"v.deepstack.#.fc1", "deepstack_merger_list.#.linear_fc1"},
    {"v.deepstack.#.fc2", "deepstack_merger_list.#.linear_fc2"},
};

static uint64_t number(const struct gguf *g, const char *key)
{
    uint64_t n;
    return gguf_u64(gguf_find(g, key), &n) ? n : 0;
}

static double real(const struct gguf *g, const char *key, double absent)
{
    struct gguf_item item;
    struct gguf_walk w = {.value = gguf_find(g, key)};
    return w.value && gguf_next(&w, &item) && item.kind == GGUF_IS_NUMBER ? item.real : absent;
}

static struct slice string(const struct gguf *g, const char *key)
{
    struct slice s = {NULL, 0};
    return gguf_string(gguf_find(g, key), &s) ? s : (struct slice){NULL, 0};
}

static const struct gguf_tensor *tensor(const struct gguf *g, const char *name)
{
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        if (slice_eq(g->tensors[i].name, slice_of(name)))
            return &g->tensors[i];
    }
    return NULL;
}

bool gguf_vision_fits(const struct gguf *model, const struct gguf *encoder)
{
    const struct slice arch = string(model, "general.architecture");
    struct slice projector = string(encoder, "clip.projector_type");
    char width[128];
    bool sees = false;
    if (projector.len == 0)
        projector = string(encoder, "clip.vision.projector_type");
    for (size_t i = 0; i < COUNT_OF(architectures); i++)
        sees |= slice_eq(arch, slice_of(architectures[i]));
    if (!sees || !slice_eq(string(encoder, "general.architecture"), SLICE("clip")) ||
        !slice_eq(projector, SLICE("qwen3vl_merger")))
        return false;
    snprintf(width, sizeof(width), "%.*s.embedding_length", SLICE_ARGS(arch));
    return number(encoder, "clip.vision.projection_dim") == number(model, width);
}

/* A walk over the blocks: whether the features of each go to the text's first layers. */
static struct gguf_walk deep_blocks(const struct gguf *g)
{
    return (struct gguf_walk){.value = gguf_find(g, "clip.vision.is_deepstack_layers")};
}

static bool next_is_deep(struct gguf_walk *w, bool *deep)
{
    struct gguf_item item;
    if (!w->value || w->index >= BLOCKS_MAX || !gguf_next(w, &item))
        return false;
    *deep = item.kind == GGUF_IS_BOOL && item.flag;
    return true;
}

/* Matches a name with a pattern; *number is that of '#'. */
static bool matches(struct slice name, const char *pattern, uint64_t *number)
{
    size_t at = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (at == name.len || name.ptr[at++] != *pattern)
                return false;
            continue;
        }
        const size_t first = at;
        for (*number = 0; at < name.len && at - first < 4 && name.ptr[at] >= '0' && name.ptr[at] <= '9';)
            *number = 10 * *number + (uint64_t)(name.ptr[at++] - '0');
        if (at == first)
            return false;
    }
    return at == name.len;
}

/* Mergers of DeepStack are a list: one's place is how many blocks before its own have one. */
static uint64_t place_of(const struct gguf *g, uint64_t block)
{
    struct gguf_walk w = deep_blocks(g);
    uint64_t place = 0;
    bool deep;
    while (w.index < block && next_is_deep(&w, &deep))
        place += deep;
    return place;
}

bool gguf_vision_name(const struct gguf *encoder, struct slice name, char ret[GGUF_VISION_NAME_BYTES])
{
    struct slice stem = name;
    const char *tail = slice_ends(name, SLICE(".weight")) ? ".weight"
                       : slice_ends(name, SLICE(".bias")) ? ".bias"
                                                          : NULL;
    uint64_t block = 0;
    if (!tail)
        return false;
    stem.len -= strlen(tail);
    if (slice_eq(stem, SLICE("v.patch_embd")) && strcmp(tail, ".bias") == 0) {
        snprintf(ret, GGUF_VISION_NAME_BYTES, PREFIX "patch_embed.proj.bias");
        return true;
    }
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *to = names[i].to, *mark = strchr(to, '#');
        if (!matches(stem, names[i].from, &block))
            continue;
        if (strncmp(to, "deepstack", 9) == 0)
            block = place_of(encoder, block);
        if (mark)
            snprintf(ret, GGUF_VISION_NAME_BYTES, PREFIX "%.*s%u%s%s", (int)(mark - to), to, (uint32_t)block,
                     mark + 1, tail);
        else
            snprintf(ret, GGUF_VISION_NAME_BYTES, PREFIX "%s%s", to, tail);
        return true;
    }
    return false;
}

const struct gguf_tensor *gguf_vision_filters(const struct gguf *encoder, unsigned frame)
{
    ASSERT(frame < 2);
    return tensor(encoder, frame == 0 ? "v.patch_embd.weight" : "v.patch_embd.weight.1");
}

/* ---- objects ---- */

static void put(json_t *object, const char *name, uint64_t value)
{
    json_object_set_new(object, name, json_integer((json_int_t)MIN_OF(value, (uint64_t)UINT32_MAX)));
}

static json_t *deep_indexes(const struct gguf *g)
{
    struct gguf_walk w = deep_blocks(g);
    json_t *list = json_array();
    bool deep;
    while (next_is_deep(&w, &deep)) {
        if (deep)
            json_array_append_new(list, json_integer((json_int_t)(w.index - 1)));
    }
    return list;
}

static uint64_t merge_of(const struct gguf *g)
{
    return gguf_find(g, "clip.vision.spatial_merge_size") ? number(g, "clip.vision.spatial_merge_size") : 2;
}

/* The ids of the tokens that stand for an image, or around one. */
static void put_tokens(const struct gguf *model, json_t *root)
{
    static const struct {
        struct slice text;
        const char *key;
    } marks[] = {{{"<|image_pad|>", 13}, "image_token_id"},
                 {{"<|video_pad|>", 13}, "video_token_id"},
                 {{"<|vision_start|>", 16}, "vision_start_token_id"},
                 {{"<|vision_end|>", 14}, "vision_end_token_id"}};
    struct gguf_walk w = {.value = gguf_find(model, "tokenizer.ggml.tokens")};
    struct gguf_item item;
    for (uint64_t id = 0; w.value && gguf_next(&w, &item); id++) {
        for (size_t i = 0; i < COUNT_OF(marks); i++) {
            if (item.kind == GGUF_IS_STRING && slice_eq(item.string, marks[i].text))
                put(root, marks[i].key, id);
        }
    }
}

int gguf_vision_config(const struct gguf *model, const struct gguf *encoder, json_t *root, struct err *e)
{
    static const struct {
        const char *from, *to;
    } keys[] = {{"clip.vision.block_count", "depth"},
                {"clip.vision.embedding_length", "hidden_size"},
                {"clip.vision.attention.head_count", "num_heads"},
                {"clip.vision.feed_forward_length", "intermediate_size"},
                {"clip.vision.patch_size", "patch_size"},
                {"clip.vision.projection_dim", "out_hidden_size"}};
    const struct gguf_tensor *positions = tensor(encoder, "v.position_embd.weight");
    const double eps = real(encoder, "clip.vision.attention.layer_norm_epsilon", EPS);
    json_t *vision = json_object();
    if (!vision)
        return err_set(e, -ENOMEM, "no memory left for the configuration of a vision encoder");
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        put(vision, keys[i].to, number(encoder, keys[i].from));
    put(vision, "spatial_merge_size", merge_of(encoder));
    put(vision, "num_position_embeddings", positions ? positions->shape[0] : 0);
    json_object_set_new(vision, "deepstack_visual_indexes", deep_indexes(encoder));
    json_object_set_new(root, "vision_config", vision);
    put_tokens(model, root);
    if (fabs(eps - EPS) > 1e-9)
        return err_set(e, -ENOTSUP, "metadata clip.vision.attention.layer_norm_epsilon: %g is not supported",
                       eps);
    return 0;
}

static void put_triple(json_t *object, const char *name, const struct gguf_value *value)
{
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    json_t *list = json_array();
    while (json_array_size(list) < 3 && w.value && gguf_next(&w, &item))
        json_array_append_new(list, json_real(item.kind == GGUF_IS_NUMBER ? item.real : 0));
    if (json_array_size(list) == 3)
        json_object_set(object, name, list);
    json_decref(list);
}

int gguf_vision_preprocessor(const struct gguf *encoder, json_t **ret, struct err *e)
{
    json_t *object = json_object();
    if (!object)
        return err_set(e, -ENOMEM, "no memory left for the configuration of a preprocessor");
    put(object, "patch_size", number(encoder, "clip.vision.patch_size"));
    put(object, "merge_size", merge_of(encoder));
    put_triple(object, "image_mean", gguf_find(encoder, "clip.vision.image_mean"));
    put_triple(object, "image_std", gguf_find(encoder, "clip.vision.image_std"));
    *ret = object;
    return 0;
}
