/* Images in prompts: the same tokens alone, in company, in chunks, from caches and after preemption; each
 * encoded once. */
#define TEST_SEEDS 3
#include "test_rng.h"
#include "test_engine_seen.h"
#include "vision/image.h"

#define ANSWER_SEEN 12

/* ---- images ---- */

static struct image *golden_image(const json_t *image)
{
    const json_t *shape = json_object_get(image, "image_shape");
    struct image *p;
    char path[512];
    uint32_t height = (uint32_t)json_integer_value(json_array_get(shape, 0));
    uint32_t width = (uint32_t)json_integer_value(json_array_get(shape, 1));
    assert_int_equal(image_create(width, height, 1, NULL, &p), 0);
    snprintf(path, sizeof(path), TINY("qwen3_5_vl") "/%s",
             json_string_value(json_object_get(image, "image_hwc")));
    FILE *in = fopen(path, "rbe");
    assert_non_null(in);
    assert_int_equal(fread(p->pixels, 1, image_frame_bytes(width, height), in),
                     image_frame_bytes(width, height));
    fclose(in);
    memset(p->sha256, 5, sizeof(p->sha256));
    return p;
}

TEST(golden_answers_about_a_image)
{
    struct fixture f;
    struct seen s = {.count = 0};
    uint32_t want[64];
    json_t *g = golden_load("qwen3_5_vl"), *image = json_object_get(g, "image");
    s.count = golden_ids(json_object_get(image, "prompt"), s.tokens, SEEN_PROMPT_MAX);
    uint32_t count = golden_ids(json_object_get(image, "greedy"), want, 64), first = 0;
    while (s.tokens[first] != IMAGE_TOKEN)
        first++;
    s.images[s.image_count++] = (struct job_image){golden_image(image), first};
    struct engine_opts o = eyes(true);
    test_engine_start(&f, EYES, &o);
    for (int i = 0; i < 3; i++)
        expect_tokens(run_seen(&f, &s, count), want, count);
    assert_int_equal(numbers(&f).images_encoded, 1);
    test_engine_close(&f);
    seen_done(&s);
    json_decref(g);
}

TEST(another_image_gives_another_answer)
{
    struct seen a = one_image(20, 4, 6, 7), b = one_image(20, 4, 6, 8);
    struct client of_a, of_b;
    alone(&a, ANSWER_SEEN, &of_a);
    alone(&b, ANSWER_SEEN, &of_b);
    assert_memory_not_equal(of_a.ids, of_b.ids, ANSWER_SEEN * sizeof(uint32_t));
    seen_done(&a);
    seen_done(&b);
}

/* ---- in company, in chunks ---- */

static void fill_mixed(struct seen *s, uint32_t i)
{
    *s = (struct seen){.count = 0};
    say(s, 5 + 17 * i, 100 + i);
    for (uint32_t k = 0; k < i % 4; k++) {
        /* Some of them are the same. */
        show(s, image_of_frames(2 + k, 3 + i % 3, 1 + k % 2, 40 + i / 2 + k));
        say(s, 3 + k * 20, 200 + i + k);
    }
}

static void expect_mixed(const struct engine_opts *o)
{
    static struct seen s[8];
    static struct client want[8];
    struct fixture f;
    for (uint32_t i = 0; i < 8; i++) {
        fill_mixed(&s[i], i);
        if (want[i].count == 0)
            alone(&s[i], ANSWER_SEEN, &want[i]);
    }
    test_engine_start(&f, EYES, o);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 8; i++) {
            struct job_spec spec = ask(&s[i], ANSWER_SEEN);
            submit(&f, &spec);
        }
        wait_all(&f);
    }
    for (uint32_t i = 0; i < 16; i++)
        expect_same(f.clients[i], &want[i % 8]);
    test_engine_close(&f);
    for (uint32_t i = 0; i < 8; i++)
        seen_done(&s[i]);
}

TEST(seqs_with_and_without_images_have_the_tokens_they_have_alone)
{
    struct engine_opts o = eyes(false);
    expect_mixed(&o);
    o = eyes(true);
    expect_mixed(&o);
}

