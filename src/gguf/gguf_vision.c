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

#define BLOCKS_MAX 1024
#define EPS        1e-6
#define WINDOW     112 /* window_size of files without the key */

/* Names without ".weight" and ".bias"; '#' is the number of a block. One that ends in '=' has neither. */
struct encoder_name {
    const char *from, *to;
};

static const struct encoder_name qwen3_names[] = {
    {"v.position_embd", "model.visual.pos_embed"},
    {"v.blk.#.ln1", "model.visual.blocks.#.norm1"},
    {"v.blk.#.ln2", "model.visual.blocks.#.norm2"},
    {"v.blk.#.attn_qkv", "model.visual.blocks.#.attn.qkv"},
    {"v.blk.#.attn_out", "model.visual.blocks.#.attn.proj"},
    {"v.blk.#.ffn_up", "model.visual.blocks.#.mlp.linear_fc1"},
    {"v.blk.#.ffn_down", "model.visual.blocks.#.mlp.linear_fc2"},
    {"v.post_ln", "model.visual.merger.norm"},
    {"mm.0", "model.visual.merger.linear_fc1"},
    {"mm.2", "model.visual.merger.linear_fc2"},
    {"v.deepstack.#.norm", "model.visual.deepstack_merger_list.#.norm"},
    {"v.deepstack.#.fc1", "model.visual.deepstack_merger_list.#.linear_fc1"},
    {"v.deepstack.#.fc2", "model.visual.deepstack_merger_list.#.linear_fc2"},
    {NULL, NULL},
};

#define SIGLIP_NAMES(head)                                                                                   \
    {"v.patch_embd", head "embeddings.patch_embedding"},                                                     \
        {"v.position_embd", head "embeddings.position_embedding"},                                           \
        {"v.blk.#.ln1", head "encoder.layers.#.layer_norm1"},                                                \
        {"v.blk.#.ln2", head "encoder.layers.#.layer_norm2"},                                                \
        {"v.blk.#.attn_q", head "encoder.layers.#.self_attn.q_proj"},                                        \
        {"v.blk.#.attn_k", head "encoder.layers.#.self_attn.k_proj"},                                        \
        {"v.blk.#.attn_v", head "encoder.layers.#.self_attn.v_proj"},                                        \
        {"v.blk.#.attn_out", head "encoder.layers.#.self_attn.out_proj"},                                    \
        {"v.blk.#.ffn_up", head "encoder.layers.#.mlp.fc1"},                                                 \
        {"v.blk.#.ffn_down", head "encoder.layers.#.mlp.fc2"},                                               \
    {                                                                                                        \
        "v.post_ln", head "post_layernorm"                                                                   \
    }

static const struct encoder_name gemma3_names[] = {
    SIGLIP_NAMES("model.vision_tower."),
    {"mm.soft_emb_norm", "model.multi_modal_projector.mm_soft_emb_norm"},
    {"mm.input_projection.weight=", "model.multi_modal_projector.mm_input_projection_weight"},
    {NULL, NULL},
};

static const struct encoder_name idefics3_names[] = {
    SIGLIP_NAMES("model.vision_model."),
    {"mm.model.fc", "model.connector.modality_projection.proj"},
    {NULL, NULL},
};

static const struct encoder_name internvl_names[] = {
    {"v.patch_embd", "model.vision_tower.embeddings.patch_embeddings.projection"},
    {"v.class_embd=", "model.vision_tower.embeddings.cls_token"},
    {"v.position_embd", "model.vision_tower.embeddings.position_embeddings"},
    {"v.blk.#.ln1", "model.vision_tower.encoder.layer.#.layernorm_before"},
    {"v.blk.#.ln2", "model.vision_tower.encoder.layer.#.layernorm_after"},
    {"v.blk.#.attn_q", "model.vision_tower.encoder.layer.#.attention.q_proj"},
    {"v.blk.#.attn_k", "model.vision_tower.encoder.layer.#.attention.k_proj"},
    {"v.blk.#.attn_v", "model.vision_tower.encoder.layer.#.attention.v_proj"},
    {"v.blk.#.attn_out", "model.vision_tower.encoder.layer.#.attention.projection_layer"},
    {"v.blk.#.ls1", "model.vision_tower.encoder.layer.#.lambda_1"},
    {"v.blk.#.ls2", "model.vision_tower.encoder.layer.#.lambda_2"},
    {"v.blk.#.ffn_up", "model.vision_tower.encoder.layer.#.mlp.fc1"},
    {"v.blk.#.ffn_down", "model.vision_tower.encoder.layer.#.mlp.fc2"},
    {"mm.model.mlp.0", "model.multi_modal_projector.layer_norm"},
    {"mm.model.mlp.1", "model.multi_modal_projector.linear_1"},
    {"mm.model.mlp.3", "model.multi_modal_projector.linear_2"},
    {NULL, NULL},
};

