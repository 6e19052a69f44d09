/* vision_config.c - defaults of the vision encoder. Where a file leaves something out, the values of the
 * families' published files stand in, never a library's class defaults: those belong to another family. */
#include "model/config/vision_config.h"

#include "model/config/config.h"
#include "model/config/config_unknown.h"
#include "model/config/json_read.h"
#include "model/config/vision_preprocessor.h"
#include "model/family/vision_family.h"

#include "base/check.h"
#include "weights/model_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Positions of a table belong to the patches of a square image. Pixels beyond its last patch are not read. */
static void read_square(struct json_read *r, struct vision_config *v)
{
    uint32_t edge = json_read_square(r, "image_size", VISION_EDGE_MAX);
    v->grid = edge / v->shape.patch;
    if (v->grid == 0 || v->grid % v->shape.merge != 0)
        json_read_fail(r, -ENOTSUP, "image_size is %u, whose %u x %u patches do not make tokens of %u x %u",
                       edge, v->grid, v->grid, v->shape.merge, v->shape.merge);
}

/* Reads patches of a token's edge: a number, or one divided by it. */
static uint32_t merge_of(struct json_read *r, struct json_read *top, const struct vision_family *t)
{
    if (!t->merge_key)
        return json_read_u32_or(t->linear ? top : r, "spatial_merge_size", 1, VISION_MERGE_MAX, t->merge);
    const double n = json_read_f64_or(top, t->merge_key, 1.0 / VISION_MERGE_MAX, VISION_MERGE_MAX, t->merge),
                 merge = n < 1 ? 1 / n : n;
    if (merge != floor(merge))
        json_read_fail(top, -ENOTSUP, "%s is %g, which is not a number of patches", t->merge_key, n);
    return (uint32_t)merge;
}

/* Refuses values of keys that are not computed. */
static void expect_only(struct json_read *r, const struct vision_only only[6])
{
    for (const struct vision_only *o = only; o < only + 6 && o->key; o++) {
        const char *word = o->word ? json_read_string_or(r, o->key, o->word) : NULL;
        if (word && strcmp(word, o->word) != 0)
            json_read_fail(r, -ENOTSUP, "%s '%.40s' is not supported; %s is", o->key, word, o->word);
        if (!word && json_read_bool_or(r, o->key, o->flag) != o->flag)
            json_read_fail(r, -ENOTSUP, "%s is %s, which is not supported", o->key,
                           o->flag ? "false" : "true");
    }
}

static void read_grid(struct json_read *r, struct vision_config *v)
{
    const bool smooth = v->family->positions == ENCODE_POSITIONS_SMOOTH;
    const char *key = smooth ? "num_patches" : "num_position_embeddings";
    const uint32_t edge = smooth ? VISION_SMOOTH_MAX : VISION_GRID_MAX;
    uint32_t positions = json_read_u32(r, key, 1, edge * edge);
    v->grid = (uint32_t)lround(sqrt(positions));
    if (v->grid * v->grid != positions)
        json_read_fail(r, -ENOTSUP, "%s is %u, which is not a square", key, positions);
}

static void read_deepstack(struct json_read *r, const struct config *text, struct vision_config *v)
{
    json_read_ids(r, "deepstack_visual_indexes", v->depth - 1, v->deepstack, VISION_DEEPSTACK_MAX,
                  &v->deepstack_count);
    for (uint32_t i = 1; i < v->deepstack_count; i++) {
        if (v->deepstack[i] <= v->deepstack[i - 1])
            json_read_fail(r, -ENOTSUP, "deepstack_visual_indexes must ascend");
    }
    if (v->deepstack_count && !v->family->tensors[VISION_ROLE_DEEP_UP])
        json_read_fail(r, -ENOTSUP, "deepstack_visual_indexes is not empty: %s has none", text->family_name);
    if (v->deepstack_count > text->layers)
        json_read_fail(r, -EINVAL, "deepstack_visual_indexes has %u entries for %u layers",
                       v->deepstack_count, text->layers);
}

