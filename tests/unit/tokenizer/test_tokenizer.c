/* Ids and text equal to the tokenizers library's: the golden cases of the bundled model, and variants of its
 * tokenizer.json. data/tokenizer/expect.py wrote their ids. */
#include "model_path.h"
#include "test.h"

#include "base/check.h"
#include "base/clock.h"
#include "tokenizer/detok.h"
#include "tokenizer/tokenizer.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

#define MODEL_DIR  PLATEAU_SOURCE_DIR "/models/canary"
#define DATA_DIR   PLATEAU_SOURCE_DIR "/tests/unit/data/tokenizer/"
#define GOLDEN     PLATEAU_SOURCE_DIR "/tests/golden/data/canary-8bit/golden.json"
#define TOKENS_MAX 4096

static struct arena *arena_of(size_t bytes)
{
    struct arena *a;
    struct arena_opts opts = {.bytes_max = bytes};
    assert_int_equal(arena_create(&opts, &a), 0);
    return a;
}

static json_t *json_file(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &e);
    if (!j)
        fail_msg("%s: %s", path, e.text);
    return j;
}

static struct slice json_slice(const json_t *string)
{
    assert_true(json_is_string(string));
    return (struct slice){json_string_value(string), json_string_length(string)};
}

static size_t json_ids(const json_t *list, uint32_t ret[TOKENS_MAX])
{
    size_t count = json_array_size(list);
    assert_true(json_is_array(list) && count <= TOKENS_MAX);
    for (size_t i = 0; i < count; i++)
        ret[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return count;
}

static struct tokenizer *tokenizer_of(struct arena *a, json_t *root, const char *config)
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    char *text = json_dumps(root, JSON_COMPACT);
    assert_non_null(text);
    if (tokenizer_parse(a, slice_of(text), slice_of(config), &t, &e) < 0)
        fail_msg("%s", e.text);
    free(text);
    return t;
}

struct encode_case {
    struct slice text;
    const json_t *ids;
    const json_t *prefix; /* prefix of a template; NULL: encode without one */
};

static void assert_encodes(const struct tokenizer *t, struct arena *scratch, const struct encode_case *c)
{
    uint32_t want[TOKENS_MAX], got[TOKENS_MAX];
    size_t want_count = c->prefix ? json_ids(c->prefix, want) : 0, count = 0, mark = arena_mark(scratch);
    want_count += json_ids(c->ids, want + want_count);
    struct tokenizer_opts opts = {.added_tokens = true, .add_special = c->prefix != NULL};
    struct err e = {0};
    assert_int_equal(tokenizer_encode(t, scratch, c->text, &opts, got, TOKENS_MAX, &count, &e), 0);
    assert_int_equal(arena_mark(scratch), mark);
    if (tokenizer_exceeds(t, c->text, count, NULL) != 0)
        fail_msg("\"%.*s\" is said to have more than its %zu tokens", SLICE_ARGS(c->text), count);
    if (count != want_count || memcmp(got, want, count * sizeof(*got)) != 0)
        fail_msg("\"%.*s\" has other ids than expected", SLICE_ARGS(c->text));
}

static void assert_decodes(const struct tokenizer *t, const json_t *list, bool skip_special,
                           struct slice want)
{
    uint32_t ids[TOKENS_MAX];
    struct buf out;
    buf_init(&out, 1 << 20, NULL);
    assert_int_equal(tokenizer_decode(t, ids, json_ids(list, ids), skip_special, &out), 0);
    if (!slice_eq(buf_slice(&out), want))
        fail_msg("decoded \"%.*s\", not \"%.*s\"", SLICE_ARGS(buf_slice(&out)), SLICE_ARGS(want));
    buf_done(&out);
}

/* ---- variants ---- */

/* The bundled tokenizer.json with the changes that a data file names. */
static json_t *variant_build(const json_t *variant)
{
    json_t *root = json_file(MODEL_DIR "/tokenizer.json");
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    json_t *merges = json_object_get(model, "merges"), *added = json_object_get(root, "added_tokens");
    const char *key;
    json_t *value;
    size_t i;
    json_object_update(root, json_object_get(variant, "set"));
    json_object_update(model, json_object_get(variant, "model"));
    json_object_foreach(json_object_get(variant, "vocab_replace"), key, value) {
        json_object_set(vocab, json_string_value(value), json_object_get(vocab, key));
        assert_int_equal(json_object_del(vocab, key), 0);
    }
    for (json_int_t n = json_integer_value(json_object_get(variant, "merges_drop")); n > 0; n--)
        json_array_remove(merges, json_array_size(merges) - 1);
    if (json_is_true(json_object_get(variant, "merges_as_lists"))) {
        json_array_foreach(merges, i, value) {
            const char *both = json_string_value(value), *blank = strchr(both, ' ');
            json_array_set_new(merges, i, json_pack("[s%s]", both, (int)(blank - both), blank + 1));
        }
    }
    json_array_foreach(json_object_get(variant, "added"), i, value) {
        json_array_append(added, value);
    }
    return root;
}