TEST(chunks_of_any_length_give_the_same)
{
    struct engine_opts o = eyes(true);
    o.step_ns = o.step_alone_ns = 20 * NS_PER_US;
    expect_mixed(&o);
}

TEST(features_that_have_no_room_to_stay_are_made_again)
{
    struct engine_opts o = eyes(true);
    o.image_cache_bytes = 0;
    expect_mixed(&o);
    o.image_cache_bytes = 8192;
    expect_mixed(&o);
}

/* The engine waits before its first step, and before the image's first slice. */
TEST(the_wait_for_a_turn_is_no_part_of_a_slice)
{
    if (test_device_is_fake()) /* whose engines do not wait */
        return;
    struct fixture f;
    struct seen s = one_image(10, 5, 7, 3);
    struct engine_opts o = eyes(true);
    struct device *d = test_device_get();
    test_engine_start(&f, EYES, &o);
    struct client *c = NULL;
    for (int i = 0; i < 2; i++) {
        device_turn_begin(d);
        struct job_spec spec = ask(&s, 1);
        c = c ? c : submit(&f, &spec);
        /* A busy machine may end the answer between two turns. */
        while (!c->over && !device_is_shared(d))
            listen_once(&f, NS_PER_MS);
        if (!c->over)
            usleep(300000);
        device_turn_end(d);
    }
    wait_over(&f, c);
    assert_true(numbers(&f).encode_slices > 0 && numbers(&f).encode_slice_max_ns < 250 * NS_PER_MS);
    test_engine_close(&f);
    seen_done(&s);
}

/* ---- found again ---- */

TEST(a_prefix_that_is_found_has_its_images_not_encoded)
{
    struct fixture f;
    struct client want;
    struct seen s = one_image(10, 5, 7, 3);
    struct engine_opts o = eyes(true);
    alone(&s, ANSWER_SEEN, &want);
    o.image_cache_bytes = 0;
    test_engine_start(&f, EYES, &o);
    expect_same(run_seen(&f, &s, ANSWER_SEEN), &want);
    assert_int_equal(numbers(&f).images_encoded, 1);
    /* It ends in the page of the prompt's last tokens: only the tokens after it are new. */
    say(&s, 60, 5);
    alone(&s, ANSWER_SEEN, &want);
    expect_same(run_seen(&f, &s, ANSWER_SEEN), &want);
    assert_int_equal(numbers(&f).images_encoded, 2);
    struct client *again = run_seen(&f, &s, ANSWER_SEEN);
    expect_same(again, &want);
    assert_int_equal(again->finish.cached_tokens, 96);
    assert_int_equal(numbers(&f).images_encoded, 2);
    test_engine_close(&f);
    seen_done(&s);
}

/* A cut may lie inside an image: the hit ends there, and the rest of the image is computed. */
TEST(what_other_threads_see_of_a_prefix_knows_its_images)
{
    struct fixture f;
    struct seen s = one_image(20, 4, 6, 7), other = one_image(20, 4, 6, 8);
    struct engine_opts o = eyes(true);
    o.shows_prefixes = true;
    say(&s, 2 * PAGE_TOKENS, 3);
    say(&other, 2 * PAGE_TOKENS, 3);
    test_engine_start(&f, EYES, &o);
    (void)run_seen(&f, &s, ANSWER_SEEN);
    struct job_spec same = ask(&s, ANSWER_SEEN), differs = ask(&other, ANSWER_SEEN);
    const uint32_t seen = engine_cached_tokens(f.engine, &same);
    assert_true(seen >= 2 * PAGE_TOKENS);
    assert_int_equal(run_seen(&f, &s, ANSWER_SEEN)->finish.cached_tokens, seen);
    assert_int_equal(engine_cached_tokens(f.engine, &differs), 0);
    test_engine_close(&f);
    seen_done(&s);
    seen_done(&other);
}

