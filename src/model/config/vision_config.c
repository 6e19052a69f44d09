/* vision_config.c - defaults of the vision encoder. Where a file leaves something out, the values of the
 * families' published files stand in, never a library's class defaults: those belong to another family. */
#include "model/config/vision_config.h"

#include "model/config/config.h"
#include "model/config/config_unknown.h"
#include "model/config/json_read.h"
#include "model/family/vision_family.h"

#include "base/check.h"
#include "weights/model_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect(struct json_read *r, const char *key, uint32_t wanted)
{
    uint32_t got = json_read_u32_or(r, key, 0, UINT32_MAX, wanted);
    if (got != wanted)
        json_read_fail(r, -ENOTSUP, "%s is %u; supported is %u", key, got, wanted);
}

/* Returns the name that the file has; the first one if it has neither. */
static const char *either(const struct json_read *r, const char *a, const char *b)
{
    return json_read_has(r, a) || !json_read_has(r, b) ? a : b;
}

/* Reads the edge of a square: a number, or two equal ones. */
static uint32_t read_both(struct json_read *r, const char *key, uint32_t max)
{
    const json_t *list = json_read_get(r, key), *first = json_array_get(list, 0);
    if (!json_is_array(list))
        return json_read_u32(r, key, 1, max);
    const json_int_t n = json_integer_value(first);
    if (json_array_size(list) == 2 && n >= 1 && n <= max && json_equal(first, json_array_get(list, 1)))
        return (uint32_t)n;
    json_read_fail(r, -ENOTSUP, "%s is not two equal numbers in 1..%u", key, max);
    return 1;
}

/* Positions of a table belong to the patches of a square image. Pixels beyond its last patch are not read. */
static void read_square(struct json_read *r, struct vision_config *v)
{
    uint32_t edge = read_both(r, "image_size", VISION_EDGE_MAX);
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
    const char *key = either(r, "hidden_act", "hidden_activation");
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
    const char *high = either(r, "pos_emb_height", "init_pos_emb_height"),
               *wide = either(r, "pos_emb_width", "init_pos_emb_width");
    v->shape.patch = read_both(r, "patch_size", VISION_PATCH_MAX);
    v->shape.merge = read_both(r, "merge_kernel_size", VISION_MERGE_MAX);
    v->grid = json_read_u32_or(r, high, 1, VISION_GRID_MAX, 64);
    expect(r, wide, v->grid);
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
    v->shape.patch = read_both(r, "patch_size", VISION_PATCH_MAX);
    v->shape.merge = merge_of(r, top, v->family);
    expect_only(r, v->family->only);
    expect_only(top, v->family->only_beside);
    if (v->family->pools)
        read_pool(r, top, v);
}

static void read_blocks(struct json_read *r, struct vision_config *v)
{
    const char *depth = either(r, either(r, "depth", "num_hidden_layers"), "vt_num_hidden_layers"),
               *heads = either(r, either(r, "num_heads", "num_attention_heads"), "vt_num_attention_heads"),
               *wide = either(r, "intermediate_size", "vt_intermediate_size");
    v->depth = json_read_u32(r, depth, 1, VISION_DEPTH_MAX);
    v->hidden = json_read_u32(r, either(r, "hidden_size", "vt_hidden_size"), 8, VISION_HIDDEN_MAX);
    v->heads = json_read_u32(r, heads, 1, CONFIG_HEADS_MAX);
    v->intermediate = json_read_u32(r, wide, 1, CONFIG_INTERMEDIATE_MAX);
    v->head_dim = v->hidden / v->heads;
    expect(r, "num_key_value_heads", v->heads);
    if (v->family->budget)
        expect(r, "head_dim", v->head_dim);
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
    expect(r, "output_proj_dims", v->hidden);
    expect(r, "model_patch_size", v->shape.patch);
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
    expect(r, json_read_has(r, "in_chans") ? "in_chans" : either(r, "in_channels", "num_channels"),
           VISION_CHANNELS);
    expect(r, "temporal_patch_size", v->frames);
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
    const char *key = either(r, "vision_feature_layer", "select_layer");
    const json_t *layer = json_read_get(r, key);
    const char *act = json_read_string_or(r, "projector_hidden_act", "gelu");
    if (layer && json_integer_value(layer) != -1)
        json_read_fail(r, -ENOTSUP, "%s is not -1, which is not supported", key);
    if (strcmp(act, "gelu") != 0)
        json_read_fail(r, -ENOTSUP, "projector_hidden_act '%.40s' is not supported; gelu is", act);
}