static const struct encoder_name qwen25_names[] = {
    {"v.blk.#.ln1", "model.visual.blocks.#.norm1"},
    {"v.blk.#.ln2", "model.visual.blocks.#.norm2"},
    {"v.blk.#.attn_qkv", "model.visual.blocks.#.attn.qkv"},
    {"v.blk.#.attn_q", "model.visual.blocks.#.attn.q"},
    {"v.blk.#.attn_k", "model.visual.blocks.#.attn.k"},
    {"v.blk.#.attn_v", "model.visual.blocks.#.attn.v"},
    {"v.blk.#.attn_out", "model.visual.blocks.#.attn.proj"},
    {"v.blk.#.ffn_gate", "model.visual.blocks.#.mlp.gate_proj"},
    {"v.blk.#.ffn_up", "model.visual.blocks.#.mlp.up_proj"},
    {"v.blk.#.ffn_down", "model.visual.blocks.#.mlp.down_proj"},
    {"v.post_ln", "model.visual.merger.ln_q"},
    {"mm.0", "model.visual.merger.mlp.0"},
    {"mm.2", "model.visual.merger.mlp.2"},
    {NULL, NULL},
};

/* v.token_embd.img_break is the text's own embedding of a token. */
static const struct encoder_name pixtral_names[] = {
    {"v.patch_embd", "model.vision_tower.patch_conv"},
    {"v.pre_ln", "model.vision_tower.ln_pre"},
    {"v.blk.#.ln1", "model.vision_tower.transformer.layers.#.attention_norm"},
    {"v.blk.#.ln2", "model.vision_tower.transformer.layers.#.ffn_norm"},
    {"v.blk.#.attn_q", "model.vision_tower.transformer.layers.#.attention.q_proj"},
    {"v.blk.#.attn_k", "model.vision_tower.transformer.layers.#.attention.k_proj"},
    {"v.blk.#.attn_v", "model.vision_tower.transformer.layers.#.attention.v_proj"},
    {"v.blk.#.attn_out", "model.vision_tower.transformer.layers.#.attention.o_proj"},
    {"v.blk.#.ffn_gate", "model.vision_tower.transformer.layers.#.feed_forward.gate_proj"},
    {"v.blk.#.ffn_up", "model.vision_tower.transformer.layers.#.feed_forward.up_proj"},
    {"v.blk.#.ffn_down", "model.vision_tower.transformer.layers.#.feed_forward.down_proj"},
    {"mm.input_norm", "model.multi_modal_projector.norm"},
    {"mm.patch_merger", "model.multi_modal_projector.patch_merger.merging_layer"},
    {"mm.1", "model.multi_modal_projector.linear_1"},
    {"mm.2", "model.multi_modal_projector.linear_2"},
    {NULL, NULL},
};

/* An encoder by its file's projector. */
struct encoder {
    const char *projector;
    const char *architectures[4]; /* architectures of its models */
    const struct encoder_name *names;
    bool two_frames;   /* filters of two frames, DeepStack, keys of Qwen's; else `type` and the following */
    bool windows;      /* two_frames: windows, the text's sections of positions one after the other */
    double eps;        /* epsilon of norms, if only one is computed; else 0 */
    bool acts;         /* use_silu or use_gelu names the activation */
    const char *type;  /* model_type of config.json */
    const char *token; /* text of the image token */
    const char *merge_key;
    uint32_t merge; /* clip.vision.projector.scale_factor where the file has none */
    bool longest;   /* preproc_image_size is the longer edge of an image, image_size that of a tile */
    bool edge;      /* image_size is the longer edge of an image, spatial_merge_size the patches of a token */
};

