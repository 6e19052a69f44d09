/* Samples from whole rows, and orders for a device that its reference carries out (compute/row_sample.h),
 * against one plain definition: the same tokens and the same bits of logprobs. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "base/err.h"
#include "compute/row_sample.h"
#include "compute/row_top.h"
#include "sample/sampler.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define VOCAB_MAX 1500
#define SEEN_MAX  40
#define CASES     12 /* settings for each row */

/* ---- the plain definition ---- */

struct scene {
    struct rng rng;
    uint32_t vocab;
    float logits[VOCAB_MAX];
    uint64_t valid_ids[VOCAB_MAX / 64 + 1];
    struct sampler_params params;
    struct logit_bias bias[4];
    uint32_t prompt[SEEN_MAX], prompt_count, output[SEEN_MAX], outputs, position;
    /* Plain definition: the row without tokens that do not exist, and with edits. */
    float raw[VOCAB_MAX], edited[VOCAB_MAX];
};

static int order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_valid(const struct scene *s, uint32_t id)
{
    return s->valid_ids[id / 64] >> (id % 64) & 1;
}

static void plain_penalty(struct scene *s, uint32_t id)
{
    const struct sampler_params *p = &s->params;
    uint32_t times = 0, seen = 0;
    for (uint32_t i = 0; i < s->prompt_count; i++)
        seen += s->prompt[i] == id;
    for (uint32_t i = 0; i < s->outputs; i++)
        times += s->output[i] == id;
    if (seen + times == 0)
        return;
    float *l = &s->edited[id];
    *l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
    if (times > 0)
        *l -= p->presence_penalty + p->frequency_penalty * (float)times;
}

static void plain_edits(struct scene *s)
{
    const struct sampler_params *p = &s->params;
    for (uint32_t i = 0; i < s->vocab; i++)
        s->raw[i] = isnan(s->logits[i]) || !is_valid(s, i) ? -INFINITY : s->logits[i];
    memcpy(s->edited, s->raw, sizeof(s->raw));
    for (uint32_t i = 0; i < p->bias_count; i++)
        s->edited[p->bias[i].id] += p->bias[i].bias;
    for (uint32_t i = 0; s->outputs < p->min_tokens && i < p->stop_count; i++)
        s->edited[p->stop_ids[i]] = -INFINITY;
    if (p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0)
        for (uint32_t i = 0; i < s->vocab; i++)
            plain_penalty(s, i);
}

/* The best tokens that top_k and top_p keep of `count` sorted ones; *mass: of all, then of the kept ones. */
static uint32_t plain_keep(const struct sampler_params *p, const struct candidate *c, uint32_t count,
                           double *mass)
{
    uint32_t k = p->top_k > 0 ? MIN_OF(p->top_k, count) : count, kept = 0;
    double goal = *mass, sum = 0;
    if (k < count) {
        for (goal = 0; kept < k; kept++)
            goal += exp((double)c[kept].logit);
        *mass = goal;
        if (p->top_p == 1)
            return k;
    }
    goal *= (double)p->top_p;
    for (kept = 0; kept < k && sum < goal; kept++)
        sum += exp((double)c[kept].logit);
    *mass = sum;
    return kept;
}

static uint32_t plain_sample(const struct scene *s)
{
    static struct candidate c[VOCAB_MAX];
    const struct sampler_params *p = &s->params;
    uint32_t best = 0, count = 0, kept;
    for (uint32_t i = 1; i < s->vocab; i++)
        best = s->edited[i] > s->edited[best] ? i : best;
    if (p->temperature == 0 || p->top_k == 1 || !isfinite(s->edited[best]))
        return best;
    float window = p->min_p > 0 ? MIN_OF(27.631021f, -logf(p->min_p)) : 27.631021f;
    double mass = 0, sum = 0;
    for (uint32_t i = 0; i < s->vocab; i++) {
        float below = (s->edited[i] - s->edited[best]) / p->temperature;
        if (below >= -window) {
            c[count++] = (struct candidate){below, i};
            mass += exp((double)below);
        }
    }
    bool sorted = (p->top_k > 0 && p->top_k < count) || p->top_p < 1;
    kept = count;
    if (sorted) {
        qsort(c, count, sizeof(c[0]), order);
        kept = plain_keep(p, c, count, &mass);
    }
    double target = rng_uniform_at(p->seed, s->position) * mass;
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t at = sorted ? i : count - 1 - i;
        sum += exp((double)c[at].logit);
        if (sum > target)
            return c[at].id;
    }
    return c[sorted ? kept - 1 : 0].id;
}