static void read_tokens(struct json_read *r, const struct config *text, struct model_vision *s)
{
    const char *key =
        either(r, either(r, "image_token_id", "image_token_index"), "media_placeholder_token_id");
    s->image_token = json_read_u32(r, key, 0, text->vocab - 1);
    const bool older = text->vision_family->sections_apart;
    if (s->linear) {
        expect_projector(r);
        return;
    }
    s->video_token = json_read_u32(r, "video_token_id", 0, text->vocab - 1);
    s->start_token =
        json_read_u32(r, either(r, "vision_start_token_id", "image_start_token_id"), 0, text->vocab - 1);
    s->end_token =
        json_read_u32(r, either(r, "vision_end_token_id", "image_end_token_id"), 0, text->vocab - 1);
    if (!text->ropes[0].interleaved != older || text->ropes[0].sections[0] == 0)
        json_read_fail(r, -ENOTSUP, "images need mrope_interleaved %s and an mrope_section",
                       older ? "false" : "true");
}

/* size.shortest_edge and longest_edge are areas, in spite of their names; min_pixels and max_pixels go
 * before them. */
static void read_bounds(struct json_read *r, uint64_t *min, uint64_t *max)
{
    const json_t *size = json_read_get(r, "size");
    struct json_read s = {.object = json_is_object(size) ? size : NULL, .where = r->where, .e = r->e};
    uint32_t low = json_read_u32_or(&s, "shortest_edge", 1, VISION_PIXELS_MAX, (uint32_t)*min);
    uint32_t high = json_read_u32_or(&s, "longest_edge", 1, VISION_PIXELS_MAX, (uint32_t)*max);
    if (s.error && !r->error)
        r->error = s.error;
    low = json_read_u32_or(r, "min_pixels", 1, VISION_PIXELS_MAX, low);
    high = json_read_u32_or(r, "max_pixels", 1, VISION_PIXELS_MAX, high);
    if (low > high)
        json_read_fail(r, -EINVAL, "images of %u pixels at least and %u at most", low, high);
    *min = low;
    *max = high;
}

/* Absent: what `ret` has. */
static void read_triple(struct json_read *r, const char *key, double min, float ret[VISION_CHANNELS])
{
    const json_t *list = json_read_get(r, key);
    for (uint32_t i = 0; list && i < VISION_CHANNELS; i++) {
        const json_t *n = json_array_get(list, i);
        double value = json_is_number(n) ? json_number_value(n) : NAN;
        if (json_array_size(list) != VISION_CHANNELS || !(value >= min && value <= 1e3))
            json_read_fail(r, -EINVAL, "%s must be %d numbers in %g..1000", key, VISION_CHANNELS, min);
        else
            ret[i] = (float)value;
    }
}

/* Steps that a preprocessor may leave out, and the filter: 3 is bicubic. */
static void expect_steps(struct json_read *r, uint32_t filter, bool normalizes)
{
    static const char *const steps[] = {"do_resize", "do_rescale", "do_normalize"};
    for (size_t i = 0; i < COUNT_OF(steps) - !normalizes; i++) {
        if (!json_read_bool_or(r, steps[i], true))
            json_read_fail(r, -ENOTSUP, "%s is false, which is not supported", steps[i]);
    }
    expect(r, "resample", filter);
}