static const struct encoder encoders[] = {
    {.projector = "qwen3vl_merger",
     .architectures = {"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"},
     .names = qwen3_names,
     .two_frames = true,
     .eps = EPS},
    {.projector = "qwen2.5vl_merger",
     .architectures = {"qwen2vl"},
     .names = qwen25_names,
     .two_frames = true,
     .windows = true,
     .eps = EPS,
     .acts = true},
    {.projector = "pixtral",
     .architectures = {"llama", "mistral3"},
     .names = pixtral_names,
     .type = "mistral3",
     .token = "[IMG]",
     .merge_key = "spatial_merge_size",
     .edge = true,
     .eps = 1e-5,
     .acts = true},
    {.projector = "gemma3",
     .architectures = {"gemma3"},
     .names = gemma3_names,
     .type = "gemma3",
     .token = "<image_soft_token>",
     .merge = 4},
    {.projector = "idefics3",
     .architectures = {"llama"},
     .names = idefics3_names,
     .type = "idefics3",
     .token = "<image>",
     .merge_key = "scale_factor",
     .merge = 2,
     .longest = true},
    {.projector = "internvl",
     .architectures = {"qwen2", "qwen3", "llama"},
     .names = internvl_names,
     .type = "internvl",
     .token = "<IMG_CONTEXT>",
     .merge_key = "downsample_ratio",
     .merge = 2},
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

static struct slice projector_of(const struct gguf *g)
{
    const struct slice one = string(g, "clip.projector_type");
    return one.len > 0 ? one : string(g, "clip.vision.projector_type");
}

/* NULL: the file's encoder is not read. */
static const struct encoder *encoder_of(const struct gguf *g)
{
    const struct slice projector = projector_of(g);
    for (size_t i = 0; i < COUNT_OF(encoders); i++)
        if (slice_eq(projector, slice_of(encoders[i].projector)))
            return &encoders[i];
    return NULL;
}

static bool belongs(const struct encoder *n, struct slice arch)
{
    for (size_t i = 0; i < COUNT_OF(n->architectures) && n->architectures[i]; i++)
        if (slice_eq(arch, slice_of(n->architectures[i])))
            return true;
    return false;
}

int gguf_vision_check(const struct gguf *model, const struct gguf *encoder, struct err *e)
{
    const struct slice arch = string(model, "general.architecture"), projector = projector_of(encoder);
    const struct encoder *n = encoder_of(encoder);
    char key[128];
    if (!slice_eq(string(encoder, "general.architecture"), SLICE("clip")))
        return err_set(e, -EINVAL, "it is not the file of a vision encoder");
    if (!n)
        return err_set(e, -ENOTSUP, "vision encoders with the projector '%.*s' are not supported",
                       (int)MIN_OF(projector.len, (size_t)40), projector.ptr);
    if (!belongs(n, arch))
        return err_set(e, -EINVAL,
                       "a vision encoder with the projector '%s' does not belong to a model of "
                       "the architecture '%.*s'",
                       n->projector, (int)MIN_OF(arch.len, (size_t)40), arch.ptr);
    snprintf(key, sizeof(key), "%.*s.embedding_length", (int)MIN_OF(arch.len, (size_t)64), arch.ptr);
    const uint64_t made = number(encoder, "clip.vision.projection_dim"), wide = number(model, key);
    if (made != wide)
        return err_set(e, -EINVAL, "it computes %llu values of a token, the model has %llu", (ull)made,
                       (ull)wide);
    return 0;
}

bool gguf_vision_fits(const struct gguf *model, const struct gguf *encoder)
{
    return gguf_vision_check(model, encoder, NULL) == 0;
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

/* Writes `to` with the block's number and the tail. */
static void write_name(const char *to, uint64_t block, const char *tail, char ret[GGUF_VISION_NAME_BYTES])
{
    const char *mark = strchr(to, '#');
    if (mark)
        snprintf(ret, GGUF_VISION_NAME_BYTES, "%.*s%u%s%s", (int)(mark - to), to, (uint32_t)block, mark + 1,
                 tail);
    else
        snprintf(ret, GGUF_VISION_NAME_BYTES, "%s%s", to, tail);
}

static bool is_bare(const char *pattern, struct slice name)
{
    const size_t len = strlen(pattern);
    return pattern[len - 1] == '=' && slice_eq(name, (struct slice){pattern, len - 1});
}

bool gguf_vision_name(const struct gguf *encoder, struct slice name, char ret[GGUF_VISION_NAME_BYTES])
{
    const struct encoder *n = encoder_of(encoder);
    struct slice stem = name;
    const char *tail = slice_ends(name, SLICE(".weight")) ? ".weight"
                       : slice_ends(name, SLICE(".bias")) ? ".bias"
                                                          : "";
    uint64_t block = 0;
    stem.len -= strlen(tail);
    if (n && n->two_frames && slice_eq(stem, SLICE("v.patch_embd")) && strcmp(tail, ".bias") == 0) {
        write_name("model.visual.patch_embed.proj", 0, tail, ret);
        return true;
    }
    for (const struct encoder_name *p = n ? n->names : NULL; p && p->from; p++) {
        if (is_bare(p->from, name)) {
            write_name(p->to, 0, "", ret);
            return true;
        }
        if (tail[0] == 0 || !matches(stem, p->from, &block))
            continue;
        if (strstr(p->to, "deepstack"))
            block = place_of(encoder, block);
        write_name(p->to, block, tail, ret);
        return true;
    }
    return false;
}

bool gguf_vision_weaves(const struct gguf *encoder)
{
    const struct encoder *n = encoder_of(encoder);
    return n && n->two_frames;
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

static void put_token(const struct gguf *model, const char *text, const char *key, json_t *root)
{
    struct gguf_walk w = {.value = gguf_find(model, "tokenizer.ggml.tokens")};
    struct gguf_item item;
    for (uint64_t id = 0; w.value && gguf_next(&w, &item); id++)
        if (item.kind == GGUF_IS_STRING && slice_eq(item.string, slice_of(text)))
            put(root, key, id);
}

static bool is_true(const struct gguf *g, const char *key)
{
    struct gguf_item item;
    struct gguf_walk w = {.value = gguf_find(g, key)};
    return w.value && gguf_next(&w, &item) && item.kind == GGUF_IS_BOOL && item.flag;
}

static uint64_t scale_of(const struct gguf *g, const struct encoder *n)
{
    if (n->edge)
        return merge_of(g);
    const uint64_t scale = number(g, "clip.vision.projector.scale_factor");
    return scale > 0 ? scale : n->merge;
}

/* The activation, where files of the projector have several. */
static int put_activation(const struct gguf *g, const struct encoder *n, json_t *vision, struct err *e)
{
    const bool silu = is_true(g, "clip.use_silu");
    if (!n->acts && silu)
        return err_set(e, -ENOTSUP, "metadata clip.use_silu: true is not supported for the projector '%s'",
                       n->projector);
    if (n->acts && !silu && !is_true(g, "clip.use_gelu"))
        return err_set(e, -ENOTSUP, "neither clip.use_silu nor clip.use_gelu is true in the metadata");
    if (n->acts)
        json_object_set_new(vision, "hidden_act", json_string(silu ? "silu" : "gelu"));
    return 0;
}

/* Refuses another epsilon than the only one that is computed, and one that is not a number. */
static int check_eps(const struct gguf *g, const struct encoder *n, struct err *e)
{
    const double eps = real(g, "clip.vision.attention.layer_norm_epsilon", n->eps);
    return !isfinite(eps) || (n->eps > 0 && fabs(eps - n->eps) > 1e-9)
               ? err_set(e, -ENOTSUP,
                         "metadata clip.vision.attention.layer_norm_epsilon: %g is not supported", eps)
               : 0;
}

/* The keys of encoders other than Qwen's. */
static void put_encoder(const struct gguf *model, const struct gguf *encoder, const struct encoder *n,
                        json_t *root, json_t *vision)
{
    const uint64_t edge = number(encoder, "clip.vision.image_size"),
                   patch = number(encoder, "clip.vision.patch_size"), scale = scale_of(encoder, n);
    json_object_set_new(vision, "model_type", json_string(n->type));
    put(vision, "image_size", edge);
    json_object_set_new(vision, "layer_norm_eps",
                        json_real(real(encoder, "clip.vision.attention.layer_norm_epsilon", EPS)));
    if (n->merge_key)
        put(root, n->merge_key, scale);
    else if (patch > 0 && edge < UINT32_MAX && scale < UINT32_MAX)
        put(root, "mm_tokens_per_image", edge / patch / scale * (edge / patch / scale));
    put_token(model, n->token, "image_token_id", root);
}

/* A block's number; null: it is not one. */
static json_t *block_of(const struct gguf_item *item)
{
    const bool good = item->kind == GGUF_IS_NUMBER && item->real >= 0 && item->real < BLOCKS_MAX;
    return good ? json_integer((json_int_t)item->real) : json_null();
}

/* Blocks that see all of an image: a list of them, or each block of that number. */
static json_t *whole_blocks(const struct gguf *g)
{
    const uint64_t each = number(g, "clip.vision.n_wa_pattern"), count = number(g, "clip.vision.block_count");
    struct gguf_walk w = {.value = gguf_find(g, "clip.vision.wa_layer_indexes")};
    struct gguf_item item;
    json_t *list = json_array();
    while (w.value && w.index < BLOCKS_MAX && gguf_next(&w, &item))
        json_array_append_new(list, block_of(&item));
    for (uint64_t i = each; !w.value && each > 0 && i <= MIN_OF(count, (uint64_t)BLOCKS_MAX); i += each)
        json_array_append_new(list, json_integer((json_int_t)i - 1));
    return list;
}

static void put_windows(const struct gguf *g, json_t *vision)
{
    const uint64_t edge = number(g, "clip.vision.window_size");
    put(vision, "window_size", edge > 0 ? edge : WINDOW);
    json_object_set_new(vision, "fullatt_block_indexes", whole_blocks(g));
}

static void put_qwen(const struct gguf *model, const struct gguf *encoder, const struct encoder *n,
                     json_t *root, json_t *vision)
{
    const struct gguf_tensor *positions = tensor(encoder, "v.position_embd.weight");
    put(vision, "spatial_merge_size", merge_of(encoder));
    put(vision, "num_position_embeddings", positions ? positions->shape[0] : 0);
    json_object_set_new(vision, "deepstack_visual_indexes", deep_indexes(encoder));
    put_tokens(model, root);
    if (n->windows)
        put_windows(encoder, vision);
    else
        json_object_set_new(json_object_get(root, "rope_parameters"), "mrope_interleaved", json_true());
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
    const struct encoder *n = encoder_of(encoder);
    json_t *vision = json_object();
    if (!vision)
        return err_set(e, -ENOMEM, "no memory left for the configuration of a vision encoder");
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        put(vision, keys[i].to, number(encoder, keys[i].from));
    json_object_set_new(root, "vision_config", vision);
    if (!n)
        return err_set(e, -ENOTSUP, "the file of a vision encoder has no projector that is supported");
    if (n->two_frames)
        put_qwen(model, encoder, n, root, vision);
    else
        put_encoder(model, encoder, n, root, vision);
    int r = check_eps(encoder, n, e);
    return r < 0 ? r : put_activation(encoder, n, vision, e);
}

static void put_triple(json_t *object, const char *name, const struct gguf_value *value)
{
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    json_t *list = json_array();
    while (json_array_size(list) < 3 && w.value && gguf_next(&w, &item))
        json_array_append_new(list, item.kind == GGUF_IS_NUMBER && isfinite(item.real) ? json_real(item.real)
                                                                                       : json_null());
    if (json_array_size(list) == 3)
        json_object_set(object, name, list);
    json_decref(list);
}

static void put_pair(json_t *object, const char *name, const char *first, const char *second, uint64_t value)
{
    json_t *inner = json_object();
    if (value > 0 && inner) {
        put(inner, first, value);
        if (second)
            put(inner, second, value);
        json_object_set(object, name, inner);
    }
    json_decref(inner);
}

static void put_number(json_t *object, const char *name, uint64_t value)
{
    if (value > 0)
        put(object, name, value);
}

static void put_sizes(const struct gguf *g, const struct encoder *n, json_t *object)
{
    const uint64_t edge = number(g, "clip.vision.image_size");
    if (n->longest) {
        put_pair(object, "max_image_size", "longest_edge", NULL, edge);
        put_pair(object, "size", "longest_edge", NULL, number(g, "clip.vision.preproc_image_size"));
        return;
    }
    if (n->edge) {
        put_pair(object, "size", "longest_edge", NULL, edge);
        return;
    }
    put_pair(object, "size", "height", "width", edge);
    put_number(object, "min_patches", number(g, "clip.vision.preproc_min_tiles"));
    put_number(object, "max_patches", number(g, "clip.vision.preproc_max_tiles"));
}

int gguf_vision_preprocessor(const struct gguf *encoder, json_t **ret, struct err *e)
{
    const struct encoder *n = encoder_of(encoder);
    json_t *object = json_object();
    if (!object)
        return err_set(e, -ENOMEM, "no memory left for the configuration of a preprocessor");
    put(object, "patch_size", number(encoder, "clip.vision.patch_size"));
    if (n && !n->two_frames) {
        put_sizes(encoder, n, object);
    } else {
        put(object, "merge_size", merge_of(encoder));
        put_number(object, "min_pixels", number(encoder, "clip.vision.image_min_pixels"));
        put_number(object, "max_pixels", number(encoder, "clip.vision.image_max_pixels"));
    }
    put_triple(object, "image_mean", gguf_find(encoder, "clip.vision.image_mean"));
    put_triple(object, "image_std", gguf_find(encoder, "clip.vision.image_std"));
    *ret = object;
    return 0;
}