static void read_activation(struct json_read *r, struct vision_config *v)
{
    static const struct {
        const char *name;
        enum glu_function function;
    } known[] = {{"gelu_pytorch_tanh", GLU_GELU_TANH}, {"gelu", GLU_GELU_ERF}, {"silu", GLU_SILU}};
    const char *key = json_read_either(r, "hidden_act", "hidden_activation");
    const char *act = json_read_string_or(r, key, v->family->activation);
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        if (strcmp(act, known[i].name) == 0) {
            v->function = known[i].function;
            return;
        }
    }
    json_read_fail(r, -ENOTSUP, "%s '%.40s' is not supported; gelu_pytorch_tanh, gelu and silu are", key,
                   act);
}

/* Patches of an image of fixed size are averaged to that many tokens. */
static void read_pool(struct json_read *r, struct json_read *top, struct vision_config *v)
{
    uint32_t edge = json_read_u32(r, "image_size", 1, VISION_EDGE_MAX);
    uint32_t tokens = json_read_u32_or(top, "mm_tokens_per_image", 1, 1u << 20, 256);
    uint32_t side = (uint32_t)lround(sqrt(tokens)), patches = edge / v->shape.patch;
    if (side * side != tokens || patches % side != 0 || patches / side > VISION_MERGE_MAX) {
        json_read_fail(r, -ENOTSUP, "mm_tokens_per_image is %u, which %u x %u patches are not averaged to",
                       tokens, patches, patches);
        return;
    }
    v->shape.merge = patches / side;
}

static void read_windows(struct json_read *r, struct vision_config *v)
{
    uint32_t pixels = json_read_u32(r, "window_size", 1, VISION_EDGE_MAX);
    v->window = pixels / v->shape.patch / v->shape.merge;
    if (v->window == 0)
        json_read_fail(r, -ENOTSUP, "window_size is %u, less than the %u pixels of a token", pixels,
                       v->shape.patch * v->shape.merge);
    json_read_ids(r, "fullatt_block_indexes", v->depth - 1, v->all, VISION_DEPTH_MAX, &v->all_count);
}

/* Numbers of an encoder whose images have a budget of tokens. */
static void read_budget_sizes(struct json_read *r, struct vision_config *v)
{
    const bool alone = v->family->no_blocks;
    v->pooling = json_read_u32_or(r, "pooling_kernel_size", 1, VISION_MERGE_MAX, 3);
    v->shape.patch = json_read_u32_or(r, "patch_size", 1, VISION_PATCH_MAX / VISION_MERGE_MAX, 16);
    v->shape.merge = alone ? 1 : v->pooling;
    v->grid = json_read_u32_or(r, alone ? "mm_posemb_size" : "position_embedding_size", 1, VISION_AXIS_MAX,
                               alone ? 1120 : 10240);
    v->clipped = json_read_bool_or(r, "use_clipped_linears", false);
    v->standardizes = json_read_bool_or(r, "standardize", false);
    if (alone)
        v->shape.patch *= v->pooling;
}

/* Numbers of an encoder whose images are completed with black. */
static void read_padded_sizes(struct json_read *r, struct json_read *top, struct vision_config *v)
{
    const char *high = json_read_either(r, "pos_emb_height", "init_pos_emb_height"),
               *wide = json_read_either(r, "pos_emb_width", "init_pos_emb_width");
    v->shape.patch = json_read_square(r, "patch_size", VISION_PATCH_MAX);
    v->shape.merge = json_read_square(r, "merge_kernel_size", VISION_MERGE_MAX);
    v->grid = json_read_u32_or(r, high, 1, VISION_GRID_MAX, 64);
    json_read_expect(r, wide, v->grid);
    if (json_read_f64_or(top, "projection_layer_norm_eps", 0, 1, 1e-5) != 1e-5)
        json_read_fail(r, -ENOTSUP, "projection_layer_norm_eps is not 1e-5, which is not supported");
}

static void read_merge(struct json_read *r, struct json_read *top, struct vision_config *v)
{
    if (v->shape.size == IMAGE_PADDED) {
        read_padded_sizes(r, top, v);
        return;
    }
    if (v->family->budget) {
        read_budget_sizes(r, v);
        return;
    }
    v->shape.patch = json_read_square(r, "patch_size", VISION_PATCH_MAX);
    v->shape.merge = merge_of(r, top, v->family);
    expect_only(r, v->family->only);
    expect_only(top, v->family->only_beside);
    if (v->family->pools)
        read_pool(r, top, v);
}