/* Reads how bytes of pixels become numbers. */
static void read_numbers(struct json_read *r, float mean[VISION_CHANNELS], float std[VISION_CHANNELS])
{
    double factor = json_read_f64_or(r, "rescale_factor", 0, 1, 1.0 / 255);
    read_triple(r, "image_mean", -1e3, mean);
    read_triple(r, "image_std", 1e-3, std);
    if (fabs(factor * 255 - 1) > 1e-6)
        json_read_fail(r, -ENOTSUP, "rescale_factor is %g; supported is 1/255", factor);
}

/* Reads the steps that images and videos share. */
static void read_pixels(struct json_read *r, const struct model_vision *s, uint32_t frames,
                        float mean[VISION_CHANNELS], float std[VISION_CHANNELS])
{
    expect(r, "patch_size", s->patch);
    expect(r, "merge_size", s->merge);
    expect(r, "temporal_patch_size", frames);
    expect_steps(r, 3, true);
    read_numbers(r, mean, std);
}

/* The edge where the preprocessor's file has none. */
static uint32_t image_size(const json_t *config)
{
    const json_t *size = json_object_get(json_object_get(config, "vision_config"), "image_size");
    json_int_t n = json_integer_value(json_is_array(size) ? json_array_get(size, 0) : size);
    return n > 0 && n <= VISION_EDGE_MAX ? (uint32_t)n : 1024;
}

/* The size of an image that does not keep its area: size.longest_edge, or height and width. */
static void read_edge(struct json_read *r, struct model_vision *s)
{
    const json_t *size = json_read_get(r, "size");
    struct json_read p = {.object = json_is_object(size) ? size : NULL, .where = r->where, .e = r->e};
    const char *key = s->size == IMAGE_FIXED ? "height" : "longest_edge";
    s->edge_max = json_read_u32_or(&p, key, 1, VISION_EDGE_MAX, s->edge_max);
    if (s->size == IMAGE_FIXED)
        expect(&p, "width", s->edge_max);
    if (p.error && !r->error)
        r->error = p.error;
}

/* A preprocessor that leaves pixels as numbers of 0 to 1, and the budget. */
static void read_budget(struct json_read *r, uint32_t tokens_asked, struct vision_config *v)
{
    static const uint32_t known[] = {70, 140, 280, 560, 1120};
    float mean[VISION_CHANNELS] = {0}, std[VISION_CHANNELS] = {1, 1, 1};
    const uint32_t edge = v->shape.patch * v->shape.merge;
    const uint32_t own = json_read_u32_or(r, "max_soft_tokens", 1, 1u << 20, 280);
    const uint32_t tokens = tokens_asked ? tokens_asked : own;
    bool found = false;
    for (size_t i = 0; i < COUNT_OF(known); i++)
        found |= tokens == known[i];
    if (!found)
        json_read_fail(r, -ENOTSUP, "%s is %u; this model's images have 70, 140, 280, 560 or 1120 tokens",
                       tokens_asked ? "--image-tokens" : "max_soft_tokens", tokens);
    expect(r, "patch_size", edge / v->pooling);
    expect(r, "pooling_kernel_size", v->pooling);
    expect_steps(r, 3, false);
    read_numbers(r, mean, std);
    for (uint32_t i = 0; i < VISION_CHANNELS; i++)
        if (json_read_bool_or(r, "do_normalize", false) && (mean[i] != 0 || std[i] != 1))
            json_read_fail(r, -ENOTSUP, "image_mean and image_std are not 0 and 1, which is not supported");
    v->shape.pixels_min = (uint64_t)edge * edge;
    v->shape.pixels_max = (uint64_t)tokens * edge * edge;
    if ((uint64_t)tokens * v->shape.merge > v->grid)
        json_read_fail(r, -ENOTSUP, "a row of %u tokens has no positions: the table has %u of an axis",
                       tokens, v->grid);
}

