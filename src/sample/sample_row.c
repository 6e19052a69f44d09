/* sample_row.c - samples from whole rows, block by block.
 *
 * The largest logit of each block, and in some rows the weight of its candidates, tell which blocks need no
 * scan. The token is the same without them. */
#include "sample/sample.h"
#include "sample/mask.h"
#include "sample/weights.h"

#include "base/candidate.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/sample_weight.h"
#include "compute/row_sample.h"

#include <math.h>

/* None is NaN. Several at a time, so that they need not wait for one another. */
static float largest(const float *logits, uint32_t count)
{
    enum { LANES = 16 };
    float most[LANES], ret = -INFINITY;
    uint32_t i = 0;
    for (uint32_t j = 0; j < LANES; j++)
        most[j] = -INFINITY;
    for (; i + LANES <= count; i += LANES)
        for (uint32_t j = 0; j < LANES; j++)
            most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
    for (uint32_t j = 0; j < LANES; j++)
        ret = most[j] > ret ? most[j] : ret;
    for (; i < count; i++)
        ret = logits[i] > ret ? logits[i] : ret;
    return ret;
}

static bool may_be_sampled(const struct sample_row *row, uint32_t id)
{
    return mask_word(row->valid, row->allowed, id / 64) >> id % 64 & 1;
}

static uint32_t blocks_of(const struct sample_row *row)
{
    return DIV_UP(row->vocab, ROW_SAMPLE_BLOCK);
}

static uint32_t block_end(const struct sample_row *row, uint32_t block)
{
    return MIN_OF(row->vocab, (block + 1) * ROW_SAMPLE_BLOCK);
}

static float most_of(const struct sample_row *row, uint32_t block)
{
    uint32_t from = block * ROW_SAMPLE_BLOCK;
    return row->blocks ? row->blocks->most[block] : largest(row->logits + from, block_end(row, block) - from);
}

/* The first block that has the row's largest logit, which is *max. */
static uint32_t best_block(const struct sample_row *row, float *max)
{
    uint32_t best = 0;
    *max = -INFINITY;
    for (uint32_t i = 0; i < blocks_of(row); i++) {
        float here = most_of(row, i);
        if (here > *max) {
            *max = here;
            best = i;
        }
    }
    return best;
}

/* The largest logit's id, the lowest of equals; *max is the logit. -infinity: the id is 0. */
static uint32_t argmax_of(const struct sample_row *row, float *max)
{
    const uint32_t best = best_block(row, max);
    if (*max == -INFINITY)
        return 0;
    uint32_t id = best * ROW_SAMPLE_BLOCK;
    while (row->logits[id] != *max || !may_be_sampled(row, id))
        id++;
    ASSERT(id < row->vocab);
    return id;
}

/* ---- candidates ---- */

struct scan {
    float max, temperature;
    float least; /* least `below` of a candidate */
};

static struct scan scan_of(const struct sampler_params *p, float max)
{
    return (struct scan){max, p->temperature, -sample_window(p)};
}

static float below_of(const struct scan *scan, float logit)
{
    return (logit - scan->max) / scan->temperature;
}

/* The candidates of a block, into `list`. Returns how many. */
static uint32_t scan_block(const struct scan *scan, const struct sample_row *row, uint32_t block,
                           struct candidate *list)
{
    /* Copies: the stores below cannot change them. */
    const struct sample_row r = *row;
    const struct scan c = *scan;
    const uint32_t end = block_end(row, block);
    uint32_t count = 0;
    for (uint32_t i = block * ROW_SAMPLE_BLOCK; i < end; i++) {
        uint64_t have = mask_word(r.valid, r.allowed, i / 64) >> i % 64;
        if ((have & 1) == 0) {
            i = have ? i + (uint32_t)__builtin_ctzll(have) - 1 : i | 63; /* the one before the next */
            continue;
        }
        float below = below_of(&c, r.logits[i]);
        list[count] = (struct candidate){below, i};
        count += below >= c.least; /* no branch: which ones stay follows no pattern */
    }
    return count;
}

/* ---- rows that are not weighed ---- */

/* At least top_k tokens have this logit or a larger one: the top_k-th of the blocks' largest. */
static float top_k_floor(const struct sampler_params *p, const struct sample_row *row)
{
    enum { TOP_MAX = 128 };
    float best[TOP_MAX + 1]; /* downwards */
    uint32_t count = 0;
    if (!row->blocks || p->top_k == 0 || p->top_k > MIN_OF(blocks_of(row), (uint32_t)TOP_MAX))
        return -INFINITY;
    for (uint32_t i = 0; i < blocks_of(row); i++) {
        uint32_t at = count;
        for (; at > 0 && row->blocks->most[i] > best[at - 1]; at--)
            best[at] = best[at - 1];
        best[at] = row->blocks->most[i];
        count = MIN_OF(count + 1, p->top_k);
    }
    ASSERT(count == p->top_k);
    return best[count - 1];
}