static void read_blocks(struct json_read *r, struct vision_config *v)
{
    const char *depth = json_read_either(r, json_read_either(r, "depth", "num_hidden_layers"),
                                         "vt_num_hidden_layers"),
               *heads = json_read_either(r, json_read_either(r, "num_heads", "num_attention_heads"),
                                         "vt_num_attention_heads"),
               *wide = json_read_either(r, "intermediate_size", "vt_intermediate_size");
    v->depth = json_read_u32(r, depth, 1, VISION_DEPTH_MAX);
    v->hidden = json_read_u32(r, json_read_either(r, "hidden_size", "vt_hidden_size"), 8, VISION_HIDDEN_MAX);
    v->heads = json_read_u32(r, heads, 1, CONFIG_HEADS_MAX);
    v->intermediate = json_read_u32(r, wide, 1, CONFIG_INTERMEDIATE_MAX);
    v->head_dim = v->hidden / v->heads;
    json_read_expect(r, "num_key_value_heads", v->heads);
    if (v->family->budget)
        json_read_expect(r, "head_dim", v->head_dim);
    if (v->hidden % v->heads != 0 || v->head_dim % 4 != 0 || v->head_dim > CONFIG_HEAD_DIM_MAX)
        json_read_fail(r, -ENOTSUP,
                       "hidden_size %u in %u heads: a head's size must be a multiple of 4 and at most %u",
                       v->hidden, v->heads, CONFIG_HEAD_DIM_MAX);
    read_activation(r, v);
}

/* An encoder of one product: its norms have a fixed epsilon, but for the merger's. */
static void read_no_blocks(struct json_read *r, struct vision_config *v)
{
    v->hidden = json_read_u32(r, "mm_embed_dim", 8, VISION_HIDDEN_MAX);
    v->heads = 1;
    v->head_dim = v->hidden;
    if (v->hidden % 4 != 0)
        json_read_fail(r, -ENOTSUP, "mm_embed_dim is %u, which is not a multiple of 4", v->hidden);
    json_read_expect(r, "output_proj_dims", v->hidden);
    json_read_expect(r, "model_patch_size", v->shape.patch);
    v->merge_eps = (float)json_read_f64_or(r, "rms_norm_eps", 0, 1, 1e-6);
}

/* `top`: the keys beside vision_config, some of which are the encoder's. */
static void read_sizes(struct json_read *r, struct json_read *top, const struct config *text,
                       struct vision_config *v)
{
    read_merge(r, top, v);
    if (v->family->no_blocks)
        read_no_blocks(r, v);
    else
        read_blocks(r, v);
    if (v->family->mid_key)
        v->mid = json_read_u32(top, v->family->mid_key, 1, CONFIG_INTERMEDIATE_MAX);
    if (v->family->merge_norm_key)
        v->merge_bare = !json_read_bool_or(top, v->family->merge_norm_key, true);
    if (v->family->eps_key)
        v->eps = (float)json_read_f64_or(r, v->family->eps_key, 0, 1, v->eps);
    v->out = json_read_u32_or(r, "out_hidden_size", 1, CONFIG_HIDDEN_MAX, text->hidden);
    json_read_expect(
        r, json_read_has(r, "in_chans") ? "in_chans" : json_read_either(r, "in_channels", "num_channels"),
        VISION_CHANNELS);
    json_read_expect(r, "temporal_patch_size", v->frames);
    const bool has = v->family->tensors[VISION_ROLE_POSITIONS] && v->grid == 0;
    if (has && v->family->size == IMAGE_BY_AREA && v->family->positions != ENCODE_POSITIONS_CUBIC)
        read_grid(r, v);
    else if (has)
        read_square(r, v);
    if (v->family->windows)
        read_windows(r, v);
    if (v->out != text->hidden)
        json_read_fail(r, -EINVAL, "out_hidden_size is %u, the text model's hidden_size %u", v->out,
                       text->hidden);
}

static void read_theta(struct json_read *r, struct vision_config *v)
{
    const json_t *rope = json_read_get(r, "rope_parameters");
    struct json_read p = {.object = json_is_object(rope) ? rope : NULL,
                          .fallback = r->object,
                          .asked = r->asked,
                          .where = r->where,
                          .e = r->e};
    v->theta = json_read_f64_or(&p, "rope_theta", 1, 1e12, v->family->theta);
    if (p.error && !r->error)
        r->error = p.error;
}