/* Reads the bounds of an object `key` that has one number. */
static uint32_t read_inner(struct json_read *r, const char *key, const char *inner, uint32_t absent)
{
    const json_t *object = json_read_get(r, key);
    struct json_read p = {.object = json_is_object(object) ? object : NULL, .where = r->where, .e = r->e};
    const uint32_t n = json_read_u32_or(&p, inner, 1, VISION_EDGE_MAX, absent);
    if (p.error && !r->error)
        r->error = p.error;
    return n;
}

/* Reads how many tiles an image may have. */
static void read_counts(struct json_read *r, struct vision_config *v)
{
    const struct vision_tiles *t = v->family->tiles;
    struct model_tiles *to = &v->shape.tiles;
    to->count_min = json_read_u32_or(r, t->min.key, 1, VISION_TILES_MAX, t->min.absent);
    to->count_max = json_read_u32_or(r, t->max.key, to->count_min, VISION_TILES_MAX, t->max.absent);
}

/* Reads how an image is split; a tile has as many patches as the table of positions. */
static void read_tiles(struct json_read *r, struct vision_config *v)
{
    const struct vision_tiles *t = v->family->tiles;
    struct model_tiles *to = &v->shape.tiles;
    if (t->longest > 0) {
        v->shape.edge_max = read_inner(r, "max_image_size", "longest_edge", v->shape.edge_max);
        to->longest = read_inner(r, "size", "longest_edge", t->longest);
        to->count_max = json_read_bool_or(r, "do_image_splitting", true) ? 0 : 1;
    } else {
        read_edge(r, &v->shape);
        if (!t->beside)
            read_counts(r, v);
    }
    to->edge = v->shape.edge_max;
    if (to->edge / v->shape.patch != v->grid)
        json_read_fail(r, -ENOTSUP, "a tile has %u pixels, which are not the %u patches of vision_config",
                       to->edge, v->grid);
    const uint32_t edges = DIV_UP(to->longest, to->edge);
    if (edges * edges > VISION_TILES_MAX)
        json_read_fail(r, -ENOTSUP, "%u tiles of %u pixels; supported are %u", edges * edges, to->edge,
                       VISION_TILES_MAX);
}

/* Reads the bounds of an image's tokens, beyond which it is split. */
static void read_token_tiles(struct json_read *r, struct vision_config *v)
{
    const struct vision_tiles *t = v->family->tiles;
    struct model_tiles *to = &v->shape.tiles;
    const uint64_t token = (uint64_t)v->shape.patch * v->shape.patch * v->shape.merge * v->shape.merge;
    const uint32_t least = json_read_u32_or(r, "min_image_tokens", 1, VISION_GRID_MAX, 64);
    const uint32_t most = json_read_u32_or(r, "max_image_tokens", least, VISION_GRID_MAX, 256);
    expect_steps(r, v->shape.filter, true);
    read_numbers(r, v->mean, v->std);
    expect(r, "encoder_patch_size", v->shape.patch);
    expect(r, "downsample_factor", v->shape.merge);
    to->edge = json_read_u32_or(r, "tile_size", 1, VISION_EDGE_MAX, t->edge);
    read_counts(r, v);
    to->area_above = (double)most * (double)token * json_read_f64_or(r, "max_pixels_tolerance", 0, 1e6, 2);
    if (!json_read_bool_or(r, "do_image_splitting", true))
        to->count_min = to->count_max = 1;
    if (!json_read_bool_or(r, "use_thumbnail", true))
        json_read_fail(r, -ENOTSUP, "use_thumbnail is false, which is not supported");
    if (to->edge % (v->shape.patch * v->shape.merge) != 0 || (uint64_t)to->edge * to->edge > most * token)
        json_read_fail(r, -ENOTSUP, "tile_size is %u, which is not whole tokens, %u at most", to->edge, most);
    v->shape.pixels_min = least * token;
    v->shape.pixels_max = most * token;
}

