/* Jobs without tokens: pooled vectors and logits, alone and in batches, whole and in chunks. */
#include "test_engine.h"
#include "base/charge.h"
#include "base/err.h"
#include "engine/engine.h"
#include "engine/engine_numbers.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "model/config/pooling.h"

#include <math.h>

#define DIR    TINY("qwen3_embedding")
#define HIDDEN 32
#define TEXTS  24

static uint32_t prompt[1024];

__attribute__((constructor)) static void fill_prompt(void)
{
    for (uint32_t i = 0; i < COUNT_OF(prompt); i++)
        prompt[i] = 3 + (i * 97 + i / 13) % 500;
}

/* A job of a kind of its own: its stream has room for values. */
struct asked {
    struct stream *stream;
    struct stream_finish finish;
    float values[HIDDEN];
};

static struct job_spec vector_of(uint32_t from, uint32_t count, enum pooling pooling)
{
    return (struct job_spec){
        .output = JOB_VECTOR, .pooling = pooling, .prompt = prompt + from, .prompt_count = count};
}

static int try_ask(struct fixture *f, const struct job_spec *spec, struct asked *a, struct err *e)
{
    struct charge charge = account_charge(f->text);
    struct stream_opts opts = {.id = request_id_new(), .values_max = HIDDEN, .charge = &charge};
    assert_int_equal(stream_create(&opts, &a->stream), 0);
    int r = engine_submit(f->engine, spec, a->stream, NULL, e);
    if (r < 0) {
        stream_release(a->stream);
        stream_release(a->stream);
    }
    return r;
}

static void ask(struct fixture *f, const struct job_spec *spec, struct asked *a)
{
    struct err e = {""};
    if (try_ask(f, spec, a, &e) < 0)
        fail_msg("%s", e.text);
}

static void answered(struct asked *a)
{
    struct stream_token t;
    uint64_t end_ns = clock_now_ns() + TEST_WAIT_NS;
    while (!stream_finished(a->stream, &a->finish)) {
        assert_true(clock_now_ns() < end_ns);
        assert_false(stream_take(a->stream, &t));
        usleep(200);
    }
    assert_int_equal(a->finish.reason, FINISH_STOP);
    assert_int_equal(a->finish.completion_tokens, 0);
    assert_int_equal(a->finish.cached_tokens, 0);
    memcpy(a->values, stream_values(a->stream), sizeof(a->values));
    stream_release(a->stream);
}

static void open_engine(struct fixture *f, uint32_t seqs)
{
    struct engine_opts o = test_engine_opts(DIR);
    o.max_num_seqs = seqs;
    o.prefix_cache_bytes = 1 << 20;
    test_engine_start(f, DIR, &o);
}

static void alone(const struct job_spec *spec, struct asked *a)
{
    struct fixture f;
    open_engine(&f, 1);
    ask(&f, spec, a);
    answered(a);
    test_engine_close(&f);
}

static struct job_spec text_of(uint32_t i)
{
    static const enum pooling kinds[] = {POOLING_LAST, POOLING_MEAN, POOLING_CLS};
    return vector_of(i * 5, 1 + i * 37 % 400, kinds[i % 3]);
}

TEST(a_vector_is_its_golden)
{
    json_t *root = json_load_file(DIR "/golden.json", 0, NULL), *each;
    struct fixture f;
    size_t i, k;
    open_engine(&f, 4);
    json_array_foreach(json_object_get(root, "embedding"), i, each) {
        const json_t *ids = json_object_get(each, "ids"), *expected = json_object_get(each, "vector");
        uint32_t own[256];
        struct asked a;
        json_t *id;
        json_array_foreach(ids, k, id)
            own[k] = (uint32_t)json_integer_value(id);
        struct job_spec spec = {.output = JOB_VECTOR,
                                .pooling = POOLING_LAST,
                                .prompt = own,
                                .prompt_count = (uint32_t)json_array_size(ids)};
        ask(&f, &spec, &a);
        answered(&a);
        pooling_normalize(a.values, HIDDEN);
        for (k = 0; k < HIDDEN; k++)
            assert_true(fabs(json_number_value(json_array_get(expected, k)) - (double)a.values[k]) < 1e-4);
    }
    json_decref(root);
    test_engine_close(&f);
}

/* 24 texts of up to 400 tokens in steps of 128 tokens, with two requests that generate. */
TEST(batches_and_chunks_change_no_bit_of_a_vector)
{
    struct asked whole[TEXTS], together[TEXTS];
    struct fixture f;
    for (uint32_t i = 0; i < TEXTS; i++) {
        struct job_spec spec = text_of(i);
        alone(&spec, &whole[i]);
    }
    open_engine(&f, TEST_SEQS_MAX);
    struct job_spec generates = greedy(prompt, 50, 300);
    struct client *one = submit(&f, &generates), *two = submit(&f, &generates);
    for (uint32_t i = 0; i < TEXTS; i++) {
        struct job_spec spec = text_of(i);
        ask(&f, &spec, &together[i]);
    }
    for (uint32_t i = 0; i < TEXTS; i++) {
        answered(&together[i]);
        assert_memory_equal(whole[i].values, together[i].values, sizeof(whole[i].values));
    }
    wait_all(&f);
    assert_int_equal(one->count, 300);
    assert_memory_equal(one->ids, two->ids, 300 * sizeof(one->ids[0]));
    test_engine_close(&f);
}