static void assert_variant(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), DATA_DIR "%s.json", name);
    json_t *data = json_file(path);
    json_t *variant = json_object_get(data, "variant");
    json_t *root = variant_build(variant);
    struct arena *a = arena_of((size_t)64 << 20), *scratch = arena_of((size_t)16 << 20);
    struct tokenizer *t = tokenizer_of(a, root, "");
    size_t i;
    json_t *c;
    assert_true(json_array_size(json_object_get(data, "encoded")) > 150);
    json_array_foreach(json_object_get(data, "encoded"), i, c) {
        struct encode_case ec = {.text = json_slice(json_array_get(c, 0)), .ids = json_array_get(c, 1)};
        assert_encodes(t, scratch, &ec);
        ec.prefix = json_object_get(variant, "special_prefix");
        assert_encodes(t, scratch, &ec);
    }
    json_array_foreach(json_object_get(data, "decoded"), i, c) {
        assert_decodes(t, json_array_get(c, 0), false, json_slice(json_array_get(c, 1)));
        assert_decodes(t, json_array_get(c, 0), true, json_slice(json_array_get(c, 2)));
    }
    arena_free(a);
    arena_free(scratch);
    json_decref(root);
    json_decref(data);
}

TEST(qwen3_5_regex_with_nfc)
{
    assert_variant("qwen3_5");
}

TEST(qwen2_regex_with_nfc)
{
    assert_variant("qwen2");
}

TEST(llama3_regex_without_nfc_with_ignore_merges_and_merges_as_lists)
{
    assert_variant("llama3");
}

TEST(added_tokens_with_every_flag)
{
    assert_variant("added");
}

/* ---- the bundled model ---- */

struct canary {
    struct arena *arena, *scratch;
    struct tokenizer *tokenizer;
};

static void canary_init(struct canary *c)
{
    struct err e = {0};
    c->arena = arena_of((size_t)64 << 20);
    c->scratch = arena_of((size_t)64 << 20);
    if (tokenizer_load_at(c->arena, MODEL_DIR, &c->tokenizer, &e) < 0)
        fail_msg("%s", e.text);
}

static void canary_done(struct canary *c)
{
    arena_free(c->arena);
    arena_free(c->scratch);
}

TEST(golden_texts_prompts_and_answers)
{
    struct canary c;
    canary_init(&c);
    json_t *golden = json_file(GOLDEN), *item;
    size_t i;
    assert_true(json_array_size(json_object_get(golden, "tokenizer")) >= 18);
    assert_true(json_array_size(json_object_get(golden, "cases")) >= 24);
    json_array_foreach(json_object_get(golden, "tokenizer"), i, item) {
        const json_t *ids = json_object_get(item, "ids");
        assert_encodes(c.tokenizer, c.scratch,
                       &(struct encode_case){.text = json_slice(json_object_get(item, "text")), .ids = ids});
        assert_decodes(c.tokenizer, ids, false, json_slice(json_object_get(item, "decoded")));
    }
    json_array_foreach(json_object_get(golden, "cases"), i, item) {
        struct encode_case ec = {.text = json_slice(json_object_get(item, "rendered")),
                                 .ids = json_object_get(item, "prompt_ids")};
        assert_encodes(c.tokenizer, c.scratch, &ec);
        assert_decodes(c.tokenizer, json_object_get(item, "greedy_ids"), true,
                       json_slice(json_object_get(item, "greedy_text")));
    }
    json_array_foreach(json_object_get(golden, "vision"), i, item) {
        assert_decodes(c.tokenizer, json_object_get(item, "greedy_ids"), true,
                       json_slice(json_object_get(item, "greedy_text")));
    }
    json_decref(golden);
    canary_done(&c);
}

