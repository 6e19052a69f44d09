/* cpu_moe.c - which experts a token takes.
 *
 * Results are kept per (token, rank) and summed in the order of ranks, so a token's result does not depend on
 * other tokens of the same experts. */
#include "compute/cpu/cpu.h"
#include "compute/shape.h"

#include <math.h>
#include <string.h>

static void softmax(float *x, uint32_t n)
{
    float max = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - max);
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

static void sigmoid(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = cpu_sigmoid(x[i]);
}

static float choice_of(const float *p, const float *correction, uint32_t i)
{
    return correction ? p[i] + correction[i] : p[i];
}

/* The sum of the two best choices of experts [from, to), or the best one. */
static float group_score(const float *p, const float *correction, uint32_t from, uint32_t to, bool max)
{
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = from; i < to; i++) {
        float x = choice_of(p, correction, i);
        if (x > best) {
            second = best;
            best = x;
        } else if (x > second) {
            second = x;
        }
    }
    return best + (to - from > 1 && !max ? second : 0);
}

/* Bit g: experts of group g may be chosen. */
static uint64_t best_groups(const struct op_route *a, const float *p, const float *correction, uint32_t n)
{
    float scores[ROUTE_GROUPS_MAX];
    uint64_t chosen = 0;
    uint32_t size = n / a->groups;
    for (uint32_t g = 0; g < a->groups; g++)
        scores[g] = group_score(p, correction, g * size, (g + 1) * size, a->group_max);
    for (uint32_t k = 0; k < a->groups_top; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t g = 0; g < a->groups; g++) {
            bool taken = chosen >> g & 1;
            if (!taken && (best == UINT32_MAX || scores[g] > scores[best]))
                best = g;
        }
        chosen |= (uint64_t)1 << best;
    }
    return chosen;
}

/* The k experts of the groups with the best choices, best first, the lower index on ties; their scores. An
 * expert that was taken has the score `taken`. */
static float choose(float *p, float taken, const float *correction, uint32_t n, uint32_t group_size,
                    uint64_t groups, uint32_t k, uint32_t *experts, float *weights)
{
    float sum = 0;
    for (uint32_t r = 0; r < k; r++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < n; i++) {
            if (p[i] == taken || !(groups >> i / group_size & 1))
                continue;
            if (best == UINT32_MAX || choice_of(p, correction, i) > choice_of(p, correction, best))
                best = i;
        }
        best = best == UINT32_MAX ? 0 : best;
        experts[r] = best;
        weights[r] = p[best];
        sum += p[best];
        p[best] = taken;
    }
    return sum;
}

static void weigh(const struct op_route *a, float sum, uint32_t k, const uint32_t *experts,
                  const float *expert_scale, float *weights)
{
    for (uint32_t r = 0; r < k; r++) {
        if (a->normalise)
            weights[r] /= sum + a->normalise_eps;
        if (a->scale != 0)
            weights[r] *= a->scale;
        if (expert_scale)
            weights[r] *= expert_scale[experts[r]];
    }
}

static void share_token(struct cpu *c, const struct op_route *a, const float *shared, uint32_t t)
{
    uint32_t n = a->out.width;
    c->shared_gate[t] = 1;
    if (a->shared == ROUTE_SHARED_NONE)
        return;
    if (a->shared == ROUTE_SHARED_GATED)
        c->shared_gate[t] = cpu_sigmoid(*shared++);
    cpu_glu_values(c, a->function, a->clip, cpu_row(c, a->out, t), shared, a->plain ? NULL : shared + n, n);
    cpu_sum(c, a->reader->sums, a->out, t);
}

/* The expert with the largest logit but `chosen`, and its weight. */
static uint32_t mix_one(const float *x, uint32_t n, uint32_t chosen, float jitter, float *weight)
{
    uint32_t best = UINT32_MAX;
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i != chosen && (best == UINT32_MAX || x[i] > x[best]))
            best = i;
    }
    best = best == UINT32_MAX ? 0 : best;
    for (uint32_t i = 0; i < n; i++) {
        bool far = (x[best] - x[i]) / fmaxf(fabsf(x[i]), x[best]) > 2 * jitter;
        if (i != chosen && !far)
            sum += expf(x[i] - x[best]);
    }
    *weight = 1 / sum;
    return best;
}

static void mix(const struct op_route *a, const float *x, uint32_t n, uint32_t *experts, float *weights)
{
    experts[0] = mix_one(x, n, UINT32_MAX, a->jitter, &weights[0]);
    experts[1] = mix_one(x, n, experts[0], a->jitter, &weights[1]);
}

static void route_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_route *a = arg;
    uint32_t n = c->shape->experts, k = c->shape->top_k;
    float *p = cpu_row(c, a->in, t), *weights = c->pair_weight + (size_t)t * k;
    const float *correction = cpu_floats(c, a->correction);
    bool chosen = a->score == ROUTE_SOFTMAX_CHOSEN;
    if (a->score == ROUTE_SOFTMAX)
        softmax(p, n);
    else if (a->score == ROUTE_SIGMOID)
        sigmoid(p, n);
    if (a->score == ROUTE_SPARSEMIXER) {
        mix(a, p, n, c->pair_expert + (size_t)t * k, weights);
        share_token(c, a, p + n, t);
        return;
    }
    bool grouped = a->groups > 1;
    uint64_t groups = grouped ? best_groups(a, p, correction, n) : 1;
    uint32_t *experts = c->pair_expert + (size_t)t * k;
    float sum = choose(p, chosen ? -INFINITY : -1, correction, n, grouped ? n / a->groups : n, groups, k,
                       experts, weights);
    if (chosen) {
        softmax(weights, k);
        sum = 1;
    }
    weigh(a, sum, k, experts, cpu_floats(c, a->expert_scale), weights);
    share_token(c, a, p + n, t);
}

/* Pairs in the order of their experts: a counting sort. */
void cpu_sort_pairs(struct cpu *c)
{
    uint32_t experts = c->shape->experts, pairs = c->tokens * c->shape->top_k;
    memset(c->expert_begin, 0, (experts + 1) * sizeof(c->expert_begin[0]));
    for (uint32_t i = 0; i < pairs; i++)
        c->expert_begin[c->pair_expert[i] + 1]++;
    for (uint32_t e = 0; e < experts; e++)
        c->expert_begin[e + 1] += c->expert_begin[e];
    /* Filling moves each begin to the next one's place; moving them back restores it. */
    for (uint32_t i = 0; i < pairs; i++)
        c->pair_order[c->expert_begin[c->pair_expert[i]]++] = i;
    memmove(c->expert_begin + 1, c->expert_begin, experts * sizeof(c->expert_begin[0]));
    c->expert_begin[0] = 0;
}

void cpu_route(struct compute *compute, const struct op_route *a)
{
    struct cpu *c = cpu_of(compute);
    cpu_each_token(c, route_token, a, 10 * (c->shape->experts + a->out.width));
    cpu_sort_pairs(c);
}
