/* Means, errors and quantiles against their definitions. */
#include "test.h"

#include "host/divergence.h"

#include <math.h>

enum { VOCAB = 7, POSITIONS = 40 };

static struct arena *arena_new(void)
{
    struct arena *a;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1 << 20}, &a), 0);
    return a;
}

/* Computes the definition, which for a few logits needs no care for large values. */
static double probability(const float *logits, uint32_t token)
{
    double sum = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    return exp((double)logits[token]) / sum;
}

static void fill(struct rng *rng, float *row)
{
    for (uint32_t i = 0; i < VOCAB; i++)
        row[i] = (float)rng_below(rng, 1000) / 100 - 5;
}

static int ascending(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

PROPERTY(numbers_follow_their_definitions, seed)
{
    struct rng rng = {seed, 0};
    struct arena *a = arena_new();
    struct divergence *d = divergence_create(a, POSITIONS);
    struct divergence_result r;
    double entropy = 0, base_entropy = 0, squares = 0, kl[POSITIONS], sum = 0, change = 0, same = 0;
    for (uint32_t p = 0; p < POSITIONS; p++) {
        float own[VOCAB], base[VOCAB];
        uint32_t token = (uint32_t)rng_below(&rng, VOCAB), top = 0, base_top = 0;
        fill(&rng, own);
        fill(&rng, base);
        entropy -= log(probability(own, token)) / POSITIONS;
        base_entropy -= log(probability(base, token)) / POSITIONS;
        change += (probability(own, token) - probability(base, token)) / POSITIONS;
        squares += pow(probability(own, token) - probability(base, token), 2) / POSITIONS;
        kl[p] = 0;
        for (uint32_t i = 0; i < VOCAB; i++) {
            kl[p] += probability(base, i) * log(probability(base, i) / probability(own, i));
            top = own[i] > own[top] ? i : top;
            base_top = base[i] > base[base_top] ? i : base_top;
        }
        sum += kl[p] / POSITIONS;
        same += (top == base_top) / (double)POSITIONS;
        divergence_add(d, own, base, VOCAB, token);
    }
    divergence_end(d, &r);
    qsort(kl, POSITIONS, sizeof(kl[0]), ascending);
    assert_int_equal(r.positions, POSITIONS);
    assert_true(fabs(r.perplexity.value / exp(entropy) - 1) < 1e-9);
    assert_true(fabs(r.base_perplexity.value / exp(base_entropy) - 1) < 1e-9);
    assert_true(fabs(r.log_ratio.value - (entropy - base_entropy)) < 1e-9);
    assert_true(fabs(r.divergence.value - sum) < 1e-9);
    assert_true(fabs(r.divergence_max - kl[POSITIONS - 1]) < 1e-5);
    assert_true(fabs(r.divergence_median - (kl[19] + kl[20]) / 2) < 1e-5);
    assert_true(r.divergence_p99 <= r.divergence_p999 && r.divergence_p999 <= r.divergence_max);
    assert_true(fabs(r.same_top.value - same) < 1e-9);
    assert_true(fabs(r.probability_change.value - change) < 1e-9);
    assert_true(fabs(r.probability_rms - sqrt(squares)) < 1e-9);
    arena_free(a);
}

TEST(a_mean_has_its_standard_error)
{
    struct arena *a = arena_new();
    struct divergence *d = divergence_create(a, 4);
    struct divergence_result r;
    /* The first of two tokens with a difference of x has 1/(1 + exp(-x)). */
    const float rows[4][2] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
    double mean = 0, variance = 0;
    for (int i = 0; i < 4; i++) {
        mean += log(1 + exp(-i)) / 4;
        divergence_add(d, rows[i], NULL, 2, 0);
    }
    for (int i = 0; i < 4; i++)
        variance += pow(log(1 + exp(-i)) - mean, 2) / 3;
    divergence_end(d, &r);
    assert_true(fabs(r.perplexity.value - exp(mean)) < 1e-12);
    assert_true(fabs(r.perplexity.error - exp(mean) * sqrt(variance / 4)) < 1e-12);
    assert_true(r.divergence.value == 0 && r.base_perplexity.value == 0);
    arena_free(a);
}

TEST(logits_far_apart_stay_finite)
{
    struct arena *a = arena_new();
    struct divergence *d = divergence_create(a, 1);
    struct divergence_result r;
    const float own[3] = {30000, -30000, 0}, base[3] = {30000, 29999, -1e30f};
    divergence_add(d, own, base, 3, 1);
    divergence_end(d, &r);
    assert_true(isfinite(r.divergence.value) && r.divergence.value > 1e4 && r.divergence.error == 0);
    assert_true(r.same_top.value == 1);
    arena_free(a);
}

TEST(equal_logits_diverge_by_nothing)
{
    struct arena *a = arena_new();
    struct divergence *d = divergence_create(a, 1);
    struct divergence_result r;
    const float row[3] = {1.5f, -2, 0.25f};
    divergence_add(d, row, row, 3, 2);
    divergence_end(d, &r);
    assert_true(r.divergence.value == 0 && r.log_ratio.value == 0 && r.probability_rms == 0);
    arena_free(a);
}

TEST_MAIN()
