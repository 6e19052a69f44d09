/* cpu_moe.c - which experts a token takes.
 *
 * Results are kept per (token, rank) and summed in the order of ranks, so a token's result does not depend on
 * other tokens of the same experts. */
#include "compute/cpu/cpu.h"

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

/* The largest k of p, largest first, the lower index on ties, and their weights, which sum to 1. Spoils p. */
static void choose(float *p, uint32_t n, uint32_t k, uint32_t *experts, float *weights)
{
    float sum = 0;
    for (uint32_t r = 0; r < k; r++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++)
            best = p[i] > p[best] ? i : best;
        experts[r] = best;
        weights[r] = p[best];
        sum += p[best];
        p[best] = -1;
    }
    for (uint32_t r = 0; r < k; r++)
        weights[r] /= sum;
}

static void route_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_route *a = arg;
    const struct compute_shape *s = c->shape;
    uint32_t n = a->out.width;
    float *router = cpu_row(c, a->in, t);
    const float *shared = router + s->experts;
    softmax(router, s->experts);
    choose(router, s->experts, s->top_k, c->pair_expert + (size_t)t * s->top_k,
           c->pair_weight + (size_t)t * s->top_k);
    c->shared_gate[t] = 1 / (1 + expf(-shared[0]));
    c->ops->silu_mul(cpu_row(c, a->out, t), shared + 1, shared + 1 + n, n);
    cpu_sum(c, a->reader->sums, a->out, t);
}

/* Pairs in the order of their experts: a counting sort. */
static void sort_pairs(struct cpu *c)
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
    sort_pairs(c);
}