TEST(a_prefix_may_end_in_the_middle_of_a_image)
{
    struct fixture f;
    struct client want;
    struct seen s = one_image(20, 8, 8, 3);
    uint32_t cut = 64;
    struct engine_opts o = eyes(true);
    test_engine_start(&f, EYES, &o);
    struct job_spec spec = ask(&s, ANSWER_SEEN);
    spec.cuts = &cut;
    spec.cut_count = 1;
    run_spec(&f, &spec);
    struct seen other = one_image(20, 8, 8, 3);
    say(&other, 30, 77);
    other.tokens[84] = 3; /* after the image */
    alone(&other, ANSWER_SEEN, &want);
    struct client *c = run_seen(&f, &other, ANSWER_SEEN);
    expect_same(c, &want);
    assert_int_equal(c->finish.cached_tokens, 64);
    assert_int_equal(numbers(&f).images_encoded, 1);
    assert_int_equal(numbers(&f).images_found, 1);
    test_engine_close(&f);
    seen_done(&s);
    seen_done(&other);
}

TEST(images_that_begin_alike_do_not_mix)
{
    struct fixture f;
    struct client of_a, of_b;
    struct seen a = one_image(20, 6, 4, 3), b = one_image(20, 6, 4, 3);
    struct image *p = b.images[0].image;
    /* The upper half is the same. */
    for (size_t i = image_frame_bytes(p->width, p->height / 2); i < image_frame_bytes(p->width, p->height);
         i++)
        p->pixels[i] ^= 255;
    p->sha256[31] ^= 1;
    alone(&a, ANSWER_SEEN, &of_a);
    alone(&b, ANSWER_SEEN, &of_b);
    assert_memory_not_equal(of_a.ids, of_b.ids, ANSWER_SEEN * sizeof(uint32_t));
    struct engine_opts o = eyes(true);
    test_engine_start(&f, EYES, &o);
    for (int i = 0; i < 3; i++) {
        struct client *c = run_seen(&f, i % 2 ? &b : &a, ANSWER_SEEN);
        expect_same(c, i % 2 ? &of_b : &of_a);
        assert_int_equal(c->finish.cached_tokens, i < 2 ? 0 : 32);
    }
    assert_int_equal(numbers(&f).images_encoded, 2);
    test_engine_close(&f);
    seen_done(&a);
    seen_done(&b);
}

TEST(images_in_another_order_are_another_prompt)
{
    struct fixture f;
    struct client want[2];
    struct seen s[2] = {{.count = 0}, {.count = 0}};
    for (uint64_t i = 0; i < 2; i++) {
        say(&s[i], 20, 1);
        show(&s[i], image_of(3, 4, 50 + i));
        say(&s[i], 2, 2);
        show(&s[i], image_of(3, 4, 51 - i));
        say(&s[i], 50, 3);
        alone(&s[i], ANSWER_SEEN, &want[i]);
    }
    assert_memory_equal(s[0].tokens, s[1].tokens, sizeof(s[0].tokens));
    assert_memory_not_equal(want[0].ids, want[1].ids, ANSWER_SEEN * sizeof(uint32_t));
    struct engine_opts o = eyes(true);
    test_engine_start(&f, EYES, &o);
    for (int i = 0; i < 4; i++) {
        struct client *c = run_seen(&f, &s[i % 2], ANSWER_SEEN);
        expect_same(c, &want[i % 2]);
        assert_int_equal(c->finish.cached_tokens, i < 2 ? 0 : 64);
    }
    assert_int_equal(numbers(&f).images_encoded, 2);
    assert_int_equal(numbers(&f).images_found, 2);
    test_engine_close(&f);
    seen_done(&s[0]);
    seen_done(&s[1]);
}

TEST(what_was_used_longest_ago_goes_first)
{
    struct fixture f;
    struct engine_opts o = eyes(false);
    o.image_cache_bytes = 2 * 8192; /* two images of 8 x 8 tokens of 128 bytes */
    struct seen s[3];
    test_engine_start(&f, EYES, &o);
    for (uint32_t i = 0; i < 3; i++)
        s[i] = one_image(20, 8, 8, i);
    static const struct {
        uint32_t which, encoded;
    } asks[] = {{0, 1}, {1, 2}, {0, 2}, {2, 3}, {0, 3}, {1, 4}};
    for (size_t i = 0; i < COUNT_OF(asks); i++) {
        run_seen(&f, &s[asks[i].which], 2);
        assert_int_equal(numbers(&f).images_encoded, asks[i].encoded);
        assert_true(numbers(&f).images_bytes <= 2 * 8192);
    }
    test_engine_close(&f);
    for (uint32_t i = 0; i < 3; i++)
        seen_done(&s[i]);
}