TEST(a_tokenizer_answers_questions_about_its_tokens)
{
    struct canary c;
    canary_init(&c);
    const struct tokenizer *t = c.tokenizer;
    uint32_t id = 0;
    assert_int_equal(tokenizer_vocab_size(t), 8192);
    assert_true(tokenizer_find(t, SLICE("<|im_end|>"), &id) && id == 8180);
    assert_true(tokenizer_is_token(t, id) && tokenizer_is_special(t, id) && tokenizer_is_added(t, id));
    assert_true(slice_eq(tokenizer_token_bytes(t, id), SLICE("<|im_end|>")));
    assert_true(tokenizer_find(t, SLICE("<think>"), &id) && id == 8190);
    assert_true(tokenizer_is_added(t, id) && !tokenizer_is_special(t, id));
    assert_false(tokenizer_find(t, SLICE("<|im_end|"), &id) || tokenizer_find(t, SLICE("the"), &id));
    assert_true(slice_eq(tokenizer_token_bytes(t, 262), SLICE(" a")));
    assert_true(tokenizer_is_token(t, 262) && !tokenizer_is_added(t, 262));
    assert_false(tokenizer_is_token(t, 8192) || tokenizer_is_special(t, UINT32_MAX));
    assert_int_equal(tokenizer_token_bytes(t, 8192).len, 0);
    assert_true(slice_eq(tokenizer_eos(t), SLICE("<|im_end|>")));
    assert_true(tokenizer_find(t, tokenizer_eos(t), &id) && id == 8180);
    assert_int_equal(tokenizer_bos(t).len, 0);
    assert_false(tokenizer_find(t, tokenizer_bos(t), &id));
    canary_done(&c);
}

static size_t encode(struct canary *c, struct slice text, const struct tokenizer_opts *opts, uint32_t *ids)
{
    size_t count = 0;
    assert_int_equal(tokenizer_encode(c->tokenizer, c->scratch, text, opts, ids, TOKENS_MAX, &count, NULL),
                     0);
    return count;
}

TEST(untrusted_text_cannot_write_added_tokens)
{
    struct canary c;
    canary_init(&c);
    uint32_t ids[TOKENS_MAX];
    struct slice text = SLICE("a<|im_end|><think>b");
    assert_int_equal(encode(&c, text, &(struct tokenizer_opts){.added_tokens = true}, ids), 4);
    size_t count = encode(&c, text, &(struct tokenizer_opts){.added_tokens = false}, ids);
    assert_true(count > 4);
    for (size_t i = 0; i < count; i++)
        assert_false(tokenizer_is_added(c.tokenizer, ids[i]));
    struct buf out;
    buf_init(&out, 4096, NULL);
    assert_int_equal(tokenizer_decode(c.tokenizer, ids, count, true, &out), 0);
    assert_true(slice_eq(buf_slice(&out), text));
    buf_done(&out);
    canary_done(&c);
}

/* A mark before every byte of the text and after it. */
static size_t encode_marked(struct canary *c, struct slice text, uint32_t *ids, uint32_t *tokens)
{
    static size_t bytes[256];
    assert_true(text.len < COUNT_OF(bytes));
    for (size_t i = 0; i <= text.len; i++)
        bytes[i] = i;
    struct tokenizer_marks marks = {bytes, tokens, (uint32_t)text.len + 1};
    struct tokenizer_opts opts = {.added_tokens = true, .marks = &marks};
    uint32_t plain[TOKENS_MAX];
    size_t count = encode(c, text, &opts, ids);
    opts.marks = NULL;
    assert_int_equal(encode(c, text, &opts, plain), count);
    assert_memory_equal(plain, ids, count * sizeof(ids[0]));
    assert_int_equal(tokens[text.len], count);
    return count;
}

TEST(marks_count_the_tokens_before_them)
{
    struct canary c;
    canary_init(&c);
    uint32_t ids[TOKENS_MAX], tokens[256];
    struct slice text =
        SLICE("<|im_start|>user\nWhat is  caf\u00e9\n<|im_end|>\n<|im_start|>assistant\n<think>");
    encode_marked(&c, text, ids, tokens);
    size_t bytes = 0, k = 0;
    for (size_t at = 0; at <= text.len; at++) {
        for (; k < tokens[at]; k++)
            bytes += tokenizer_token_bytes(c.tokenizer, ids[k]).len;
        assert_true(bytes <= at && at - bytes < strlen("<|im_start|>"));
    }
    /* Before and after an added token it is exact, and a word begins where the last one ended. */
    static const char *const places[] = {"<|im_end|>", "\n<|im_start|>ass", "<think>", "user", " is"};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        size_t at = slice_find(text, slice_of(places[i]), 0);
        uint32_t before[TOKENS_MAX];
        size_t count =
            encode(&c, slice_sub(text, 0, at), &(struct tokenizer_opts){.added_tokens = true}, before);
        assert_int_equal(tokens[at], count);
        assert_memory_equal(before, ids, count * sizeof(ids[0]));
    }
    canary_done(&c);
}

