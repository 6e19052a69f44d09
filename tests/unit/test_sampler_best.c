/* Draws from whole rows and from lists of the best tokens, against one plain definition: the same tokens and
 * the same bits of logprobs. A list may not suffice; how often is checked too. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
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
    /* Of the plain definition: the row without tokens that do not exist, the same with edits. */
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

static uint32_t plain_draw(const struct scene *s)
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
    *ret = (struct sampled){.id = plain_draw(s)};
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

static bool has_edits(const struct sampler_params *p, uint32_t outputs)
{
    return p->bias_count > 0 || p->repetition_penalty != 1 || p->presence_penalty != 0 ||
           p->frequency_penalty != 0 || (outputs < p->min_tokens && p->stop_count > 0);
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

static void draw_whole(const struct subject *u, const struct scene *s, struct sampled *ret)
{
    float logits[VOCAB_MAX];
    memcpy(logits, s->logits, sizeof(logits));
    sampler_draw(u->sampler, u->scratch, logits, s->vocab, s->valid_ids, s->position, s->outputs, ret);
}

/* What a device makes of the row: sums in another order, and off by a part of `error`. */
static void make_best(struct scene *s, double error, bool edited, struct candidate *list,
                      struct sampler_best *ret)
{
    long double sum = 0, mass = 0;
    for (uint32_t i = 0; i < s->vocab; i++)
        list[i] = (struct candidate){edited ? s->edited[i] : s->raw[i], i};
    qsort(list, s->vocab, sizeof(list[0]), order);
    for (uint32_t i = s->vocab; i-- > 0;) {
        float below = list[i].logit - list[0].logit;
        sum += expl((long double)below);
        mass += expl((long double)(below / s->params.temperature));
    }
    double off = rng_uniform(&s->rng) * 2 - 1;
    *ret = (struct sampler_best){.list = list,
                                 .vocab = s->vocab,
                                 .edited = edited,
                                 .sum = (double)sum * (1 + error * off),
                                 .mass = (double)mass * (1 + error * off),
                                 .error = error};
}

/* ---- how often lists suffice ---- */

enum use { GREEDY, TOP_K, TOP_P, MIN_P, PLAIN, USES };

static enum use use_of(const struct sampler_params *p)
{
    if (p->temperature == 0 || p->top_k == 1)
        return GREEDY;
    if (p->top_k > 0)
        return TOP_K;
    if (p->top_p < 1)
        return TOP_P;
    return p->min_p > 0 ? MIN_P : PLAIN;
}

struct tally {
    uint32_t drawn[USES], sufficed[USES]; /* of lists of 64 and more, without logprobs */
    uint32_t lowered, lowered_sufficed;   /* of lists of 300 and more that lack edits */
    uint32_t logprobs, logprobs_sufficed;
};

static void count_draw(struct tally *t, const struct scene *s, const struct sampler_best *b, bool sufficed)
{
    if (b->count < 64 || b->error > 1e-11 || !isfinite(b->list[0].logit))
        return;
    if (s->params.logprobs && !has_edits(&s->params, s->outputs)) {
        t->logprobs++;
        t->logprobs_sufficed += sufficed;
    } else if (!s->params.logprobs) {
        t->drawn[use_of(&s->params)]++;
        t->sufficed[use_of(&s->params)] += sufficed;
    }
}

static bool lowers_only(const struct sampler_params *p)
{
    bool lowers = p->repetition_penalty >= 1 && p->presence_penalty >= 0 && p->frequency_penalty >= 0;
    for (uint32_t i = 0; i < p->bias_count; i++)
        lowers = lowers && p->bias[i].bias <= 0;
    return lowers;
}

/* Lists of the model's logits, where the draw's are others. */
static void compare_unedited(struct scene *s, const struct subject *u, const struct sampled *want,
                             struct tally *tally)
{
    static struct candidate list[VOCAB_MAX];
    static const uint32_t counts[] = {1, 2, 6, 20, 64, 300, 700, VOCAB_MAX};
    struct sampler_best best;
    const struct sampler_params *p = &s->params;
    make_best(s, 1e-12, false, list, &best);
    for (uint32_t i = 0; i < COUNT_OF(counts) && has_edits(p, s->outputs); i++) {
        struct sampled got = {.id = UINT32_MAX};
        best.count = MIN_OF(counts[i], s->vocab);
        bool sufficed = sampler_draw_best(u->sampler, u->scratch, &best, s->position, s->outputs, &got);
        if (sufficed)
            assert_same_by(s, &got, want, is_same_float);
        else
            assert_int_equal(got.id, UINT32_MAX);
        if (best.count < 300 || 2 * best.count > s->vocab || p->logprobs || !lowers_only(p) ||
            !isfinite(best.list[0].logit) || (use_of(p) != TOP_K && use_of(p) != GREEDY) || p->top_k > 100)
            continue;
        tally->lowered++;
        tally->lowered_sufficed += sufficed;
    }
}

static void compare_lists(struct scene *s, const struct subject *u, const struct sampled *want,
                          struct tally *tally)
{
    static struct candidate list[VOCAB_MAX];
    static const uint32_t counts[] = {1, 2, 6, 20, 64, 300, 1024, VOCAB_MAX};
    static const double errors[] = {1e-15, 1e-12, 1e-6, 1e-2};
    struct sampler_best best;
    make_best(s, errors[rng_below(&s->rng, COUNT_OF(errors))], true, list, &best);
    for (uint32_t i = 0; i < COUNT_OF(counts); i++) {
        struct sampled got = {.id = UINT32_MAX};
        best.count = MIN_OF(counts[i], s->vocab);
        best.edited = rng_below(&s->rng, 4) > 0 || has_edits(&s->params, s->outputs);
        bool sufficed = sampler_draw_best(u->sampler, u->scratch, &best, s->position, s->outputs, &got);
        if (sufficed)
            assert_same_by(s, &got, want, is_same_float);
        else
            assert_int_equal(got.id, UINT32_MAX);
        count_draw(tally, s, &best, sufficed);
    }
}

static void compare(uint64_t seed, struct tally *tally)
{
    static struct scene s;
    s = (struct scene){.rng = {seed, 0}};
    make_row(&s);
    for (uint32_t i = 0; i < CASES; i++) {
        struct subject u;
        struct sampled want, whole;
        make_settings(&s);
        subject_init(&u, &s);
        plain(&s, &want);
        draw_whole(&u, &s, &whole);
        assert_same_by(&s, &whole, &want, is_near_float);
        compare_lists(&s, &u, &whole, tally);
        compare_unedited(&s, &u, &whole, tally);
        arena_free(u.a);
    }
}

PROPERTY(whole_rows_and_lists_draw_by_one_definition, seed)
{
    struct tally tally = {0};
    for (uint64_t i = 0; i < 5; i++)
        compare(seed * 8 + i, &tally);
}

TEST(lists_suffice_where_they_can)
{
    struct tally t = {0};
    for (uint64_t seed = 1; seed <= 200; seed++)
        compare(seed, &t);
    for (enum use i = 0; i < USES; i++) {
        print_message("use %d: %u of %u lists sufficed\n", (int)i, t.sufficed[i], t.drawn[i]);
        assert_true(t.drawn[i] >= 100);
    }
    print_message("logprobs: %u of %u\n", t.logprobs_sufficed, t.logprobs);
    print_message("edits that lower logits: %u of %u\n", t.lowered_sufficed, t.lowered);
    assert_true(t.lowered >= 30 && t.lowered_sufficed * 10 >= t.lowered * 8);
    assert_int_equal(t.sufficed[GREEDY], t.drawn[GREEDY]);
    assert_true(t.sufficed[TOP_K] * 10 >= t.drawn[TOP_K] * 7);
    assert_true(t.sufficed[TOP_P] * 10 >= t.drawn[TOP_P] * 6);
    assert_true(t.sufficed[MIN_P] * 10 >= t.drawn[MIN_P] * 6);
    assert_true(t.sufficed[PLAIN] >= 20 && t.sufficed[PLAIN] < t.drawn[PLAIN]);
    assert_true(t.logprobs_sufficed * 2 >= t.logprobs && t.logprobs_sufficed < t.logprobs);
}

/* A row of `count` tokens, the list of its best `listed`, and default settings. */
static void make_simple(struct scene *s, const float *logits, uint32_t count, uint32_t listed,
                        struct candidate *list, struct sampler_best *best)
{
    *s = (struct scene){.rng = {1, 0}, .vocab = count};
    memset(s->valid_ids, 0xff, sizeof(s->valid_ids));
    memcpy(s->logits, logits, count * sizeof(*logits));
    sampler_params_default(&s->params);
    plain_edits(s);
    make_best(s, 1e-12, true, list, best);
    best->count = listed;
}

static bool suffices(struct scene *s, const struct sampler_best *best)
{
    struct subject u;
    struct sampled got;
    subject_init(&u, s);
    bool ret = sampler_draw_best(u.sampler, u.scratch, best, s->position, s->outputs, &got);
    arena_free(u.a);
    return ret;
}

TEST(a_plain_temperature_needs_the_whole_window)
{
    static const float logits[] = {9, 8, 7, 0, -100, -100};
    struct candidate list[6];
    struct sampler_best best;
    struct scene s;
    make_simple(&s, logits, 6, 4, list, &best);
    assert_false(suffices(&s, &best)); /* the fifth might count */
    best.count = 5;
    assert_true(suffices(&s, &best));
    s.params.min_p = 0.01f;
    best.count = 4;
    assert_true(suffices(&s, &best));
    s.params.min_p = 0;
    s.params.top_k = 2;
    assert_true(suffices(&s, &best));
    s.params.top_k = 3; /* the fifth might weigh as much as the fourth */
    assert_false(suffices(&s, &best));
    s.params.top_k = 0;
    s.params.top_p = 0.99f;
    assert_true(suffices(&s, &best));
    s.params.top_p = 0.99999f;
    assert_false(suffices(&s, &best));
}

TEST(an_end_of_top_p_within_the_error_refuses)
{
    static const float logits[] = {1, 1, 1, 1};
    struct candidate list[4];
    struct sampler_best best;
    struct scene s;
    make_simple(&s, logits, 4, 4, list, &best);
    s.params.top_p = 0.5f;
    assert_false(suffices(&s, &best));
    s.params.top_p = 0.51f;
    assert_true(suffices(&s, &best));
}

/* Token 2 is not in the list, and equals an edited one that is. */
TEST(an_edited_token_like_the_lists_last_is_not_in_order)
{
    static const float logits[] = {-90, 5, 5, -90, -90, 9};
    static const struct logit_bias bias[] = {{5, -4}, {1, -3}};
    struct candidate list[6];
    struct sampler_best best;
    struct scene s;
    make_simple(&s, logits, 6, 2, list, &best);
    best.edited = false;
    s.params.temperature = 0;
    assert_true(suffices(&s, &best));
    memcpy(s.bias, bias, sizeof(bias));
    s.params.bias = s.bias;
    s.params.bias_count = 2;
    assert_false(suffices(&s, &best));
    s.bias[0].bias = -3.5f;
    assert_true(suffices(&s, &best));
}

TEST(a_list_without_edits_serves_samplers_without)
{
    static const float logits[] = {9, 8, -90};
    struct candidate list[3];
    struct sampler_best best;
    struct scene s;
    make_simple(&s, logits, 3, 3, list, &best);
    best.edited = false;
    assert_true(suffices(&s, &best));
    s.params.stop_ids[0] = 1;
    s.params.stop_count = 1;
    s.params.min_tokens = 2;
    s.outputs = 1;
    assert_false(suffices(&s, &best));
    s.outputs = 2;
    assert_true(suffices(&s, &best));
    s.params.frequency_penalty = 1;
    assert_false(suffices(&s, &best));
    best.edited = true;
    assert_true(suffices(&s, &best));
    s.params.logprobs = true; /* of the logits before the edits */
    assert_false(suffices(&s, &best));
}

TEST(logprobs_need_their_alternatives_and_an_exact_sum)
{
    static const float logits[] = {9, 8, 7, 0, -100, -100};
    struct candidate list[6];
    struct sampler_best best;
    struct scene s;
    make_simple(&s, logits, 6, 3, list, &best);
    s.params.temperature = 0;
    s.params.logprobs = true;
    s.params.top_logprobs = 3;
    assert_true(suffices(&s, &best));
    best.error = 1e-5;
    assert_false(suffices(&s, &best));
    best.error = 1e-12;
    s.params.top_logprobs = 4;
    assert_false(suffices(&s, &best));
}

TEST_MAIN()
