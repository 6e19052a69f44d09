/* The sampler against plain definitions: full sorts in double, one filter after the other. */
#include "test_rng.h"
#include "test.h"

#include <errno.h>

#include "base/check.h"
#include "base/err.h"
#include "sample/sampler.h"
#include "sample/sampler_params.h"

#include <math.h>
#include <string.h>

#define VOCAB 200

struct bench {
    struct arena *a;
    struct sampler_scratch *scratch;
    float logits[VOCAB];
};

static void bench_init(struct bench *b, uint64_t seed)
{
    struct rng rng = {seed, 0};
    assert_int_equal(arena_create(&(struct arena_opts){4 << 20, 0, NULL}, &b->a), 0);
    assert_int_equal(sampler_scratch_create(b->a, VOCAB, &b->scratch), 0);
    for (uint32_t i = 0; i < VOCAB; i++)
        b->logits[i] = (float)(rng_uniform(&rng) * 16 - 8);
    /* Ties, so that their order counts. */
    b->logits[7] = b->logits[100] = b->logits[101];
}

static struct sampled sample_at(struct bench *b, struct sampler *s, uint32_t position, uint32_t outputs)
{
    float logits[VOCAB];
    struct sampled ret;
    memcpy(logits, b->logits, sizeof(logits));
    sampler_sample(s, b->scratch, logits, VOCAB, NULL, position, outputs, &ret);
    return ret;
}

static struct sampler *sampler_of(struct bench *b, const struct sampler_params *p)
{
    struct sampler *s = NULL;
    struct err e;
    assert_int_equal(sampler_params_check(p, VOCAB, &e), 0);
    assert_int_equal(sampler_create(b->a, p, 512, &s), 0);
    return s;
}

/* Probabilities after temperature, min_p, top_k and top_p, by full sort. */
static void reference(const float *logits, const struct sampler_params *p, double *ret)
{
    uint32_t order[VOCAB];
    double weight[VOCAB], sum = 0, part = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        order[i] = i;
    for (uint32_t i = 0; i < VOCAB; i++)
        for (uint32_t j = i + 1; j < VOCAB; j++)
            if (logits[order[j]] > logits[order[i]] ||
                (logits[order[j]] == logits[order[i]] && order[j] < order[i])) {
                uint32_t t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
    uint32_t kept = p->top_k ? MIN_OF(p->top_k, VOCAB) : VOCAB;
    for (uint32_t i = 0; i < kept; i++) {
        weight[i] = exp(((double)logits[order[i]] - (double)logits[order[0]]) / (double)p->temperature);
        if (weight[i] < (double)p->min_p) {
            kept = i;
            break;
        }
        sum += weight[i];
    }
    memset(ret, 0, VOCAB * sizeof(*ret));
    uint32_t n = 0;
    while (n < kept && part < sum * (double)p->top_p)
        part += weight[n++];
    for (uint32_t i = 0; i < n; i++)
        ret[order[i]] = weight[i] / part;
}

static void assert_frequencies(struct bench *b, const struct sampler_params *p)
{
    enum { SAMPLES = 20000 };
    double want[VOCAB];
    uint32_t got[VOCAB] = {0};
    struct sampler *s = sampler_of(b, p);
    reference(b->logits, p, want);
    for (uint32_t i = 0; i < SAMPLES; i++)
        got[sample_at(b, s, i, 0).id]++;
    for (uint32_t i = 0; i < VOCAB; i++) {
        /* Six standard deviations of a binomial, and half a sample for what never happens. */
        double sd = sqrt(SAMPLES * want[i] * (1 - want[i]));
        assert_true(fabs(got[i] - SAMPLES * want[i]) <= 6 * sd + 0.5);
    }
}

TEST(greedy_takes_the_largest_and_the_lower_of_two_equal)
{
    struct bench b;
    bench_init(&b, 1);
    struct sampler_params p;
    sampler_params_default(&p);
    p.temperature = 0;
    b.logits[150] = b.logits[30] = 20;
    assert_int_equal(sample_at(&b, sampler_of(&b, &p), 0, 0).id, 30);
    arena_free(b.a);
}

TEST(samples_follow_the_filtered_distribution)
{
    struct bench b;
    bench_init(&b, 2);
    const struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
    } cases[] = {{1, 1, 0, 0},    {0.7f, 0.9f, 0, 0},    {1.5f, 1, 0, 5},       {1, 0.5f, 0, 20},
                 {1, 1, 0.1f, 0}, {2, 0.95f, 0.01f, 50}, {0.3f, 0.99f, 0, 1000}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct sampler_params p;
        sampler_params_default(&p);
        p.temperature = cases[i].temperature;
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        p.top_k = cases[i].top_k;
        p.seed = 17 + i;
        assert_frequencies(&b, &p);
    }
    arena_free(b.a);
}