/* Reads the bounds of an image that is completed with black; some files have them in an object. */
static void read_padded(struct json_read *r, struct vision_config *v)
{
    const json_t *inner = json_read_get(r, "media_proc_cfg");
    struct json_read p = {.object = json_is_object(inner) ? inner : r->object, .where = r->where, .e = r->e};
    const char *most = either(&p, either(&p, "max_patches", "in_token_limit"), "in_patch_limit"),
               *merge = either(&p, "merge_size", "merge_kernel_size");
    const uint32_t side_max = VISION_EDGE_MAX / v->shape.patch,
                   side = json_read_u32_or(&p, "patch_limit_on_one_side", 1, side_max, 512);
    v->shape.patches_max = json_read_u32_or(&p, most, 1, 1u << 20, v->family->patches_max);
    v->shape.edge_max = MIN_OF(read_inner(&p, "size", "max_height", side), side_max) * v->shape.patch;
    expect(&p, "patch_size", v->shape.patch);
    if (json_read_has(&p, merge) && read_both(&p, merge, VISION_MERGE_MAX) != v->shape.merge)
        json_read_fail(&p, -ENOTSUP, "%s is not the %u of vision_config", merge, v->shape.merge);
    if (!json_read_bool_or(&p, "pad_input", true))
        json_read_fail(&p, -ENOTSUP, "pad_input is false, which is not supported");
    expect_steps(&p, 3, true);
    read_numbers(&p, v->mean, v->std);
    const uint64_t patch = (uint64_t)v->shape.patch * v->shape.patch;
    v->shape.pixels_min = patch * v->shape.merge * v->shape.merge;
    /* Tokens at the edges may be nearly empty. */
    v->shape.pixels_max = MAX_OF(v->shape.patches_max * patch * 3 / 2, v->shape.pixels_min);
    if (p.error && !r->error)
        r->error = p.error;
}

/* Reads the steps of families other than Qwen's. */
static void read_other_image(struct json_read *r, struct vision_config *v)
{
    const uint32_t edge = v->shape.patch * v->shape.merge;
    expect_steps(r, v->shape.filter ? v->shape.filter : 3, true);
    if (json_read_bool_or(r, "do_pan_and_scan", false))
        json_read_fail(r, -ENOTSUP, "do_pan_and_scan is true, which is not supported");
    read_numbers(r, v->mean, v->std);
    if (v->family->tiles)
        read_tiles(r, v);
    else
        read_edge(r, &v->shape);
    /* Pixels of a tile beyond whole tokens are cut off. */
    if (v->shape.size == IMAGE_FIXED && !v->family->tiles && v->shape.edge_max % edge != 0)
        json_read_fail(r, -ENOTSUP, "an image has edges of %u pixels, which are not whole tokens of %u",
                       v->shape.edge_max, edge);
    v->shape.pixels_min = (uint64_t)edge * edge;
    v->shape.pixels_max =
        (uint64_t)ROUND_UP(v->shape.edge_max, edge) * (uint64_t)ROUND_UP(v->shape.edge_max, edge);
}

static void read_image(struct json_read *r, uint32_t tokens_asked, struct vision_config *v)
{
    memcpy(v->mean, v->family->mean, sizeof(v->mean));
    memcpy(v->std, v->family->std, sizeof(v->std));
    if (v->family->budget) {
        read_budget(r, tokens_asked, v);
        return;
    }
    if (v->shape.size == IMAGE_PADDED)
        read_padded(r, v);
    if (tokens_asked)
        json_read_fail(r, -ENOTSUP, "--image-tokens is for models whose images have a budget of tokens");
    if (v->shape.size == IMAGE_PADDED)
        return;
    if (v->family->tiles && v->family->tiles->edge > 0) {
        read_token_tiles(r, v);
        return;
    }
    if (v->shape.size != IMAGE_BY_AREA) {
        read_other_image(r, v);
        return;
    }
    read_pixels(r, &v->shape, v->frames, v->mean, v->std);
    v->shape.pixels_min = v->family->pixels_min;
    v->shape.pixels_max = v->family->pixels_max;
    read_bounds(r, &v->shape.pixels_min, &v->shape.pixels_max);
    if (v->family->counts_frames) {
        v->shape.grows = true;
        v->shape.pixels_min = DIV_UP(v->shape.pixels_min, (uint64_t)v->frames);
        v->shape.pixels_max = MAX_OF(v->shape.pixels_max / v->frames, 1u);
    }
}

