/* small_vision.h - made-up vision encoders in front of the golden text model of qwen3_vl, and their features
 * for made-up images. */
#ifndef PLATEAU_TESTS_SMALL_VISION_H
#define PLATEAU_TESTS_SMALL_VISION_H

#include "model_path.h"
#include "test_rng.h"
#include "test_floats.h"
#include "small_model.h"

#include "model/vision.h"

#include <jansson.h>
#include <math.h>

#define SMALL_PATCH      16
#define SMALL_OUT        32 /* the text model's hidden */
#define SMALL_VISION_EPS 1e-6

struct small_vision {
    uint32_t hidden, heads, depth, intermediate, grid;
    uint32_t deepstack; /* this many of the first blocks have a deepstack merger */
    uint32_t merge;     /* patches of a token's edge */
};

static inline uint32_t small_merged(const struct small_vision *s)
{
    return s->hidden * s->merge * s->merge;
}

/* config.json of the golden with this vision encoder; the caller frees it. */
static inline char *small_vision_config(const struct small_vision *s)
{
    json_t *root = json_load_file(SMALL_GOLDEN("qwen3_vl/config.json"), 0, NULL);
    assert_non_null(root);
    json_t *deep = json_array();
    for (uint32_t i = 0; i < s->deepstack; i++)
        json_array_append_new(deep, json_integer(i));
    json_t *vision =
        json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:o}", "depth", s->depth, "hidden_size", s->hidden,
                  "num_heads", s->heads, "intermediate_size", s->intermediate, "num_position_embeddings",
                  s->grid * s->grid, "out_hidden_size", SMALL_OUT, "patch_size", SMALL_PATCH,
                  "spatial_merge_size", s->merge, "deepstack_visual_indexes", deep);
    json_object_set_new(root, "vision_config", vision);
    char *text = json_dumps(root, 0);
    json_decref(root);
    return text;
}

/* F32 values in [-size, size] that bf16 holds exactly. */
static inline void small_add_random(struct test_tensors *l, struct rng *rng, float size, const char *name,
                                    uint32_t rank, const uint64_t *shape)
{
    float *w = test_tensor_add(l, name, DTYPE_F32, rank, shape);
    for (uint64_t i = 0; i < tensor_count(&l->list[l->count - 1].t); i++)
        w[i] = bf16_to_f32(f32_to_bf16(size * ((float)rng_uniform(rng) * 2 - 1)));
}

static inline void small_add_linear(struct test_tensors *l, struct rng *rng, const char *head,
                                    const char *name, uint64_t out, uint64_t in)
{
    char path[192];
    float size = 1.7f / sqrtf((float)in);
    snprintf(path, sizeof(path), "model.visual.%s%s.weight", head, name);
    small_add_random(l, rng, size, path, 2, (const uint64_t[]){out, in});
    snprintf(path, sizeof(path), "model.visual.%s%s.bias", head, name);
    small_add_random(l, rng, 0.3f, path, 1, &out);
}

static inline void small_add_norm(struct test_tensors *l, struct rng *rng, const char *head, const char *name,
                                  uint64_t n)
{
    char path[192];
    snprintf(path, sizeof(path), "model.visual.%s%s.weight", head, name);
    small_add_random(l, rng, 1.5f, path, 1, &n);
    snprintf(path, sizeof(path), "model.visual.%s%s.bias", head, name);
    small_add_random(l, rng, 0.3f, path, 1, &n);
}

static inline void small_add_merger(struct test_tensors *l, struct rng *rng, const struct small_vision *s,
                                    const char *head, uint64_t normed)
{
    uint64_t merged = small_merged(s);
    small_add_norm(l, rng, head, "norm", normed);
    small_add_linear(l, rng, head, "linear_fc1", merged, merged);
    small_add_linear(l, rng, head, "linear_fc2", SMALL_OUT, merged);
}