/* e and an accent become one letter: bytes between added tokens differ from the text's, so marks there stay
 * before them. */
TEST(marks_in_text_that_is_normalised_stay_before_it)
{
    struct canary c;
    canary_init(&c);
    uint32_t ids[TOKENS_MAX], tokens[256];
    struct slice text = SLICE("one<|im_end|>two cafe\u0301 three<|im_end|>four five");
    encode_marked(&c, text, ids, tokens);
    size_t first = slice_find(text, SLICE("<|im_end|>"), 0),
           second = slice_find(text, SLICE("<|im_end|>"), first + 1);
    uint32_t id, end = 0;
    assert_true(tokenizer_find(c.tokenizer, SLICE("<|im_end|>"), &id));
    while (ids[end] != id)
        end++;
    assert_int_equal(tokens[first], end);
    for (size_t at = first + strlen("<|im_end|>"); at < second; at++)
        assert_int_equal(tokens[at], end + 1);
    assert_int_equal(ids[tokens[second]], id);
    assert_int_equal(tokens[second + strlen("<|im_end|>")], tokens[second] + 1);
    assert_true(tokens[slice_find(text, SLICE(" five"), 0)] > tokens[second] + 1);
    canary_done(&c);
}

TEST(too_many_tokens_and_broken_text_are_refused)
{
    struct canary c;
    canary_init(&c);
    struct tokenizer_opts opts = {.added_tokens = true};
    struct err e;
    uint32_t ids[4];
    size_t count = 99, mark = arena_mark(c.scratch);
    assert_int_equal(tokenizer_encode(c.tokenizer, c.scratch, SLICE("1234"), &opts, ids, 4, &count, &e), 0);
    assert_int_equal(count, 4);
    count = 99;
    assert_int_equal(tokenizer_encode(c.tokenizer, c.scratch, SLICE("12345"), &opts, ids, 4, &count, &e),
                     -E2BIG);
    assert_non_null(strstr(e.text, "more than 4 tokens"));
    assert_int_equal(
        tokenizer_encode(c.tokenizer, c.scratch, SLICE("<think><think>"), &opts, ids, 1, &count, &e), -E2BIG);
    assert_int_equal(tokenizer_encode(c.tokenizer, c.scratch, SLICE("ab\xC3"), &opts, ids, 4, &count, &e),
                     -EINVAL);
    assert_non_null(strstr(e.text, "byte 2 of 3"));
    assert_int_equal(count, 99);
    assert_int_equal(arena_mark(c.scratch), mark);

    struct arena *small = arena_of(4096);
    static char run[1 << 20];
    memset(run, 'a', sizeof(run));
    assert_int_equal(
        tokenizer_encode(c.tokenizer, small, (struct slice){run, sizeof(run)}, &opts, ids, 4, &count, &e),
        -ENOMEM);
    arena_free(small);
    canary_done(&c);
}

TEST(a_decode_that_is_too_long_for_its_buffer_says_so)
{
    struct canary c;
    canary_init(&c);
    uint32_t ids[TOKENS_MAX];
    size_t count = encode(&c, SLICE("Hello, world!"), &(struct tokenizer_opts){0}, ids);
    struct buf out;
    buf_init(&out, 5, NULL);
    assert_int_equal(tokenizer_decode(c.tokenizer, ids, count, false, &out), -E2BIG);
    buf_done(&out);
    canary_done(&c);
}

TEST(add_bos_token_of_the_config_does_not_count)
{
    json_t *root = json_file(MODEL_DIR "/tokenizer.json");
    struct arena *a = arena_of((size_t)64 << 20);
    struct tokenizer *t = tokenizer_of(
        a, root,
        "{\"bos_token\": {\"content\": \"<|im_start|>\"}, \"eos_token\": null, \"add_bos_token\": true}");
    uint32_t ids[4], id = 0;
    size_t count = 0;
    struct tokenizer_opts opts = {.add_special = true};
    assert_int_equal(tokenizer_encode(t, a, SLICE("1"), &opts, ids, 4, &count, NULL), 0);
    assert_int_equal(count, 1);
    assert_true(tokenizer_find(t, tokenizer_bos(t), &id) && id == 8179 &&
                slice_eq(tokenizer_bos(t), SLICE("<|im_start|>")));
    assert_int_equal(tokenizer_eos(t).len, 0);
    arena_free(a);
    json_decref(root);
}

