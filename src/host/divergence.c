/* divergence.c - sums of values and of their squares; each position's divergence is kept for quantiles. */
#include "host/divergence.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>

struct sum {
    double values, squares;
};

struct divergence {
    uint64_t positions, positions_max;
    struct sum entropy, base_entropy, ratio, divergence, top, change;
    bool has_base;
    float *kept; /* [positions_max] */
};

struct divergence *divergence_create(struct arena *a, uint64_t positions_max)
{
    struct divergence *d = ARENA_NEW(a, struct divergence);
    if (d)
        *d =
            (struct divergence){.positions_max = positions_max, .kept = ARENA_ARRAY(a, float, positions_max)};
    return d && d->kept ? d : NULL;
}

static void add(struct sum *s, double value)
{
    s->values += value;
    s->squares += value * value;
}

/* A distribution as its logits, less this. */
struct row {
    const float *logits;
    double normaliser; /* ln of the sum of exp(logit) */
    uint32_t top;
};

static struct row row_of(const float *logits, uint32_t vocab)
{
    struct row r = {.logits = logits};
    double sum = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[r.top])
            r.top = i;
    const double most = (double)logits[r.top];
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - most);
    r.normaliser = most + log(sum);
    return r;
}

static double log_of(const struct row *r, uint32_t token)
{
    return (double)r->logits[token] - r->normaliser;
}

static double divergence_of(const struct row *base, const struct row *r, uint32_t vocab)
{
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        const double b = log_of(base, i);
        sum += exp(b) * (b - log_of(r, i));
    }
    return fmax(sum, 0); /* below 0 by rounding alone */
}

void divergence_add(struct divergence *d, const float *logits, const float *base, uint32_t vocab,
                    uint32_t token)
{
    ASSERT(d->positions < d->positions_max && token < vocab);
    ASSERT(d->positions == 0 || d->has_base == (base != NULL));
    const struct row own = row_of(logits, vocab);
    const double entropy = -log_of(&own, token);
    d->has_base = base != NULL;
    add(&d->entropy, entropy);
    if (base) {
        const struct row other = row_of(base, vocab);
        const double base_entropy = -log_of(&other, token), distance = divergence_of(&other, &own, vocab);
        add(&d->base_entropy, base_entropy);
        add(&d->ratio, entropy - base_entropy);
        add(&d->divergence, distance);
        add(&d->top, own.top == other.top);
        add(&d->change, exp(-entropy) - exp(-base_entropy));
        d->kept[d->positions] = (float)distance;
    }
    d->positions++;
}

static struct divergence_mean mean_of(const struct sum *s, uint64_t n)
{
    const double mean = s->values / (double)n;
    const double variance = fmax(s->squares / (double)n - mean * mean, 0);
    return (struct divergence_mean){mean, n > 1 ? sqrt(variance / (double)(n - 1)) : 0};
}

static struct divergence_mean perplexity_of(const struct sum *entropy, uint64_t n)
{
    const struct divergence_mean m = mean_of(entropy, n);
    return (struct divergence_mean){exp(m.value), exp(m.value) * m.error};
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The kept values are sorted; linear between two of them. */
static double quantile(const struct divergence *d, double q)
{
    const double at = q * (double)(d->positions - 1);
    const uint64_t low = (uint64_t)at, high = MIN_OF(low + 1, d->positions - 1);
    return (double)d->kept[low] + (at - (double)low) * ((double)d->kept[high] - (double)d->kept[low]);
}

void divergence_end(struct divergence *d, struct divergence_result *ret)
{
    const uint64_t n = d->positions;
    ASSERT(n > 0);
    *ret = (struct divergence_result){.positions = n, .perplexity = perplexity_of(&d->entropy, n)};
    if (!d->has_base)
        return;
    qsort(d->kept, n, sizeof(d->kept[0]), by_value);
    ret->base_perplexity = perplexity_of(&d->base_entropy, n);
    ret->log_ratio = mean_of(&d->ratio, n);
    ret->divergence = mean_of(&d->divergence, n);
    ret->divergence_median = quantile(d, 0.5);
    ret->divergence_p99 = quantile(d, 0.99);
    ret->divergence_p999 = quantile(d, 0.999);
    ret->divergence_max = (double)d->kept[n - 1];
    ret->same_top = mean_of(&d->top, n);
    ret->probability_change = mean_of(&d->change, n);
    ret->probability_rms = sqrt(d->change.squares / (double)n);
}
