/* sample.c - filters and sample over one pool of candidates.
 *
 * With top_k or top_p the few of a row that may be kept go into a heap and are popped in order of (logit
 * down, id up). The work is n + kept log kept, and ties do not depend on a sort algorithm. */
#include "sample/sample.h"
#include "sample/weights.h"

#include "base/candidate.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/sample_weight.h"

#include <math.h>

/* ---- pools ---- */

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* ---- order ---- */

static void sift_down(struct candidate *heap, uint32_t count, uint32_t at)
{
    struct candidate moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && comes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_before(&heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* The next best candidate, after `done` better ones. The heap's freed place at its back takes it. */
static double next_weight(struct sample_pool *c, uint32_t done)
{
    struct candidate *at = &c->list[c->count - 1 - done];
    if (c->unordered > 0) {
        struct candidate best = c->list[0];
        c->list[0] = *at;
        *at = best;
        sift_down(c->list, --c->unordered, 0);
    }
    return weight_of(at->logit);
}

/* ---- the sample ---- */

/* How many make up top_p of the weight of the best `count`, and the weight that they have. */
static uint32_t keep_part(const struct sample_pool *c, uint32_t count, double goal, double *mass)
{
    ASSERT(count <= c->count);
    uint32_t n = 0;
    for (*mass = 0; n < count && *mass < goal; n++)
        *mass += weight_of(c->list[c->count - 1 - n].logit);
    return n;
}

/* Leaves out candidates that come after the best `count` ones; with count 0: after the best ones of `weight`
 * together. A heap of all took several times as long as all else of a sample. */
static void leave_out(struct sample_pool *c, uint32_t count, double weight)
{
    uint32_t bins[SAMPLER_BINS] = {0}, from = c->count;
    for (uint32_t i = 0; i < c->count; i++)
        bins[sample_bin_of(c->list[i].logit)]++;
    uint32_t last = sample_last_bin(bins, count, weight);
    for (uint32_t i = c->count; i-- > 0;) {
        if (sample_bin_of(c->list[i].logit) > last)
            continue;
        struct candidate moved = c->list[--from];
        c->list[from] = c->list[i];
        c->list[i] = moved;
    }
    ASSERT(from < c->count);
    if (count == 0 && weights_sum(c->list + from, c->count - from) < weight * (1 + 1e-9))
        return;
    c->list += from;
    c->count -= from;
    c->unordered = c->count;
}

/* Keeps the best candidates: at most top_k, and as few as make up top_p of the weight that top_k leaves.
 * They end at the list's end. Returns how many; *mass is their weight. */
static uint32_t keep_best(const struct sampler_params *p, struct sample_pool *c, double *mass)
{
    /* Without top_k the whole weight is known, and popping stops as soon as top_p of it is reached. */
    double goal = c->cuts ? (double)INFINITY : c->mass * (double)p->top_p, sum = 0;
    if (c->unordered == c->count && !c->few)
        leave_out(c, c->cuts ? p->top_k : 0, goal);
    uint32_t k = c->cuts ? p->top_k : c->count, n = 0;
    for (uint32_t i = c->unordered / 2; i-- > 0;)
        sift_down(c->list, c->unordered, i);
    for (; n < k && sum < goal; n++)
        sum += next_weight(c, n);
    if (c->cuts && p->top_p < 1)
        n = keep_part(c, n, sum * (double)p->top_p, &sum);
    *mass = sum;
    return n;
}

/* Inverse of the cumulative weights, from the best one on. Blocks before the one that reaches `target` are
 * added as a whole. */
static uint32_t pick_by_rank(const struct sample_pool *c, uint32_t kept, double target)
{
    enum { BLOCK = 512 };
    double sum = 0;
    for (uint32_t done = 0; done < kept; done += BLOCK) {
        const uint32_t count = MIN_OF(kept - done, (uint32_t)BLOCK);
        const struct candidate *end = c->list + c->count - done;
        double block = weights_sum(end - count, count);
        if (sum + block <= target) {
            sum += block;
            continue;
        }
        for (uint32_t i = 1; i <= count; i++) {
            sum += weight_of(end[-(ptrdiff_t)i].logit);
            if (sum > target)
                return end[-(ptrdiff_t)i].id;
        }
    }
    return c->list[c->count - kept].id; /* the last one: rounding left a crumb */
}

uint32_t sample_from(const struct sampler_params *p, struct sample_pool *c, uint32_t position)
{
    double mass, part = rng_uniform_at(p->seed, position);
    ASSERT(c->count > 0);
    if (!c->cuts && p->top_p >= 1)
        return sample_by_id(c->list, c->count, part * c->mass);
    uint32_t kept = keep_best(p, c, &mass);
    ASSERT(kept > 0 && kept <= c->count);
    return pick_by_rank(c, kept, part * mass);
}