TEST(a_sample_depends_on_seed_and_position_only)
{
    struct bench b;
    bench_init(&b, 3);
    struct sampler_params p;
    sampler_params_default(&p);
    p.seed = 5;
    struct sampler *one = sampler_of(&b, &p), *other = sampler_of(&b, &p);
    uint32_t different = 0;
    for (uint32_t i = 0; i < 100; i++)
        (void)sample_at(&b, other, i * 3, 0);
    p.seed = 6;
    struct sampler *reseeded = sampler_of(&b, &p);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t id = sample_at(&b, one, i, 0).id;
        assert_int_equal(id, sample_at(&b, other, i, 0).id);
        different += id != sample_at(&b, reseeded, i, 0).id;
    }
    assert_true(different > 50);
    arena_free(b.a);
}

TEST(penalties_are_the_documented_sums)
{
    struct bench b;
    bench_init(&b, 4);
    struct sampler_params p;
    sampler_params_default(&p);
    p.temperature = 0;
    p.repetition_penalty = 2;
    p.presence_penalty = 1;
    p.frequency_penalty = 0.5f;
    struct sampler *s = sampler_of(&b, &p);
    memset(b.logits, 0, sizeof(b.logits));
    b.logits[10] = 8;    /* in the prompt: 8 / 2 = 4 */
    b.logits[11] = 7.0f; /* sampled twice: 7 / 2 - 1 - 2 * 0.5 = 1.5 */
    b.logits[12] = 3.9f; /* untouched */
    uint32_t prompt[] = {10, 10};
    sampler_see_prompt(s, prompt, 2);
    sampler_see_output(s, 11);
    sampler_see_output(s, 11);
    assert_int_equal(sample_at(&b, s, 0, 2).id, 10);
    b.logits[12] = 4.1f;
    assert_int_equal(sample_at(&b, s, 0, 2).id, 12);
    b.logits[10] = b.logits[12] = 1.4f;
    assert_int_equal(sample_at(&b, s, 0, 2).id, 11);
    b.logits[12] = 1.6f;
    assert_int_equal(sample_at(&b, s, 0, 2).id, 12);
    arena_free(b.a);
}

TEST(negative_logits_are_penalised_downwards)
{
    struct bench b;
    bench_init(&b, 4);
    struct sampler_params p;
    sampler_params_default(&p);
    p.temperature = 0;
    p.repetition_penalty = 2;
    struct sampler *s = sampler_of(&b, &p);
    for (uint32_t i = 0; i < VOCAB; i++)
        b.logits[i] = -10;
    b.logits[3] = -1;
    b.logits[4] = -1.5f;
    uint32_t prompt[] = {3};
    assert_int_equal(sample_at(&b, s, 0, 0).id, 3);
    sampler_see_prompt(s, prompt, 1);
    assert_int_equal(sample_at(&b, s, 0, 0).id, 4);
    arena_free(b.a);
}