static void read_vision(const json_t *config, const struct config *text, struct vision_config *v,
                        struct json_read *r)
{
    const json_t *vision = json_object_get(config, "vision_config");
    struct json_read t = {.object = vision, .where = "config.json: vision_config", .e = r->e};
    if (!json_is_object(vision)) {
        json_read_fail(r, -EINVAL, "the checkpoint has a vision encoder, but vision_config is missing");
        return;
    }
    t.asked = json_object();
    read_sizes(&t, r, text, v);
    if (!t.error)
        read_deepstack(&t, text, v);
    if (!t.error)
        read_theta(&t, v);
    config_unknown_add(vision, t.asked, CONFIG_OF_VISION, "vision_config.", v->unknown_keys,
                       sizeof(v->unknown_keys));
    json_decref(t.asked);
    if (!r->error)
        r->error = t.error;
}

/* Features are those of the last block, and the projector's activation is GELU. */
static void expect_projector(struct json_read *r)
{
    const char *key = json_read_either(r, "vision_feature_layer", "select_layer");
    const json_t *layer = json_read_get(r, key);
    const char *act = json_read_string_or(r, "projector_hidden_act", "gelu");
    if (layer && json_integer_value(layer) != -1)
        json_read_fail(r, -ENOTSUP, "%s is not -1, which is not supported", key);
    if (strcmp(act, "gelu") != 0)
        json_read_fail(r, -ENOTSUP, "projector_hidden_act '%.40s' is not supported; gelu is", act);
}

static void read_tokens(struct json_read *r, const struct config *text, struct model_vision *s)
{
    const char *key = json_read_either(r, json_read_either(r, "image_token_id", "image_token_index"),
                                       "media_placeholder_token_id");
    s->image_token = json_read_u32(r, key, 0, text->vocab - 1);
    const bool older = text->vision_family->sections_apart;
    if (s->linear) {
        expect_projector(r);
        return;
    }
    s->video_token = json_read_u32(r, "video_token_id", 0, text->vocab - 1);
    s->start_token = json_read_u32(r, json_read_either(r, "vision_start_token_id", "image_start_token_id"), 0,
                                   text->vocab - 1);
    s->end_token = json_read_u32(r, json_read_either(r, "vision_end_token_id", "image_end_token_id"), 0,
                                 text->vocab - 1);
    if (!text->ropes[0].interleaved != older || text->ropes[0].sections[0] == 0)
        json_read_fail(r, -ENOTSUP, "images need mrope_interleaved %s and an mrope_section",
                       older ? "false" : "true");
}

/* The edge where the preprocessor's file has none. */
static uint32_t image_size(const json_t *config)
{
    const json_t *size = json_object_get(json_object_get(config, "vision_config"), "image_size");
    json_int_t n = json_integer_value(json_is_array(size) ? json_array_get(size, 0) : size);
    return n > 0 && n <= VISION_EDGE_MAX ? (uint32_t)n : 1024;
}

bool vision_sees_all(const struct vision_config *v, uint32_t block)
{
    for (uint32_t i = 0; i < v->all_count; i++)
        if (v->all[i] == block)
            return true;
    return false;
}

bool vision_norms_twice(const struct vision_config *v)
{
    const struct vision_family *t = v->family;
    return t->tensors[VISION_ROLE_LAST_NORM] && t->tensors[VISION_ROLE_MERGE_NORM] && !t->pools &&
           !v->merge_bare;
}

uint32_t vision_squeezed(const struct vision_config *v)
{
    return v->family->tensors[VISION_ROLE_MERGE_PROJ] ? v->out : v->hidden;
}

uint32_t vision_read_max(const struct vision_config *v)
{
    const uint32_t token = MAX_OF(v->merge_mid, vision_squeezed(v));
    return MAX_OF(MAX_OF(v->hidden, v->intermediate),
                  MAX_OF(vision_patch_values(v), DIV_UP(token, v->shape.merge * v->shape.merge)));
}

static void set_merger(struct vision_config *v)
{
    const char *const *t = v->family->tensors;
    v->merge_mid = t[VISION_ROLE_MERGE_GATE] ? VISION_CHANNELS * v->out
                   : v->mid > 0              ? v->mid
                   : v->family->mid_of_text  ? v->out
                                             : vision_merged(v);
    if (v->family->wide_merger) {
        v->merge_mid = v->intermediate;
        v->intermediate = v->out;
    }
}

