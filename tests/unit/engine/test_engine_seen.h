/* test_engine_seen.h - images made of noise, prompts with them, and engines that encode them. */
#ifndef PLATEAU_TESTS_TEST_ENGINE_SEEN_H
#define PLATEAU_TESTS_TEST_ENGINE_SEEN_H

#include "test_engine_scene.h"

#include "cache/page_pool.h"
#include "vision/image.h"

#define EYES        TINY("qwen3_5_vl")
#define IMAGE_TOKEN 500
#define EDGE        32

/* Noise: two of the same seed and size are the same image. */
static inline struct image *image_of_frames(uint32_t rows, uint32_t columns, uint32_t frames, uint64_t seed)
{
    struct image *p;
    assert_int_equal(image_create(columns * EDGE, rows * EDGE, frames, NULL, &p), 0);
    size_t bytes = frames * image_frame_bytes(p->width, p->height);
    for (size_t i = 0; i < bytes; i++)
        p->pixels[i] = (uint8_t)(rng_at(seed, i / 24) >> (i % 3 * 8));
    for (size_t i = 0; i < sizeof(p->sha256); i++)
        p->sha256[i] = (uint8_t)rng_at(seed, i);
    return p;
}

static inline struct image *image_of(uint32_t rows, uint32_t columns, uint64_t seed)
{
    return image_of_frames(rows, columns, 1, seed);
}

#define SEEN_MAX        16
#define SEEN_PROMPT_MAX 2000

/* A prompt that grows by text and images. */
struct seen {
    uint32_t tokens[SEEN_PROMPT_MAX], count;
    struct job_image images[SEEN_MAX];
    uint32_t image_count;
};

static inline void say(struct seen *s, uint32_t count, uint64_t seed)
{
    assert_true(s->count + count <= SEEN_PROMPT_MAX);
    for (uint32_t i = 0; i < count; i++)
        s->tokens[s->count++] = (uint32_t)(rng_at(seed, i) % 490);
}

/* The image is the prompt's from here on. */
static inline void show(struct seen *s, struct image *p)
{
    uint32_t count = p->width / EDGE * (p->height / EDGE);
    assert_true(s->image_count < SEEN_MAX && s->count + count <= SEEN_PROMPT_MAX);
    s->images[s->image_count++] = (struct job_image){p, s->count};
    for (uint32_t i = 0; i < count; i++)
        s->tokens[s->count++] = IMAGE_TOKEN;
}

static inline void seen_done(struct seen *s)
{
    for (uint32_t i = 0; i < s->image_count; i++) {
        assert_int_equal(atomic_load(&s->images[i].image->holders), 1);
        image_unref(s->images[i].image);
    }
    *s = (struct seen){0};
}

static inline struct job_spec ask(const struct seen *s, uint32_t max_tokens)
{
    struct job_spec spec = greedy(s->tokens, s->count, max_tokens);
    spec.images = s->images;
    spec.image_count = s->image_count;
    return spec;
}

/* Text, an image, text. */
static inline struct seen one_image(uint32_t before, uint32_t rows, uint32_t columns, uint64_t look)
{
    struct seen s = {.count = 0};
    say(&s, before, 1);
    show(&s, image_of(rows, columns, look));
    say(&s, 9, 2);
    return s;
}

static inline struct engine_opts eyes(bool reuse)
{
    struct engine_opts o = test_engine_opts(EYES);
    const struct model_shape *shape = model_shape(o.model);
    o.prefix_cache_bytes = reuse ? 12 * shape->state_bytes + 200 * shape->page_bytes : 0;
    o.image_cache_bytes = (uint64_t)1 << 20;
    return o;
}

static inline struct client *run_spec(struct fixture *f, const struct job_spec *spec)
{
    struct client *c = submit(f, spec);
    wait_over(f, c);
    return c;
}

static inline struct client *run_seen(struct fixture *f, const struct seen *s, uint32_t max_tokens)
{
    struct job_spec spec = ask(s, max_tokens);
    return run_spec(f, &spec);
}

/* Output for the prompt in an engine of its own without caches. No other engine may encode an image during
 * that: they share the model. */
static inline void alone(const struct seen *s, uint32_t max_tokens, struct client *ret)
{
    struct fixture f;
    struct engine_opts o = eyes(false);
    o.image_cache_bytes = 0;
    test_engine_start(&f, EYES, &o);
    *ret = *run_seen(&f, s, max_tokens);
    assert_int_equal(ret->finish.reason, FINISH_LENGTH);
    test_engine_close(&f);
}

#endif