/* The golden's text model and a random vision encoder, in Hugging Face's names and layouts. */
static inline struct test_tensors *small_vision_tensors(const struct small_vision *s, uint64_t seed)
{
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_vl"));
    struct rng rng = {seed, 0};
    char head[64];
    for (size_t i = l->count; i-- > 0;) {
        if (strncmp(l->list[i].name, "model.visual.", 13) == 0)
            test_tensor_remove(l, l->list[i].name);
    }
    small_add_random(l, &rng, 0.1f, "model.visual.patch_embed.proj.weight", 5,
                     (const uint64_t[]){s->hidden, 3, 2, SMALL_PATCH, SMALL_PATCH});
    small_add_random(l, &rng, 0.3f, "model.visual.patch_embed.proj.bias", 1, (const uint64_t[]){s->hidden});
    small_add_random(l, &rng, 1, "model.visual.pos_embed.weight", 2,
                     (const uint64_t[]){(uint64_t)s->grid * s->grid, s->hidden});
    for (uint32_t i = 0; i < s->depth; i++) {
        snprintf(head, sizeof(head), "blocks.%u.", i);
        small_add_norm(l, &rng, head, "norm1", s->hidden);
        small_add_norm(l, &rng, head, "norm2", s->hidden);
        small_add_linear(l, &rng, head, "attn.qkv", 3 * (uint64_t)s->hidden, s->hidden);
        small_add_linear(l, &rng, head, "attn.proj", s->hidden, s->hidden);
        small_add_linear(l, &rng, head, "mlp.linear_fc1", s->intermediate, s->hidden);
        small_add_linear(l, &rng, head, "mlp.linear_fc2", s->hidden, s->intermediate);
    }
    small_add_merger(l, &rng, s, "merger.", s->hidden);
    for (uint32_t i = 0; i < s->deepstack; i++) {
        snprintf(head, sizeof(head), "deepstack_merger_list.%u.", i);
        small_add_merger(l, &rng, s, head, small_merged(s));
    }
    return l;
}

/* ---- images ---- */

/* Two frames that differ. */
struct small_image {
    struct model_image in;
    uint8_t *pixels;
    struct room room; /* where the result comes */
    float *features;  /* the result, copied by small_features() */
    size_t floats;
};

static inline struct small_image small_image_make(const struct model *m, uint32_t width, uint32_t height)
{
    const struct model_shape *s = model_shape(m);
    struct rng rng = {width * 1000 + height, 0};
    size_t frame = (size_t)width * height * 3;
    uint32_t edge = s->vision.patch * s->vision.merge;
    struct small_image p = {.pixels = malloc(2 * frame)};
    assert_non_null(p.pixels);
    for (size_t i = 0; i < 2 * frame; i++)
        p.pixels[i] = (uint8_t)rng_below(&rng, 256);
    p.floats = (size_t)(width / edge) * (height / edge) * s->vision.feature_floats;
    p.features = malloc(p.floats * sizeof(float));
    assert_non_null(p.features);
    p.room = small_room(m, p.floats * sizeof(float));
    p.in = (struct model_image){{p.pixels, p.pixels + frame}, width, height, p.room.at};
    return p;
}

static inline void small_image_free(struct small_image *p)
{
    free(p->pixels);
    free(p->features);
    room_free(&p->room);
}

static inline struct model *small_vision_load(const char *dir, struct model_opts *o)
{
    struct model *m = NULL;
    struct err e = {{0}};
    o->parts.vision = true;
    int r = model_load_at(dir, o, &m, &e);
    if (r < 0)
        print_message("%s: %s\n", dir, e.text);
    assert_int_equal(r, 0);
    assert_true(model_shape(m)->vision.present);
    return m;
}

/* Begins the image until its memory is complete, piece by piece; returns the last result. */
static inline int small_begin(struct model *m, const struct small_image *p)
{
    int r;
    while ((r = vision_encoder_begin(model_vision_encoder(m), &p->in)) > 0)
        ;
    return r;
}

/* Copies what has come. */
static inline void small_features(struct small_image *p)
{
    assert_int_equal(domain_get(p->room.domain, p->features, p->room.at, p->floats * sizeof(float)), 0);
}

/* Forgets earlier features. */
static inline void small_forget(struct small_image *p)
{
    memset(p->features, 0xff, p->floats * sizeof(float));
    domain_put(p->room.domain, p->room.at, p->features, p->floats * sizeof(float));
}

/* Computes the image's features, alone and in one go. */
static inline void small_encode(struct model *m, const struct model_opts *o, struct small_image *p)
{
    device_turn_begin(o->device);
    assert_int_equal(small_begin(m, p), 0);
    assert_true(vision_encoder_run(model_vision_encoder(m), UINT64_MAX));
    device_turn_end(o->device);
    small_features(p);
}

#endif