static void plain_logprobs(const struct scene *s, struct sampled *ret)
{
    static struct candidate c[VOCAB_MAX];
    uint32_t count = 0;
    float max = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < s->vocab; i++)
        max = is_valid(s, i) && s->raw[i] > max ? s->raw[i] : max;
    for (uint32_t i = 0; i < s->vocab; i++) {
        if (!is_valid(s, i))
            continue;
        sum += exp((double)(s->raw[i] - max));
        c[count++] = (struct candidate){s->raw[i], i};
    }
    double log_sum = (double)max + log(sum);
    qsort(c, count, sizeof(c[0]), order);
    ret->logprob = (float)((double)s->raw[ret->id] - log_sum);
    ret->top_count = MIN_OF(count, s->params.top_logprobs);
    for (uint32_t i = 0; i < ret->top_count; i++)
        ret->top[i] = (struct sampler_alternative){c[i].id, (float)((double)c[i].logit - log_sum)};
}

static void plain(struct scene *s, struct sampled *ret)
{
    plain_edits(s);
    *ret = (struct sampled){.id = plain_sample(s)};
    for (uint32_t i = 0; i < s->params.stop_count; i++)
        ret->stop |= s->outputs >= s->params.min_tokens && s->params.stop_ids[i] == ret->id;
    if (s->params.logprobs)
        plain_logprobs(s, ret);
}

static bool is_same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

/* Sums of the same terms differ by their rounding. */
static bool is_near_float(float a, float b)
{
    return is_same_float(a, b) || fabsf(a - b) <= FLT_EPSILON * MAX_OF(fabsf(a), 1.0f);
}

static void assert_same_by(const struct scene *s, const struct sampled *a, const struct sampled *b,
                           bool same(float a, float b))
{
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->stop, b->stop);
    assert_int_equal(a->top_count, b->top_count);
    if (s->params.logprobs)
        assert_true(same(a->logprob, b->logprob));
    for (uint32_t i = 0; i < a->top_count; i++) {
        assert_int_equal(a->top[i].id, b->top[i].id);
        assert_true(same(a->top[i].logprob, b->top[i].logprob));
    }
}

/* ---- rows and settings ---- */

/* Roughly normal, deviation 1. */
static double normal(struct rng *rng)
{
    double sum = -6;
    for (uint32_t i = 0; i < 12; i++)
        sum += rng_uniform(rng);
    return sum;
}

static void make_row(struct scene *s)
{
    struct rng *rng = &s->rng;
    uint32_t kind = (uint32_t)rng_below(rng, 5);
    static const uint32_t vocabs[] = {1, 7, 65, 300, VOCAB_MAX, VOCAB_MAX};
    s->vocab = vocabs[rng_below(rng, COUNT_OF(vocabs))];
    uint64_t missing = rng_below(rng, 6) == 0 ? 2 : 400;
    memset(s->valid_ids, 0xff, sizeof(s->valid_ids));
    for (uint32_t i = 0; i < s->vocab; i++) {
        double peak = rng_below(rng, 50) == 0 ? rng_uniform(rng) * 20 : 0;
        double values[] = {normal(rng) * 3 + peak,                /* like a model's */
                           rng_uniform(rng) * 16 - 8,             /* flat */
                           floor(normal(rng) * 8 + peak * 4) / 4, /* with ties */
                           1 + rng_uniform(rng) * 1e-5,           /* equal after a subtraction from 30 */
                           normal(rng) * 40};
        s->logits[i] = (float)values[kind];
        if (rng_below(rng, missing) == 0)
            s->valid_ids[i / 64] &= ~((uint64_t)1 << (i % 64));
    }
    if (kind == 3)
        s->logits[rng_below(rng, s->vocab)] = 3;
    if (rng_below(rng, 8) == 0)
        for (uint32_t i = 0; i < 5; i++)
            s->logits[rng_below(rng, s->vocab)] = i == 4 && rng_below(rng, 3) == 0 ? INFINITY
                                                  : i % 2                          ? NAN
                                                                                   : -INFINITY;
}