TEST(bias_forces_and_forbids)
{
    struct bench b;
    bench_init(&b, 5);
    struct sampler_params p;
    sampler_params_default(&p);
    struct logit_bias bias[] = {{42, 100}, {43, -100}};
    p.bias = bias;
    p.bias_count = 2;
    struct sampler *s = sampler_of(&b, &p);
    bias[0].id = 9; /* copied: this changes nothing */
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(sample_at(&b, s, i, 0).id, 42);
    arena_free(b.a);
}

TEST(min_tokens_masks_end_tokens_until_then)
{
    struct bench b;
    bench_init(&b, 6);
    struct sampler_params p;
    sampler_params_default(&p);
    p.temperature = 0;
    p.min_tokens = 3;
    p.stop_ids[0] = 77;
    p.stop_count = 1;
    b.logits[77] = 50;
    struct sampler *s = sampler_of(&b, &p);
    for (uint32_t outputs = 0; outputs < 6; outputs++) {
        struct sampled got = sample_at(&b, s, outputs, outputs);
        assert_int_equal(got.id == 77, outputs >= 3);
        assert_int_equal(got.stop, outputs >= 3);
    }
    arena_free(b.a);
}

TEST(ids_without_a_token_are_never_sampled_nor_listed)
{
    struct bench b;
    bench_init(&b, 7);
    uint64_t valid_ids[(VOCAB + 63) / 64] = {0};
    valid_ids[0] = 0xff00; /* ids 8 to 15 */
    b.logits[99] = 30;
    b.logits[9] = NAN;
    struct sampler_params p;
    sampler_params_default(&p);
    p.temperature = 2;
    p.logprobs = true;
    p.top_logprobs = SAMPLER_TOP_MAX;
    struct sampler *s = sampler_of(&b, &p);
    for (uint32_t i = 0; i < 500; i++) {
        float logits[VOCAB];
        struct sampled got;
        memcpy(logits, b.logits, sizeof(logits));
        sampler_sample(s, b.scratch, logits, VOCAB, valid_ids, i, 0, &got);
        assert_true(got.id >= 8 && got.id < 16 && got.id != 9);
        assert_int_equal(got.top_count, 8);
        for (uint32_t j = 0; j < got.top_count; j++)
            assert_true(got.top[j].id >= 8 && got.top[j].id < 16);
    }
    arena_free(b.a);
}

TEST(logprobs_are_the_models_own)
{
    struct bench b;
    bench_init(&b, 8);
    struct sampler_params p;
    sampler_params_default(&p);
    p.temperature = 0.1f;
    p.logprobs = true;
    p.top_logprobs = 5;
    struct logit_bias bias[] = {{42, 100}};
    p.bias = bias;
    p.bias_count = 1;
    struct sampled got = sample_at(&b, sampler_of(&b, &p), 0, 0);
    double sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)b.logits[i]);
    assert_int_equal(got.id, 42);
    assert_float_equal(got.logprob, (float)((double)b.logits[42] - log(sum)), 1e-5);
    assert_int_equal(got.top_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t better = 0, id = got.top[i].id;
        for (uint32_t j = 0; j < VOCAB; j++)
            better += b.logits[j] > b.logits[id] || (b.logits[j] == b.logits[id] && j < id);
        assert_int_equal(better, i);
        assert_float_equal(got.top[i].logprob, (float)((double)b.logits[id] - log(sum)), 1e-5);
    }
    arena_free(b.a);
}

TEST(a_row_of_nothing_says_so)
{
    struct bench b;
    bench_init(&b, 9);
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t k = 0; k < VOCAB; k++)
            b.logits[k] = i % 2 ? NAN : -INFINITY;
        if (i >= 4)
            b.logits[7] = i == 4 ? -3e38f : INFINITY;
        struct sampler_params p;
        sampler_params_default(&p);
        p.temperature = i < 2 ? 0 : 1;
        struct sampled got = sample_at(&b, sampler_of(&b, &p), 0, 0);
        assert_int_equal(got.none, i < 4);
        assert_true(got.none ? got.id < VOCAB : got.id == 7);
    }
    arena_free(b.a);
}

