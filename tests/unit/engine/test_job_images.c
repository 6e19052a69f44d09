/* A job's images: which are accepted, references to them, and their effect on the keys of its pages. */
#include "test_ledger.h"

#include "base/check.h"
#include "engine/job.h"
#include "engine/job_images.h"
#include "store/store_file.h"
#include "vision/image.h"

#include <errno.h>

#define EDGE  32
#define IMAGE 500
#define VIDEO 501
#define COUNT 200

static struct model_shape shape(void)
{
    struct model_shape s = {.vocab = 512};
    s.vision = (struct model_vision){.present = true,
                                     .patch = EDGE / 2,
                                     .merge = 2,
                                     .feature_floats = 8,
                                     .pixels_min = EDGE * EDGE,
                                     .pixels_max = 16 * EDGE * EDGE,
                                     .image_token = IMAGE,
                                     .video_token = VIDEO};
    return s;
}

static struct image *image(uint32_t rows, uint32_t columns, uint8_t look)
{
    struct image *p;
    assert_int_equal(image_create(columns * EDGE, rows * EDGE, 1, NULL, &p), 0);
    memset(p->sha256, 0, sizeof(p->sha256));
    p->sha256[31] = look;
    return p;
}

/* A prompt with two images of 2 x 3 and 1 x 4 tokens. */
struct scene {
    uint32_t prompt[COUNT];
    struct job_image images[2];
    struct job_spec spec;
    struct model_shape shape;
};

static void place(struct scene *c, uint32_t i, uint32_t first)
{
    const struct image *p = c->images[i].image;
    c->images[i].first = first;
    for (uint32_t k = 0; k < p->width / EDGE * (p->height / EDGE); k++)
        c->prompt[first + k] = k % 2 ? IMAGE : VIDEO;
}

static void open_scene(struct scene *c)
{
    *c = (struct scene){.shape = shape()};
    for (uint32_t i = 0; i < COUNT; i++)
        c->prompt[i] = i % 400;
    c->images[0].image = image(2, 3, 1);
    c->images[1].image = image(1, 4, 2);
    place(c, 0, 10);
    place(c, 1, 62);
    c->spec = (struct job_spec){
        .prompt = c->prompt, .prompt_count = COUNT, .max_tokens = 8, .images = c->images, .image_count = 2};
    sampler_params_default(&c->spec.sampling);
}

static void close_scene(struct scene *c)
{
    for (size_t i = 0; i < COUNT_OF(c->images); i++) {
        assert_int_equal(atomic_load(&c->images[i].image->holders), 1);
        image_unref(c->images[i].image);
    }
}

/* ---- which are taken ---- */

static void refused(const struct scene *c, const char *says)
{
    struct err e = {""};
    assert_int_equal(job_images_check(&c->shape, &c->spec, &e), -EINVAL);
    if (!strstr(e.text, says))
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
}

TEST(images_that_stand_where_the_prompt_has_placeholders_are_taken)
{
    struct scene c;
    open_scene(&c);
    assert_int_equal(job_images_check(&c.shape, &c.spec, NULL), 0);
    /* One may begin where the other ends, and end where the prompt does. */
    place(&c, 1, 16);
    assert_int_equal(job_images_check(&c.shape, &c.spec, NULL), 0);
    place(&c, 1, COUNT - 4);
    assert_int_equal(job_images_check(&c.shape, &c.spec, NULL), 0);
    c.spec.image_count = 0;
    c.shape.vision.present = false;
    assert_int_equal(job_images_check(&c.shape, &c.spec, NULL), 0);
    close_scene(&c);
}

TEST(a_model_that_sees_nothing_says_so)
{
    struct scene c;
    open_scene(&c);
    c.shape.vision.present = false;
    refused(&c, "takes no images");
    close_scene(&c);
}

TEST(images_of_another_size_are_refused)
{
    struct scene c;
    open_scene(&c);
    c.images[1].image->width += 16;
    refused(&c, "image 1 is 144 x 32 pixels: this model takes whole squares of 32 x 32");
    c.images[1].image->width = 17 * EDGE;
    refused(&c, "at most 16384 together");
    c.spec.image_count = ENGINE_IMAGES_MAX + 1;
    refused(&c, "the limit is 512");
    close_scene(&c);
}

TEST(images_at_another_place_are_refused)
{
    struct scene c;
    open_scene(&c);
    c.images[0].first = 0;
    refused(&c, "at least one must stand before it");
    c.images[0].first = 9;
    refused(&c, "token 9 of the prompt is 9, but image 0 stands there");
    c.images[0].first = 11;
    refused(&c, "token 16 of the prompt");
    place(&c, 0, 10);
    c.images[1].first = 15;
    refused(&c, "image 1 begins at token 15, but the one before it ends at 16");
    c.images[1].first = COUNT - 3;
    refused(&c, "of a prompt of 200");
    c.images[1].first = UINT32_MAX;
    refused(&c, "of a prompt of 200");
    close_scene(&c);
}