int vision_config_read(const json_t *config, const json_t *image, const json_t *video,
                       const struct config *text, const struct vision_limits *limits,
                       struct vision_config *ret, struct err *e)
{
    const struct vision_family *t = text->vision_family;
    struct vision_config v = {
        .shape = {.present = true,
                  .size = t->size,
                  .filter = t->filter,
                  .marks = t->marks,
                  .linear = t->linear,
                  .both_ways = t->both_ways || (t->windowed_ways && text->bidirectional)},
        .family = t,
        .frames = t->frames,
        .gated = t->tensors[VISION_ROLE_GATE] != NULL,
        .eps = (float)t->eps};
    struct json_read r = {.object = config, .where = "config.json", .e = e};
    struct json_read p = {.object = image, .where = "preprocessor_config.json", .e = e};
    struct json_read q = {.object = video, .where = "video_preprocessor_config.json", .e = e};
    read_vision(config, text, &v, &r);
    if (!r.error)
        read_tokens(&r, text, &v.shape);
    if (!r.error && (t->size == IMAGE_BY_LONGEST || t->size == IMAGE_FIXED))
        v.shape.edge_max = image_size(config);
    if (!r.error && t->tiles && t->tiles->beside)
        vision_preprocessor_counts(&r, &v);
    if (!r.error)
        vision_preprocessor_image(&p, limits->tokens, &v);
    if (!r.error && !p.error && vision_family_reads_videos(t))
        vision_preprocessor_video(&q, &v);
    if (!r.error)
        vision_preprocessor_cap(&p, &v.shape, limits->pixels_max);
    int error = r.error ? r.error : p.error ? p.error : q.error;
    if (error)
        return error;
    set_merger(&v);
    v.shape.feature_floats = v.out * (1 + v.deepstack_count);
    if (!t->no_blocks)
        v.merge_eps = t->text_eps ? (float)text->eps : t->merge_eps > 0 ? (float)t->merge_eps : v.eps;
    *ret = v;
    return 0;
}

/* processor_config.json's value of `key`, which transformers reads first, or the file's object; NULL where
 * neither exists. */
static int find_file(struct model_files *files, const char *name, const json_t *processor, const char *key,
                     json_t **ret, struct err *e)
{
    json_t *inner = json_object_get(processor, key);
    if (json_is_object(inner)) {
        *ret = json_incref(inner);
        return 0;
    }
    int r = model_json(files, name, ret, e);
    return r == -ENOENT ? 0 : r;
}

/* Sets the id of the image token where only the tokenizer's files have it. */
static int find_image_token(struct model_files *files, const char *word, json_t *config, struct err *e)
{
    json_t *tokenizer = NULL, *each;
    const char *id;
    int r = find_file(files, "tokenizer_config.json", NULL, "", &tokenizer, e);
    json_object_foreach(json_object_get(tokenizer, "added_tokens_decoder"), id, each) {
        const char *text = json_string_value(json_object_get(each, "content"));
        char *end;
        const long long number = strtoll(id, &end, 10);
        if (text && strcmp(text, word) == 0 && end > id && *end == 0)
            json_object_set_new(config, "image_token_id", json_integer(number));
    }
    json_decref(tokenizer);
    return r;
}

int vision_config_load(struct model_files *files, const struct config *text,
                       const struct vision_limits *limits, struct vision_config *ret, struct err *e)
{
    json_t *config = NULL, *processor = NULL, *image = NULL, *video = NULL;
    int r = model_json(files, "config.json", &config, e);
    if (r == 0 && text->vision_family->image_word)
        r = find_image_token(files, text->vision_family->image_word, config, e);
    if (r == 0)
        r = find_file(files, "processor_config.json", NULL, "", &processor, e);
    if (r == 0)
        r = find_file(files, "preprocessor_config.json", processor, "image_processor", &image, e);
    if (r == 0)
        r = find_file(files, "video_preprocessor_config.json", processor, "video_processor", &video, e);
    if (r == 0)
        r = vision_config_read(config, image, video, text, limits, ret, e);
    json_decref(config);
    json_decref(processor);
    json_decref(image);
    json_decref(video);
    return r;
}