static float choose(struct rng *rng, const float *values, uint32_t count)
{
    return values[rng_below(rng, count)];
}
#define CHOOSE(...) choose(rng, (const float[]){__VA_ARGS__}, COUNT_OF(((const float[]){__VA_ARGS__})))

static void make_edits(struct scene *s)
{
    struct rng *rng = &s->rng;
    struct sampler_params *p = &s->params;
    p->repetition_penalty = CHOOSE(1, 1, 1.1f, 0.8f);
    p->presence_penalty = CHOOSE(0, 0, 0.5f, -1);
    p->frequency_penalty = CHOOSE(0, 0, 0.25f, -0.25f);
    p->bias_count = (uint32_t)rng_below(rng, 4);
    p->bias = s->bias;
    for (uint32_t i = 0; i < p->bias_count; i++)
        s->bias[i] = (struct logit_bias){(uint32_t)rng_below(rng, s->vocab), CHOOSE(-100, -3, 2, 100)};
    p->min_tokens = (uint32_t)rng_below(rng, 12);
    if (rng_below(rng, 2) == 0)
        return;
    p->repetition_penalty = MAX_OF(p->repetition_penalty, 1.0f); /* edits that raise no logit */
    p->presence_penalty = fabsf(p->presence_penalty);
    p->frequency_penalty = fabsf(p->frequency_penalty);
    for (uint32_t i = 0; i < p->bias_count; i++)
        s->bias[i].bias = -fabsf(s->bias[i].bias);
}

static void make_settings(struct scene *s)
{
    struct rng *rng = &s->rng;
    struct sampler_params *p = &s->params;
    sampler_params_default(p);
    p->temperature = CHOOSE(0, 0.3f, 0.7f, 1, 1, 1.3f, 2, 1e-3f);
    p->top_k = (uint32_t)CHOOSE(0, 0, 0, 0, 0, 1, 5, 40, 1000, 5000);
    p->top_p = CHOOSE(1, 1, 0.95f, 0.9f, 0.5f, 0.01f);
    p->min_p = CHOOSE(0, 0, 0, 0.05f, 0.001f);
    p->seed = rng_next(rng);
    p->logprobs = rng_below(rng, 3) == 0;
    p->top_logprobs = p->logprobs ? (uint32_t)CHOOSE(0, 1, 5, SAMPLER_TOP_MAX) : 0;
    p->stop_count = (uint32_t)rng_below(rng, 3);
    for (uint32_t i = 0; i < p->stop_count; i++)
        p->stop_ids[i] = (uint32_t)rng_below(rng, s->vocab);
    s->position = (uint32_t)rng_below(rng, 100000);
    s->prompt_count = (uint32_t)rng_below(rng, SEEN_MAX);
    s->outputs = (uint32_t)rng_below(rng, SEEN_MAX / 2);
    for (uint32_t i = 0; i < SEEN_MAX; i++) {
        s->prompt[i] = (uint32_t)rng_below(rng, s->vocab);
        s->output[i] = (uint32_t)rng_below(rng, MIN_OF(s->vocab, 9u));
    }
    if (rng_below(rng, 3) == 0)
        make_edits(s);
}

/* ---- the subject ---- */

struct subject {
    struct arena *a;
    struct sampler_scratch *scratch;
    struct sampler *sampler;
};

static void subject_init(struct subject *u, const struct scene *s)
{
    struct err e;
    assert_int_equal(arena_create(&(struct arena_opts){1 << 20, 0, NULL}, &u->a), 0);
    assert_int_equal(sampler_scratch_create(u->a, VOCAB_MAX, &u->scratch), 0);
    assert_int_equal(sampler_params_check(&s->params, s->vocab, &e), 0);
    assert_int_equal(sampler_create(u->a, &s->params, SEEN_MAX * 2, &u->sampler), 0);
    sampler_see_prompt(u->sampler, s->prompt, s->prompt_count);
    for (uint32_t i = 0; i < s->outputs; i++)
        sampler_see_output(u->sampler, s->output[i]);
}