/* ---- company ---- */

TEST(who_lost_its_pages_sees_again_what_it_saw)
{
    struct fixture f;
    static struct seen s[4];
    static struct client want[4];
    struct engine_opts o = eyes(true);
    const struct model_shape *shape = model_shape(o.model);
    for (uint32_t i = 0; i < 4; i++) {
        s[i] = one_image(30 + i, 5, 6, i);
        alone(&s[i], 150, &want[i]);
    }
    o.max_model_len = 8 * PAGE_TOKENS;
    o.kv_bytes_max = 12 * shape->page_bytes;
    o.prefix_cache_bytes = 0;
    o.image_cache_bytes = 0;
    test_engine_start(&f, EYES, &o);
    for (uint32_t i = 0; i < 4; i++) {
        struct job_spec spec = ask(&s[i], 150);
        submit(&f, &spec);
    }
    wait_all(&f);
    for (uint32_t i = 0; i < 4; i++)
        expect_same(f.clients[i], &want[i]);
    assert_true(numbers(&f).preemptions > 0);
    assert_true(numbers(&f).images_encoded > 4);
    test_engine_close(&f);
    for (uint32_t i = 0; i < 4; i++)
        seen_done(&s[i]);
}

/* One image of many that begins where the memory for features ends: each waits for the others, and all
 * end. */
TEST(more_images_than_fit_go_through_one_after_the_other)
{
    struct fixture f;
    static struct seen s[4];
    static struct client want[4];
    struct engine_opts o = eyes(false);
    o.image_cache_bytes = 0;
    for (uint32_t i = 0; i < 4; i++) {
        s[i] = (struct seen){.count = 0};
        for (uint32_t k = 0; k < 8; k++) {
            say(&s[i], 1, i);
            show(&s[i], image_of(6, 8, 10 * i + k));
        }
        say(&s[i], 3, i);
        alone(&s[i], 4, &want[i]);
    }
    /* The largest image's features are what fits: the sixteenth part of all of these. */
    test_engine_start(&f, EYES, &o);
    for (uint32_t i = 0; i < 4; i++) {
        struct job_spec spec = ask(&s[i], 4);
        submit(&f, &spec);
    }
    wait_all(&f);
    for (uint32_t i = 0; i < 4; i++)
        expect_same(f.clients[i], &want[i]);
    assert_int_equal(numbers(&f).images_encoded, 32);
    test_engine_close(&f);
    for (uint32_t i = 0; i < 4; i++)
        seen_done(&s[i]);
}

TEST(two_that_ask_at_once_about_one_image_wait_for_the_same)
{
    struct fixture f;
    struct client want;
    struct seen s = one_image(20, 5, 7, 3);
    struct engine_opts o = eyes(false);
    alone(&s, ANSWER_SEEN, &want);
    o.image_cache_bytes = 0;
    test_engine_start(&f, EYES, &o);
    struct job_spec spec = ask(&s, ANSWER_SEEN);
    for (int i = 0; i < 4; i++)
        submit(&f, &spec);
    wait_all(&f);
    for (int i = 0; i < 4; i++)
        expect_same(f.clients[i], &want);
    assert_true(numbers(&f).images_encoded < 4);
    test_engine_close(&f);
    seen_done(&s);
}

static void ask_as(struct fixture *f, const struct seen *s, uint64_t tenant, const char *salt,
                   const struct client *want)
{
    struct job_spec spec = ask(s, ANSWER_SEEN);
    spec.tenant = tenant;
    spec.cache_salt = slice_of(salt);
    submit(f, &spec);
    wait_all(f);
    expect_same(f->clients[f->client_count - 1], want);
}