TEST(bounds_are_checked_and_named)
{
    struct sampler_params p;
    struct err e;
#define REFUSES(field, value)                                                                                \
    do {                                                                                                     \
        sampler_params_default(&p);                                                                          \
        p.field = value;                                                                                     \
        assert_true(sampler_params_check(&p, VOCAB, &e) < 0);                                                \
        assert_non_null(strstr(e.text, #field));                                                             \
    } while (0)
    REFUSES(temperature, -0.1f);
    REFUSES(temperature, 2.1f);
    REFUSES(temperature, NAN);
    REFUSES(top_p, 0.0f);
    REFUSES(top_p, 1.1f);
    REFUSES(min_p, 1.0f);
    REFUSES(repetition_penalty, 0.0f);
    REFUSES(presence_penalty, 2.5f);
    REFUSES(frequency_penalty, -3.0f);
    REFUSES(top_logprobs, 21);
    sampler_params_default(&p);
    p.stop_ids[0] = VOCAB;
    p.stop_count = 1;
    assert_true(sampler_params_check(&p, VOCAB, &e) < 0);
    struct logit_bias bias = {VOCAB, 1};
    sampler_params_default(&p);
    p.bias = &bias;
    p.bias_count = 1;
    assert_true(sampler_params_check(&p, VOCAB, &e) < 0);
}

TEST(before_min_tokens_something_may_be_sampled)
{
    struct logit_bias bias[] = {{5, 0}, {6, 0}};
    struct sampler_params p;
    struct err e;
    sampler_params_default(&p);
    p.bias = bias;
    p.bias_count = 2;
    p.only_biased = true;
    p.stop_ids[0] = 6;
    p.stop_ids[1] = 5;
    p.stop_count = 2;
    assert_int_equal(sampler_params_check(&p, VOCAB, &e), 0);
    p.min_tokens = 1;
    assert_int_equal(sampler_params_check(&p, VOCAB, &e), -EINVAL);
    assert_non_null(strstr(e.text, "min_tokens"));
    p.stop_count = 1;
    assert_int_equal(sampler_params_check(&p, VOCAB, &e), 0);
    p.stop_count = 2;
    p.only_biased = false;
    assert_int_equal(sampler_params_check(&p, VOCAB, &e), 0);
}

TEST(a_sampler_fits_in_what_it_says)
{
    struct sampler_params p;
    sampler_params_default(&p);
    p.presence_penalty = 1;
    for (uint32_t tokens = 1; tokens < 5000; tokens = tokens * 3 + 1) {
        struct arena *a;
        struct sampler *s;
        assert_int_equal(arena_create(&(struct arena_opts){4 << 20, 0, NULL}, &a), 0);
        size_t before = arena_mark(a);
        assert_int_equal(sampler_create(a, &p, tokens, &s), 0);
        assert_true(arena_mark(a) - before <= sampler_bytes(&p, tokens));
        for (uint32_t i = 0; i < tokens; i++)
            sampler_see_output(s, i);
        arena_free(a);
    }
}

TEST(a_draft_token_that_is_kept_may_stop_the_row)
{
    struct bench b;
    struct sampler_params p;
    struct sampled sampled = {.stop = true};
    bench_init(&b, 1);
    sampler_params_default(&p);
    p.stop_ids[0] = 5;
    p.stop_count = 1;
    p.min_tokens = 3;
    struct sampler *s = sampler_of(&b, &p);
    assert_false(sampler_keep(s, b.logits, VOCAB, NULL, 5, 2, &sampled));
    assert_true(sampler_keep(s, b.logits, VOCAB, NULL, 6, 2, &sampled));
    assert_true(sampled.id == 6 && !sampled.stop && sampled.top_count == 0);
    assert_true(sampler_keep(s, b.logits, VOCAB, NULL, 5, 3, &sampled));
    assert_true(sampled.id == 5 && sampled.stop);
    arena_free(b.a);
}

TEST_MAIN()