static void sample_whole(const struct subject *u, const struct scene *s, struct sampled *ret)
{
    float logits[VOCAB_MAX];
    memcpy(logits, s->logits, sizeof(logits));
    sampler_sample(u->sampler, u->scratch, logits, s->vocab, s->valid_ids, s->position, s->outputs, ret);
}

/* Samples like a device. Some of the outputs may be drafts that the sampler has not seen. */
static void sample_order(const struct subject *u, const struct scene *s, const uint32_t *drafts,
                         uint32_t draft_count, const uint64_t *mask, struct row_sampled *sampled,
                         struct row_top *top)
{
    static struct candidate list[VOCAB_MAX];
    static struct row_edit edits[SEEN_MAX * 3];
    struct row_sample order;
    float logits[VOCAB_MAX];
    const struct sampler_position at = {s->position, s->outputs, drafts, draft_count};
    assert_true(sampler_order(u->sampler, &at, s->vocab, edits, COUNT_OF(edits), &order));
    order.wanted = 1;
    order.mask = mask ? 0 : ROW_SAMPLE_ALL;
    const struct row_samples samples = {.rows = &order,
                                        .edits = edits,
                                        .edit_count =
                                            order.bias_count + order.banned_count + order.seen_count,
                                        .masks = mask,
                                        .mask_count = mask != NULL};
    assert_true(samples.edit_count <= COUNT_OF(edits));
    memcpy(logits, s->logits, sizeof(logits));
    row_top_of(logits, s->vocab, s->valid_ids, order.tops, top);
    row_sample_of(&samples, 0, logits, s->vocab, s->valid_ids, list, sampled);
    sampled->logit = s->logits[sampled->id];
}

static void assert_taken(const struct subject *u, const struct scene *s, const struct row_sampled *sampled,
                         const struct row_top *top, const struct sampled *want)
{
    struct sampled got;
    if (!sampler_take(u->sampler, sampled, top, s->outputs, &got)) {
        assert_true(top->count < s->params.top_logprobs);
        return;
    }
    assert_int_equal(got.none, want->none);
    if (!got.none)
        assert_same_by(s, &got, want, is_same_float);
}

static bool names_twice(const struct sampler_params *p)
{
    bool twice = false;
    for (uint32_t i = 0; i < p->bias_count; i++)
        for (uint32_t k = 0; k < i; k++)
            twice |= p->bias[i].id == p->bias[k].id;
    return twice;
}

static void compare(uint64_t seed)
{
    static struct scene s;
    s = (struct scene){.rng = {seed, 0}};
    make_row(&s);
    for (uint32_t i = 0; i < CASES; i++) {
        struct subject u;
        struct sampled want, whole;
        struct row_sampled sampled;
        struct row_top top;
        make_settings(&s);
        subject_init(&u, &s);
        plain(&s, &want);
        sample_whole(&u, &s, &whole);
        assert_same_by(&s, &whole, &want, is_near_float);
        if (!names_twice(&s.params)) {
            sample_order(&u, &s, NULL, 0, NULL, &sampled, &top);
            assert_taken(&u, &s, &sampled, &top, &whole);
        }
        arena_free(u.a);
    }
}

PROPERTY(whole_rows_and_orders_sample_by_one_definition, seed)
{
    for (uint64_t i = 0; i < 5; i++)
        compare(seed * 8 + i);
}

/* The last outputs are drafts that the sampler has not seen. */
PROPERTY(drafts_count_as_outputs, seed)
{
    static struct scene s;
    s = (struct scene){.rng = {seed, 0}};
    make_row(&s);
    for (uint32_t i = 0; i < CASES; i++) {
        struct subject u, before;
        struct sampled whole;
        struct row_sampled sampled;
        struct row_top top;
        make_settings(&s);
        make_edits(&s);
        if (names_twice(&s.params))
            continue;
        const uint32_t all = s.outputs, drafts = (uint32_t)rng_below(&s.rng, MIN_OF(all, 5u) + 1);
        subject_init(&u, &s);
        sample_whole(&u, &s, &whole);
        s.outputs -= drafts;
        subject_init(&before, &s);
        s.outputs = all;
        sample_order(&before, &s, s.output + all - drafts, drafts, NULL, &sampled, &top);
        assert_taken(&before, &s, &sampled, &top, &whole);
        arena_free(u.a);
        arena_free(before.a);
    }
}