/* Without a prefix cache, so that each request needs its image. */
TEST(another_tenant_or_salt_finds_no_image_of_mine)
{
    struct fixture f;
    struct client want;
    struct seen s = one_image(20, 5, 7, 3);
    struct engine_opts o = eyes(false);
    alone(&s, ANSWER_SEEN, &want);
    o.image_cache_bytes = 1 << 20;
    test_engine_start(&f, EYES, &o);
    const struct {
        uint64_t tenant;
        const char *salt;
        uint64_t encoded, found;
    } cases[] = {{1, "", 1, 0},  {1, "", 1, 1}, {2, "", 2, 1}, {1, "a", 3, 1},
                 {2, "a", 4, 1}, {2, "", 4, 2}, {1, "a", 4, 3}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        ask_as(&f, &s, cases[i].tenant, cases[i].salt, &want);
        assert_int_equal(numbers(&f).images_encoded, cases[i].encoded);
        assert_int_equal(numbers(&f).images_found, cases[i].found);
    }
    test_engine_close(&f);
    seen_done(&s);
}

/* Decoding of text continues between the slices. */
TEST(between_two_slices_there_is_a_step)
{
    struct fixture f;
    struct engine_opts o = eyes(false);
    struct seen s = one_image(20, 20, 20, 3);
    o.slow_client_ns = 0;
    test_engine_start(&f, EYES, &o);
    struct job_spec text = greedy(s.tokens, 20, 1500);
    struct client *stream = submit(&f, &text);
    wait_tokens(&f, stream, 3);
    struct engine_numbers before = numbers(&f);
    struct client *c = run_seen(&f, &s, 1);
    assert_int_equal(c->finish.reason, FINISH_LENGTH);
    struct engine_numbers after = numbers(&f);
    assert_false(stream->over);
    uint64_t slices = after.encode_slices - before.encode_slices;
    assert_true(slices > 3);
    assert_true(after.steps - before.steps >= slices - 1);
    test_engine_close(&f);
    seen_done(&s);
}

/* ---- a random crowd ---- */

static void draw_seen(struct seen *s, struct rng *rng)
{
    *s = (struct seen){.count = 0};
    say(s, 1 + (uint32_t)rng_below(rng, 60), rng_below(rng, 3));
    for (uint64_t k = rng_below(rng, 4); k > 0; k--) {
        uint32_t rows = 1 + (uint32_t)rng_below(rng, 6), columns = 1 + (uint32_t)rng_below(rng, 6);
        show(s, image_of(rows, columns, rng_below(rng, 4)));
        say(s, (uint32_t)rng_below(rng, 50), rng_below(rng, 3));
    }
    say(s, 1, 1);
}

PROPERTY(random_traffic_with_images_has_the_same_tokens, seed)
{
    struct fixture f;
    static struct seen s[16];
    static struct client want[16];
    struct client *mine[16];
    struct rng rng = {seed, 0};
    struct engine_opts o = eyes(rng_below(&rng, 2));
    const struct model_shape *shape = model_shape(o.model);
    for (uint32_t i = 0; i < 16; i++) {
        draw_seen(&s[i], &rng);
        alone(&s[i], 1 + (uint32_t)rng_below(&rng, 80), &want[i]);
    }
    o.image_cache_bytes = rng_below(&rng, 3) * 40000;
    o.max_model_len = 16 * PAGE_TOKENS;
    o.kv_bytes_max = (16 + rng_below(&rng, 16)) * shape->page_bytes;
    o.step_ns = o.step_alone_ns = NS_PER_US << rng_below(&rng, 16);
    test_engine_start(&f, EYES, &o);
    for (uint32_t i = 0; i < 16; i++) {
        struct job_spec spec = ask(&s[i], want[i].count);
        struct client *extra = rng_below(&rng, 3) ? NULL : submit(&f, &spec);
        mine[i] = submit(&f, &spec);
        if (extra)
            abort_client(&f, extra);
        if (rng_below(&rng, 4) == 0)
            wait_all(&f);
    }
    wait_all(&f);
    for (uint32_t i = 0; i < 16; i++)
        expect_same(mine[i], &want[i]);
    test_engine_close(&f);
    for (uint32_t i = 0; i < 16; i++)
        seen_done(&s[i]);
}

TEST_MAIN()