/* ---- the job ---- */

struct keys {
    struct prefix_key of[COUNT / PAGE_TOKENS];
};

static struct keys keys_of(const struct scene *c)
{
    static const struct store_identity identity = {{1}};
    struct keys keys;
    struct job *j = NULL;
    struct charge charge = account_charge(test_account(ACCOUNT_NO_LIMIT));
    const struct model_shape model = shape();
    struct job_opts opts = {.spec = &c->spec,
                            .charge = &charge,
                            .tables = {true, false, 1},
                            .vision = &model.vision,
                            .identity = &identity};
    assert_int_equal(job_create(&opts, &j), 0);
    assert_int_equal(j->seq.key_count, COUNT_OF(keys.of));
    assert_int_equal(j->image_count, c->spec.image_count);
    assert_true(j->bytes <= job_bytes(&c->spec, &(struct job_tables){true, false, 1}));
    memcpy(&keys, j->keys, sizeof(keys));
    for (uint32_t i = 0; i < j->image_count; i++)
        assert_int_equal(atomic_load(&c->images[i].image->holders), 2);
    job_free(j);
    return keys;
}

/* How many pages of the common prefix have the same keys. */
static uint32_t alike(const struct keys *a, const struct keys *b)
{
    uint32_t i = 0;
    while (i < COUNT_OF(a->of) && prefix_key_eq(&a->of[i], &b->of[i]))
        i++;
    for (uint32_t k = i; k < COUNT_OF(a->of); k++)
        assert_false(prefix_key_eq(&a->of[k], &b->of[k]));
    return i;
}

TEST(a_job_holds_its_images_until_it_ends_and_its_grids_are_theirs)
{
    struct scene c;
    struct job *j = NULL;
    struct charge charge = account_charge(test_account(ACCOUNT_NO_LIMIT));
    open_scene(&c);
    const struct model_shape model = shape();
    struct job_opts opts = {.spec = &c.spec, .charge = &charge, .vision = &model.vision};
    assert_int_equal(job_create(&opts, &j), 0);
    assert_int_equal(j->image_bytes, c.images[0].image->bytes + c.images[1].image->bytes);
    assert_int_equal(j->grids[0].first, 10);
    assert_int_equal(j->grids[0].rows, 2);
    assert_int_equal(j->grids[0].columns, 3);
    assert_int_equal(j->grids[1].first, 62);
    assert_int_equal(j->grids[1].rows, 1);
    assert_int_equal(j->grids[1].columns, 4);
    assert_true(dev_is_null(j->grids[1].features));
    assert_int_equal(atomic_load(&c.images[0].image->holders), 2);
    job_free(j);
    close_scene(&c);
}

TEST(keys_differ_from_the_first_page_on_that_another_image_stands_in)
{
    struct scene c;
    open_scene(&c);
    struct keys was = keys_of(&c), is = keys_of(&c);
    assert_int_equal(alike(&was, &is), COUNT_OF(was.of));
    /* The second one has its tokens in the pages 1 and 2. */
    c.images[1].image->sha256[0] = 1;
    is = keys_of(&c);
    assert_int_equal(alike(&was, &is), 1);
    c.images[1].image->sha256[0] = 0;
    c.images[0].image->sha256[30] = 7;
    is = keys_of(&c);
    assert_int_equal(alike(&was, &is), 0);
    close_scene(&c);
}

TEST(keys_differ_when_images_change_places)
{
    struct scene c;
    open_scene(&c);
    c.images[1].image->width = 3 * EDGE;
    c.images[1].image->height = 2 * EDGE;
    place(&c, 1, 62);
    struct keys was = keys_of(&c);
    struct image *other = c.images[0].image;
    c.images[0].image = c.images[1].image;
    c.images[1].image = other;
    struct keys is = keys_of(&c);
    assert_int_equal(alike(&was, &is), 0);
    close_scene(&c);
}

TEST(keys_differ_when_a_image_begins_one_token_earlier_among_the_same_tokens)
{
    struct scene c;
    open_scene(&c);
    for (uint32_t i = 40; i < 60; i++)
        c.prompt[i] = IMAGE;
    c.images[1].first = 44;
    struct keys was = keys_of(&c);
    c.images[1].first = 43;
    struct keys is = keys_of(&c);
    assert_int_equal(alike(&was, &is), 1);
    /* Without images these are tokens like any other. */
    c.spec.image_count = 0;
    is = keys_of(&c);
    assert_int_equal(alike(&was, &is), 0);
    close_scene(&c);
}

TEST_MAIN()
