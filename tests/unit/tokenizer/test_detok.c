/* Token by token and all at once give the same text. */
#include "model_path.h"
#include "test_rng.h"
#include "test.h"

#include "base/arena.h"
#include "base/check.h"
#include "tokenizer/detok.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8.h"

#include <jansson.h>
#include <string.h>

#define GOLDEN PLATEAU_SOURCE_DIR "/tests/golden/data/canary-8bit/golden.json"

struct canary {
    struct arena *arena;
    struct tokenizer *tokenizer;
};

static void canary_init(struct canary *c)
{
    struct arena_opts opts = {.bytes_max = (size_t)64 << 20};
    struct err e = {0};
    assert_int_equal(arena_create(&opts, &c->arena), 0);
    if (tokenizer_load_at(c->arena, PLATEAU_SOURCE_DIR "/models/canary", &c->tokenizer, &e) < 0)
        fail_msg("%s", e.text);
}

static void canary_done(struct canary *c)
{
    arena_free(c->arena);
}

/* Decoding by definition: the bytes of all tokens in a row, then made valid. */
static void decode_whole(const struct tokenizer *t, const uint32_t *ids, size_t count, bool skip,
                         struct buf *ret)
{
    struct buf bytes;
    buf_init(&bytes, 1 << 20, NULL);
    for (size_t i = 0; i < count; i++) {
        if (!(skip && tokenizer_is_special(t, ids[i])))
            buf_put_slice(&bytes, tokenizer_token_bytes(t, ids[i]));
    }
    utf8_put_lossy(ret, buf_slice(&bytes));
    buf_done(&bytes);
}

static void assert_streams(const struct tokenizer *t, const uint32_t *ids, size_t count, bool skip)
{
    struct buf whole, streamed, decoded;
    buf_init(&whole, 1 << 20, NULL);
    buf_init(&streamed, 1 << 20, NULL);
    buf_init(&decoded, 1 << 20, NULL);
    decode_whole(t, ids, count, skip, &whole);
    struct detok d;
    detok_init(&d, t, skip);
    for (size_t i = 0; i < count; i++) {
        detok_push(&d, ids[i], &streamed);
        assert_true(utf8_valid(buf_slice(&streamed)));
    }
    detok_flush(&d, &streamed);
    assert_true(slice_eq(buf_slice(&streamed), buf_slice(&whole)));
    assert_int_equal(tokenizer_decode(t, ids, count, skip, &decoded), 0);
    assert_true(slice_eq(buf_slice(&decoded), buf_slice(&whole)));
    /* After a flush it starts again. */
    size_t before = streamed.len;
    detok_flush(&d, &streamed);
    assert_int_equal(streamed.len, before);
    buf_done(&whole);
    buf_done(&streamed);
    buf_done(&decoded);
}

TEST(random_ids_stream_as_they_decode)
{
    struct canary c;
    canary_init(&c);
    /* The single bytes are among the first 256 ids: they make broken and split characters likely. */
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct rng rng = {seed, 0};
        uint32_t ids[40];
        size_t count = rng_below(&rng, 41);
        for (size_t i = 0; i < count; i++)
            ids[i] = (uint32_t)rng_below(&rng, rng_below(&rng, 2) ? 256 : 8300);
        assert_streams(c.tokenizer, ids, count, seed % 2);
    }
    canary_done(&c);
}

TEST(golden_answers_stream_as_they_decode)
{
    struct canary c;
    canary_init(&c);
    json_t *golden = json_load_file(GOLDEN, JSON_ALLOW_NUL, NULL), *item;
    static const char *const keys[] = {"prompt_ids", "greedy_ids"};
    size_t i, seen = 0;
    assert_non_null(golden);
    json_array_foreach(json_object_get(golden, "cases"), i, item) {
        for (size_t k = 0; k < COUNT_OF(keys); k++) {
            const json_t *list = json_object_get(item, keys[k]);
            uint32_t ids[4096];
            size_t count = json_array_size(list);
            assert_true(count > 0 && count <= COUNT_OF(ids));
            for (size_t n = 0; n < count; n++)
                ids[n] = (uint32_t)json_integer_value(json_array_get(list, n));
            assert_streams(c.tokenizer, ids, count, k == 1);
            seen++;
        }
    }
    assert_true(seen >= 48);
    json_decref(golden);
    canary_done(&c);
}

TEST(a_character_in_four_tokens_comes_out_whole)
{
    struct canary c;
    canary_init(&c);
    /* U+1F4A9 as single bytes; the id of a byte is found by decoding. */
    static const char bytes[] = "\xF0\x9F\x92\xA9";
    uint32_t ids[4] = {0};
    for (size_t i = 0; i < 4; i++) {
        while (!slice_eq(tokenizer_token_bytes(c.tokenizer, ids[i]), (struct slice){bytes + i, 1}))
            ids[i]++;
    }
    struct detok d;
    struct buf out;
    buf_init(&out, 64, NULL);
    detok_init(&d, c.tokenizer, false);
    for (size_t i = 0; i < 3; i++) {
        detok_push(&d, ids[i], &out);
        assert_int_equal(out.len, 0);
    }
    detok_push(&d, ids[3], &out);
    assert_true(slice_eq(buf_slice(&out), SLICE("\xF0\x9F\x92\xA9")));
    detok_push(&d, ids[0], &out);
    detok_push(&d, ids[0], &out);
    assert_true(slice_eq(buf_slice(&out), SLICE("\xF0\x9F\x92\xA9" UTF8_REPLACEMENT)));
    detok_flush(&d, &out);
    assert_true(slice_eq(buf_slice(&out), SLICE("\xF0\x9F\x92\xA9" UTF8_REPLACEMENT UTF8_REPLACEMENT)));
    buf_done(&out);
    canary_done(&c);
}

TEST_MAIN()