static void read_video(struct json_read *r, struct vision_config *v)
{
    struct model_vision *s = &v->shape;
    struct vision_config own = *v;
    read_pixels(r, s, v->frames, own.mean, own.std);
    if (memcmp(own.mean, v->mean, sizeof(own.mean)) != 0 || memcmp(own.std, v->std, sizeof(own.std)) != 0)
        json_read_fail(r, -ENOTSUP, "image_mean and image_std are not those of images");
    s->video_pixels_min = v->family->video_pixels_min;
    s->video_pixels_max = v->family->video_pixels_max;
    read_bounds(r, &s->video_pixels_min, &s->video_pixels_max);
    s->video_fps = json_read_f64_or(r, "fps", 1e-3, 1e3, 2);
    s->video_images = v->family->video_images;
    if (s->video_images) {
        s->video_seconds_max = json_read_f64_or(r, "max_duration", 1, 1e5, 300);
        s->video_frames_min = 1;
        s->video_frames_max = (uint32_t)fmax(fmin(s->video_seconds_max * s->video_fps, 1u << 16), 1);
        return;
    }
    s->video_frames_min = json_read_u32_or(r, "min_frames", 1, 1u << 16, 4);
    s->video_frames_max =
        json_read_u32_or(r, "max_frames", s->video_frames_min, 1u << 16, MAX_OF(s->video_frames_min, 768));
}

/* All tiles of an image together keep to the server's limit. */
static void cap_tiles(struct model_vision *s, uint64_t pixels_max)
{
    struct model_tiles *t = &s->tiles;
    const uint64_t count = MAX_OF(pixels_max / ((uint64_t)t->edge * t->edge), 1u);
    t->count_max = (uint32_t)MIN_OF(t->count_max, count);
    t->count_min = MIN_OF(t->count_min, t->count_max);
    t->longest = (uint32_t)MIN_OF(t->longest, MAX_OF(floor(sqrt((double)count)), 1) * t->edge);
}

/* An image is one token at least, and at most the server's limit. */
static void cap(struct json_read *r, struct model_vision *s, uint64_t pixels_max)
{
    uint64_t edge = s->patch * s->merge, most = pixels_max ? pixels_max : VISION_PIXELS_USUAL;
    if (s->size == IMAGE_FIXED && s->pixels_max > most)
        json_read_fail(r, -EINVAL, "each image of this model has %u x %u pixels, over --max-image-pixels",
                       s->edge_max, s->edge_max);
    if (s->tiles.edge > 0)
        cap_tiles(s, most);
    if (s->size == IMAGE_FIXED)
        return;
    /* A square of the longer edge has at most that area. */
    if (s->size == IMAGE_BY_LONGEST && s->pixels_max > most) {
        s->edge_max = (uint32_t)MAX_OF((uint64_t)sqrt((double)most) / edge * edge, edge);
        most = (uint64_t)s->edge_max * s->edge_max;
    }
    s->pixels_max = MIN_OF(s->pixels_max, most);
    s->pixels_max = MAX_OF(s->pixels_max, edge * edge);
    s->pixels_min = MIN_OF(s->pixels_min, s->pixels_max);
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
        read_counts(&r, &v);
    if (!r.error)
        read_image(&p, limits->tokens, &v);
    if (!r.error && !p.error && vision_family_reads_videos(t))
        read_video(&q, &v);
    if (!r.error)
        cap(&p, &v.shape, limits->pixels_max);
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
