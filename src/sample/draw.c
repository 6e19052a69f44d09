/* draw.c - filters and draw over one pool of candidates.
 *
 * With top_k or top_p the few of a row that may be kept go into a heap and are popped in order of (logit
 * down, id up). The work is n + kept log kept, and ties do not depend on a sort algorithm. */
#include "sample/draw.h"
#include "sample/weights.h"

#include "base/check.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>

/* ---- pools ---- */

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* Bounds of the sum that draw_pool_of_row() would make: the tokens that are not in the list may be within the
 * window or not, and sums of the same terms differ by their rounding. */
static void bound_mass(const struct sampler_best *b, float window, double listed, struct draw_pool *c)
{
    double rounding = ((double)b->vocab + 8) * DBL_EPSILON;
    double outside = (double)(b->vocab - b->count) * exp(-(double)window);
    double least = c->whole ? listed : MAX_OF(listed, b->mass * (1 - b->error) - outside);
    double most = c->whole ? listed : b->mass * (1 + b->error);
    c->mass_min = least * (1 - rounding);
    c->mass_max = most * (1 + rounding);
}

/* Several logits may have one `below`. Then the draw's order is that of ids, across the list's end too: so a
 * list that is not the whole row loses the last of them. */
void draw_pool_of_best(const struct sampler_params *p, const struct sampler_best *b, struct candidate *list,
                       struct draw_pool *ret)
{
    float window = draw_window(p), max = b->list[0].logit;
    double listed = 0;
    uint32_t count = 0, known = b->count;
    for (; count < b->count; count++) {
        uint32_t at = b->count - 1 - count;
        struct candidate c = {(b->list[count].logit - max) / p->temperature, b->list[count].id};
        if (!(c.logit >= -window))
            break;
        listed += weight_of(c.logit);
        for (; at + 1 < b->count && comes_before(&c, &list[at + 1]); at++)
            list[at] = list[at + 1];
        list[at] = c;
    }
    *ret = (struct draw_pool){.list = list + known - count, .count = count};
    ret->whole = count < known || known == b->vocab;
    bound_mass(b, window, listed, ret);
    while (!ret->whole && ret->count > 0 && ret->list[0].logit == list[0].logit)
        ret->list++, ret->count--;
    ret->cuts = draw_top_k_cuts(p, ret->count);
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
static double next_weight(struct draw_pool *c, uint32_t done)
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

/* Into order of id, as a row's pool is. */
static void order_by_id(struct draw_pool *c)
{
    for (uint32_t gap = c->count / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < c->count; i++) {
            struct candidate moved = c->list[i];
            uint32_t at = i;
            for (; at >= gap && c->list[at - gap].id > moved.id; at -= gap)
                c->list[at] = c->list[at - gap];
            c->list[at] = moved;
        }
    }
    c->unordered = c->count;
    c->mass_min = c->mass_max = draw_weight_by_id(c->list, c->count);
}

/* ---- the draw ---- */

/* How many make up top_p of the weight of the best `count`, and the weight that they have. */
static uint32_t keep_part(const struct draw_pool *c, uint32_t count, double goal, double *mass)
{
    uint32_t n = 0;
    for (*mass = 0; n < count && *mass < goal; n++)
        *mass += weight_of(c->list[c->count - 1 - n].logit);
    return n;
}

/* Leaves out candidates that come after the best `count` ones; with count 0: after the best ones of `weight`
 * together. A heap of all took several times as long as all else of a draw. */
static void leave_out(struct draw_pool *c, uint32_t count, double weight)
{
    uint32_t bins[SAMPLER_BINS] = {0}, from = c->count;
    for (uint32_t i = 0; i < c->count; i++)
        bins[draw_bin_of(c->list[i].logit)]++;
    uint32_t last = draw_last_bin(bins, count, weight);
    for (uint32_t i = c->count; i-- > 0;) {
        if (draw_bin_of(c->list[i].logit) > last)
            continue;
        struct candidate moved = c->list[--from];
        c->list[from] = c->list[i];
        c->list[i] = moved;
    }
    if (count == 0 && weights_sum(c->list + from, c->count - from) < weight * (1 + 1e-9))
        return;
    c->list += from;
    c->count -= from;
    c->unordered = c->count;
}

/* Keeps the best candidates: at most top_k, and as few as make up top_p of the weight that top_k leaves.
 * They end at the list's end. False: that depends on candidates that are missing, or on the bounds. */
static bool keep_best(const struct sampler_params *p, struct draw_pool *c, uint32_t *kept, double *mass)
{
    bool cuts = c->cuts;
    /* Without top_k the whole weight is known, and popping stops as soon as top_p of it is reached. */
    double surely = cuts ? INFINITY : c->mass_min * (double)p->top_p;
    double perhaps = cuts ? INFINITY : c->mass_max * (double)p->top_p, sum = 0;
    if (!c->whole && !cuts && p->top_k > 0)
        return false;
    if (c->unordered == c->count && !c->few)
        leave_out(c, cuts ? p->top_k : 0, perhaps);
    uint32_t k = cuts ? p->top_k : c->count, n = 0;
    for (uint32_t i = c->unordered / 2; i-- > 0;)
        sift_down(c->list, c->unordered, i);
    for (; n < k && sum < perhaps; n++) {
        if (sum >= surely)
            return false;
        sum += next_weight(c, n);
    }
    if (!c->whole && !cuts && sum < perhaps)
        return false;
    if (cuts && p->top_p < 1)
        n = keep_part(c, n, sum * (double)p->top_p, &sum);
    *kept = n;
    *mass = sum;
    return true;
}

/* Inverse of the cumulative weights, from the best one on. Blocks before the one that reaches `target` are
 * added as a whole. */
static uint32_t pick_by_rank(const struct draw_pool *c, uint32_t kept, double target)
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

bool draw_from(const struct sampler_params *p, struct draw_pool *c, uint32_t position, uint32_t *ret)
{
    uint32_t kept = c->count;
    double mass = c->mass_max, part = rng_uniform_at(p->seed, position);
    ASSERT(c->count > 0 || !c->whole);
    if (c->cuts || p->top_p < 1) {
        if (!keep_best(p, c, &kept, &mass))
            return false;
        ASSERT(kept > 0 && kept <= c->count);
        *ret = pick_by_rank(c, kept, part * mass);
        return true;
    }
    if (!c->whole)
        return false;
    if (c->unordered == 0)
        order_by_id(c);
    *ret = draw_by_id(c->list, c->count, part * c->mass_max);
    return true;
}