/* A mask beside the row does what sampler_allow() does; only_biased is a mask, too. */
PROPERTY(masks_are_those_of_allowed_ids, seed)
{
    static struct scene s;
    s = (struct scene){.rng = {seed, 0}};
    make_row(&s);
    for (uint32_t i = 0; i < CASES; i++) {
        struct subject u;
        struct sampled whole;
        struct row_sampled sampled;
        struct row_top top;
        uint64_t allowed[VOCAB_MAX / 64 + 1], mask[VOCAB_MAX / 64 + 1];
        make_settings(&s);
        make_edits(&s);
        s.params.only_biased = s.params.bias_count > 0 && s.params.min_tokens == 0;
        if (names_twice(&s.params))
            continue;
        for (uint32_t w = 0; w < COUNT_OF(allowed); w++)
            allowed[w] = rng_next(&s.rng);
        memcpy(mask, allowed, sizeof(mask));
        subject_init(&u, &s);
        sampler_allow(u.sampler, allowed);
        sample_whole(&u, &s, &whole);
        if (s.params.only_biased)
            sampler_mask_biased(u.sampler, mask, s.vocab);
        sample_order(&u, &s, NULL, 0, mask, &sampled, &top);
        assert_taken(&u, &s, &sampled, &top, &whole);
        arena_free(u.a);
    }
}

TEST(edits_without_room_and_ids_named_twice_are_left_to_the_host)
{
    static struct scene s;
    static const struct logit_bias twice[] = {{3, 1}, {4, 1}, {3, -2}};
    struct row_edit edits[4];
    struct row_sample order;
    struct subject u;
    s = (struct scene){.vocab = 100, .prompt = {1, 2, 3, 2}, .prompt_count = 4};
    const struct sampler_position at = {.position = 4};
    sampler_params_default(&s.params);
    s.params.repetition_penalty = 1.5f;
    subject_init(&u, &s);
    assert_false(sampler_order(u.sampler, &at, s.vocab, edits, 2, &order));
    assert_true(sampler_order(u.sampler, &at, s.vocab, edits, 3, &order));
    assert_int_equal(order.seen_count, 3);
    arena_free(u.a);
    sampler_params_default(&s.params);
    s.params.bias = twice;
    s.params.bias_count = 2;
    subject_init(&u, &s);
    assert_true(sampler_order(u.sampler, &at, s.vocab, edits, 4, &order));
    arena_free(u.a);
    s.params.bias_count = 3;
    subject_init(&u, &s);
    assert_false(sampler_order(u.sampler, &at, s.vocab, edits, 4, &order));
    arena_free(u.a);
}

/* A token is taken only if the device sampled one, and found all alternatives. */
TEST(what_a_device_leaves_is_not_taken)
{
    static struct scene s;
    const struct row_top one = {.count = 1, .list = {{2, 7}}};
    struct row_sampled sampled = {.state = ROW_LEFT};
    struct sampled got;
    struct subject u;
    s = (struct scene){.vocab = 100};
    sampler_params_default(&s.params);
    s.params.logprobs = true;
    s.params.top_logprobs = 2;
    subject_init(&u, &s);
    assert_false(sampler_take(u.sampler, &sampled, &one, 0, &got));
    sampled = (struct row_sampled){ROW_SAMPLED, 7, 2, 2, 2};
    assert_false(sampler_take(u.sampler, &sampled, &one, 0, &got));
    sampled.state = ROW_EMPTY;
    const struct row_top two = {.count = 2, .list = {{2, 7}, {1, 9}}};
    assert_true(sampler_take(u.sampler, &sampled, &two, 0, &got));
    assert_true(got.none && got.top_count == 2 && got.top[1].id == 9);
    arena_free(u.a);
}

TEST_MAIN()