/* ---- long texts ---- */

static struct tokenizer *bundled(struct arena *a)
{
    json_t *root = json_file(MODEL_DIR "/tokenizer.json");
    struct tokenizer *t = tokenizer_of(a, root, "");
    json_decref(root);
    return t;
}

/* `bytes` of a text again and again, for free(). */
static struct slice repeated(const char *text, size_t bytes)
{
    size_t len = strlen(text), n = bytes / len * len;
    char *all = malloc(bytes);
    assert_non_null(all);
    for (size_t i = 0; i < n; i++)
        all[i] = text[i % len];
    return (struct slice){all, n};
}

TEST(a_text_that_cannot_fit_is_known_without_tokenizing)
{
    struct arena *a = arena_of((size_t)64 << 20);
    const struct tokenizer *t = bundled(a);
    struct slice text = repeated("ab", 4 << 20), blanks = repeated(" ", 1 << 20);
    assert_int_equal(tokenizer_exceeds(t, text, 32768, NULL), 1);
    assert_int_equal(tokenizer_exceeds(t, slice_sub(text, 0, 32768), 32768, NULL), 0);
    assert_int_equal(tokenizer_exceeds(t, blanks, 1 << 20, NULL), 0);
    assert_int_equal(tokenizer_exceeds(t, slice_sub(text, 0, 0), 0, NULL), 0);
    assert_int_equal(tokenizer_exceeds(t, text, SIZE_MAX, NULL), 0);
    _Atomic bool cancelled = true;
    struct wanted w = {.cancelled = &cancelled};
    assert_int_equal(tokenizer_exceeds(t, text, 1 << 20, &w), -ECANCELED);
    free((char *)text.ptr);
    free((char *)blanks.ptr);
    arena_free(a);
}

static uint64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Processor time until an encoding whose 60 ms are up returns. The least of three: one may pay for memory
 * that the system has to find first. */
static uint64_t time_to_end(const struct tokenizer *t, struct arena *scratch, struct slice text,
                            uint32_t *ids)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        struct wanted w = {.deadline_ns = clock_now_ns() + 60 * NS_PER_MS};
        struct tokenizer_opts opts = {.added_tokens = true, .wanted = &w};
        struct err e = {0};
        size_t count = 1, mark = arena_mark(scratch);
        uint64_t cpu = cpu_now_ns();
        assert_int_equal(tokenizer_encode(t, scratch, text, &opts, ids, text.len, &count, &e), -ETIME);
        least = MIN_OF(least, cpu_now_ns() - cpu);
        assert_int_equal(count, 1);
        assert_int_equal(arena_mark(scratch), mark);
    }
    return least;
}

/* Each kind of text spends its time in another loop. */
TEST(tokenizing_ends_soon_after_it_is_not_wanted_any_more)
{
    enum { BYTES = 24 << 20 };
    static const char *const kinds[] = {"ab",      " ",     "\n", "\u0301",     "\u0323\u0301",
                                        "a\u0301", "word ", "1",  "<|im_end|>", "<"};
    struct arena *a = arena_of((size_t)64 << 20), *scratch = arena_of((size_t)2 << 30);
    const struct tokenizer *t = bundled(a);
    uint32_t *ids = malloc((size_t)BYTES * sizeof(*ids));
    assert_non_null(ids);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct slice text = repeated(kinds[i], BYTES);
        uint64_t cpu = time_to_end(t, scratch, text, ids);
        if (cpu > 400 * NS_PER_MS)
            fail_msg("%.3f s of processor time for \"%s\" after 0.06 s were up", (double)cpu / 1e9, kinds[i]);
        _Atomic bool cancelled = true;
        struct wanted w = {.cancelled = &cancelled};
        struct tokenizer_opts opts = {.added_tokens = true, .wanted = &w};
        struct err e = {0};
        size_t count = 1;
        assert_int_equal(tokenizer_encode(t, scratch, text, &opts, ids, BYTES, &count, &e), -ECANCELED);
        free((char *)text.ptr);
    }
    free(ids);
    arena_free(scratch);
    arena_free(a);
}

TEST_MAIN()