/* All candidates that may be among the best top_k. */
static void pool_of_row(const struct sampler_params *p, const struct sample_row *row, float max,
                        struct candidate *list, struct sample_pool *ret)
{
    const struct scan scan = scan_of(p, max);
    const float floor = below_of(&scan, top_k_floor(p, row));
    uint32_t count = 0;
    bool more = false;
    for (uint32_t i = 0; i < blocks_of(row); i++) {
        float most = row->blocks ? below_of(&scan, row->blocks->most[i]) : 0;
        if (most >= scan.least && most >= floor)
            count += scan_block(&scan, row, i, list + count);
        else
            more |= most >= scan.least;
    }
    *ret = (struct sample_pool){.list = list, .count = count, .unordered = count};
    ret->cuts = more || sample_top_k_cuts(p, count);
    /* Where top_k cuts, the weight of all is not needed. */
    if (!ret->cuts)
        ret->mass = sample_weight_by_id(list, count);
}

/* ---- rows that are weighed ---- */

void sample_weigh(const struct sampler_params *p, const struct sample_row *row, uint32_t from, uint32_t until)
{
    const struct sampler_blocks *b = row->blocks;
    struct candidate list[ROW_SAMPLE_BLOCK];
    uint32_t bins[SAMPLER_BINS] = {0};
    ASSERT(from <= until && until <= blocks_of(row));
    float max;
    best_block(row, &max);
    if (sample_is_greedy(p, max))
        return;
    const struct scan scan = scan_of(p, max);
    for (uint32_t i = from; i < until; i++) {
        bool some = below_of(&scan, b->most[i]) >= scan.least;
        uint32_t count = some ? scan_block(&scan, row, i, list) : 0;
        b->weights[i] = weights_sum(list, count);
        for (uint32_t k = 0; k < count && p->top_p < 1; k++)
            bins[sample_bin_of(list[k].logit)]++;
    }
    for (uint32_t i = 0; i < SAMPLER_BINS && p->top_p < 1; i++)
        if (bins[i] > 0)
            __atomic_fetch_add(&b->bins[i], bins[i], __ATOMIC_RELAXED);
}

static double mass_of(const struct sample_row *row)
{
    ASSERT(row->blocks->weighed);
    double mass = 0;
    for (uint32_t i = 0; i < blocks_of(row); i++)
        mass += row->blocks->weights[i];
    return mass;
}

/* sample_by_id() without the list of all. */
static uint32_t sample_weighed(const struct scan *scan, const struct sample_row *row, struct candidate *list,
                               double target)
{
    double sum = 0;
    uint32_t last = 0;
    for (uint32_t i = blocks_of(row); i-- > 0;) {
        double block = row->blocks->weights[i];
        if (block == 0)
            continue;
        last = i;
        if (sum + block <= target) {
            sum += block;
            continue;
        }
        for (uint32_t k = scan_block(scan, row, i, list); k-- > 0;) {
            sum += weight_of(list[k].logit);
            if (sum > target)
                return list[k].id;
        }
    }
    uint32_t found = scan_block(scan, row, last, list);
    ASSERT(found > 0);
    return list[0].id;
}

/* The candidates up to a bin that together have top_p of the weight, or all. */
static void pool_of_weighed(const struct sampler_params *p, const struct sample_row *row, float max,
                            struct candidate *list, struct sample_pool *ret)
{
    const struct scan scan = scan_of(p, max);
    const double mass = mass_of(row), weight = mass * (double)p->top_p;
    ASSERT(mass > 0);
    uint32_t count = 0, last = sample_last_bin(row->blocks->bins, 0, weight);
    for (uint32_t i = 0; i < blocks_of(row); i++) {
        float most = below_of(&scan, row->blocks->most[i]);
        if (most < scan.least || sample_bin_of(most) > last)
            continue;
        uint32_t found = scan_block(&scan, row, i, list + count), until = count + found;
        for (uint32_t k = count; k < until; k++) {
            list[count] = list[k];
            count += sample_bin_of(list[k].logit) <= last;
        }
    }
    *ret = (struct sample_pool){.list = list, .count = count, .unordered = count, .few = true, .mass = mass};
    /* Bins know weights to a part only, and sums of the same terms differ by their rounding. */
    if (weights_sum(list, count) < weight * (1 + 1e-9))
        pool_of_row(p, row, max, list, ret);
}

/* ---- samples ---- */

bool sample_of_row(const struct sampler_params *p, const struct sample_row *row, struct candidate *list,
                   uint32_t position, uint32_t *ret)
{
    struct sample_pool pool;
    float max;
    *ret = argmax_of(row, &max);
    if (sample_is_greedy(p, max))
        return max > -INFINITY;
    bool weighed = row->blocks && row->blocks->weighed && p->top_k == 0;
    if (weighed && p->top_p >= 1) {
        const struct scan scan = scan_of(p, max);
        *ret = sample_weighed(&scan, row, list, rng_uniform_at(p->seed, position) * mass_of(row));
        return true;
    }
    (weighed ? pool_of_weighed : pool_of_row)(p, row, max, list, &pool);
    *ret = sample_from(p, &pool, position);
    return true;
}