TEST(a_vector_neither_reads_nor_fills_the_prefix_cache)
{
    struct fixture f;
    struct engine_numbers n;
    struct asked a;
    struct job_spec vector = vector_of(0, 200, POOLING_LAST), generates = greedy(prompt, 200, 1);
    open_engine(&f, 2);
    ask(&f, &vector, &a);
    answered(&a);
    engine_numbers(f.engine, &n);
    assert_int_equal(n.cache_pages, 0);
    submit(&f, &generates);
    wait_all(&f);
    engine_numbers(f.engine, &n);
    uint32_t pages = n.cache_pages;
    assert_true(pages > 0);
    ask(&f, &vector, &a); /* answered() demands no cached token */
    answered(&a);
    engine_numbers(f.engine, &n);
    assert_int_equal(n.cache_pages, pages);
    test_engine_close(&f);
}

TEST(a_text_may_fill_the_context)
{
    struct fixture f;
    struct err e = {""};
    struct asked a;
    struct engine_opts o = test_engine_opts(DIR);
    o.max_model_len = 256;
    o.kv_bytes_max = 8 * model_shape(o.model)->page_bytes;
    test_engine_start(&f, DIR, &o);
    struct job_spec fits = vector_of(0, 256, POOLING_LAST), too_long = vector_of(0, 257, POOLING_LAST);
    ask(&f, &fits, &a);
    answered(&a);
    assert_int_equal(try_ask(&f, &too_long, &a, &e), -EINVAL);
    fits.pooling = POOLING_NONE;
    assert_int_equal(try_ask(&f, &fits, &a, &e), -EINVAL);
    fits.pooling = POOLING_LAST;
    fits.max_tokens = 1;
    assert_int_equal(try_ask(&f, &fits, &a, &e), -EINVAL);
    test_engine_close(&f);
}

/* Two logits after the prompt are those of which a generating request reports the difference. */
TEST(logits_are_those_of_a_generated_token)
{
    struct fixture f;
    struct asked a;
    struct job_spec generates = greedy(prompt, 77, 1);
    generates.sampling.logprobs = true;
    generates.sampling.top_logprobs = 1;
    open_engine(&f, 2);
    struct client *c = submit(&f, &generates);
    wait_all(&f);
    struct job_spec spec = {.output = JOB_LOGITS,
                            .logit_ids = {c->ids[0], (c->ids[0] + 1) % 512},
                            .prompt = prompt,
                            .prompt_count = 77};
    ask(&f, &spec, &a);
    answered(&a);
    assert_true(a.values[0] > a.values[1]);
    spec.logit_ids[1] = 512;
    struct err e = {""};
    assert_int_equal(try_ask(&f, &spec, &a, &e), -EINVAL);
    test_engine_close(&f);
}

/* An encoder: each text is one step of the whole, and pages for one of the longest are enough. */
#define BERT        TINY("bert")
#define BERT_HIDDEN 16
#define BERT_LONG   40

static void open_encoder(struct fixture *f, uint32_t seqs, uint32_t pages)
{
    struct engine_opts o = test_engine_opts(BERT);
    o.max_num_seqs = seqs;
    o.max_model_len = BERT_LONG;
    o.kv_bytes_max = pages * model_shape(o.model)->page_bytes;
    o.prefix_cache_bytes = 1 << 20;
    test_engine_start(f, BERT, &o);
}

static void encoder_texts(uint32_t pages)
{
    static const enum pooling kinds[] = {POOLING_CLS, POOLING_MEAN, POOLING_LAST};
    static uint32_t ids[BERT_LONG];
    struct asked whole[TEXTS], together[TEXTS];
    struct job_spec specs[TEXTS];
    struct engine_numbers n;
    struct fixture f;
    for (uint32_t i = 0; i < BERT_LONG; i++)
        ids[i] = 3 + i * 7 % 45;
    open_encoder(&f, 1, pages);
    for (uint32_t i = 0; i < TEXTS; i++) {
        uint32_t count = 1 + i * 11 % BERT_LONG;
        specs[i] = (struct job_spec){.output = JOB_VECTOR,
                                     .pooling = kinds[i % 3],
                                     .prompt = ids + (BERT_LONG - count),
                                     .prompt_count = count};
        ask(&f, &specs[i], &whole[i]);
        answered(&whole[i]);
    }
    test_engine_close(&f);
    open_encoder(&f, TEST_SEQS_MAX, pages);
    for (uint32_t i = 0; i < TEXTS; i++)
        ask(&f, &specs[i], &together[i]);
    for (uint32_t i = 0; i < TEXTS; i++) {
        answered(&together[i]);
        assert_memory_equal(whole[i].values, together[i].values, BERT_HIDDEN * sizeof(float));
    }
    engine_numbers(f.engine, &n);
    assert_int_equal(n.cache_pages, 0);
    assert_int_equal(n.pages_used, 0);
    test_engine_close(&f);
}

TEST(texts_of_an_encoder_are_alike_alone_and_together)
{
    encoder_texts(200);
    encoder_texts(2);
    encoder_texts(5);
}

TEST(an_encoder_makes_vectors_alone)
{
    struct fixture f;
    struct err e = {""};
    struct asked a;
    struct job_spec generates = greedy(prompt, 3, 1), logits = {.output = JOB_LOGITS, .prompt_count = 3};
    struct engine_opts o = test_engine_opts(BERT);
    generates.prompt = logits.prompt = (const uint32_t[]){5, 6, 7};
    open_encoder(&f, 2, 200);
    assert_int_equal(try_ask(&f, &generates, &a, &e), -EINVAL);
    assert_non_null(strstr(e.text, "makes vectors"));
    assert_int_equal(try_ask(&f, &logits, &a, &e), -EINVAL);
    test_engine_close(&f);
    o.max_model_len = BERT_LONG;
    o.tokens_max = BERT_LONG - 1;
    o.max_num_seqs = 1;
    struct engine *none = NULL;
    assert_int_equal(engine_create(&o, &none, &e), -EINVAL);
    assert_non_null(strstr(e.text, "one step"));
}

TEST_MAIN()
