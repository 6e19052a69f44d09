/* row_sample.c */
#include "compute/row_sample.h"

#include "base/check.h"
#include "base/sample_weight.h"

#include <math.h>
#include <stdbool.h>

static bool has(const uint64_t *bits, uint32_t id)
{
    return !bits || (bits[id / 64] >> id % 64 & 1);
}

/* ---- sums: eight of a list's weights in turn, then together ---- */

static double sum_of(const struct candidate *list, uint32_t count)
{
    double s[8] = {0};
    for (uint32_t i = 0; i < count; i++)
        s[i % 8] += weight_of(list[i].logit);
    return weight_add(s);
}

/* From the last one on. */
static double sum_back(const struct candidate *list, uint32_t count)
{
    double s[8] = {0};
    for (uint32_t i = 0; i < count; i++)
        s[i % 8] += weight_of(list[count - 1 - i].logit);
    return weight_add(s);
}

/* Where the block of list[begin] ends, in order of id. */
static uint32_t block_end(const struct candidate *list, uint32_t count, uint32_t begin)
{
    uint32_t end = begin + 1;
    while (end < count && list[end].id / ROW_SAMPLE_BLOCK == list[begin].id / ROW_SAMPLE_BLOCK)
        end++;
    return end;
}

static double sum_by_id(const struct candidate *list, uint32_t count)
{
    double sum = 0;
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        end = block_end(list, count, begin);
        sum += sum_of(list + begin, end - begin);
    }
    return sum;
}

/* ---- rows without edits ---- */

static float largest_of(const float *logits, uint32_t vocab, const uint64_t *valid, const uint64_t *mask)
{
    float largest = -INFINITY;
    for (uint32_t i = 0; i < vocab; i++)
        if (has(valid, i) && has(mask, i) && logits[i] > largest)
            largest = logits[i];
    return largest;
}

static void add_sums(const float *logits, uint32_t vocab, const uint64_t *valid, struct candidate *list,
                     struct row_sampled *ret)
{
    uint32_t count = 0;
    ret->largest = largest_of(logits, vocab, valid, NULL);
    for (uint32_t i = 0; i < vocab; i++) {
        float below = logits[i] - ret->largest;
        if (has(valid, i))
            list[count++] = (struct candidate){below >= ROW_SAMPLE_LEAST ? below : ROW_SAMPLE_LEAST, i};
    }
    ret->sum = isfinite(ret->largest) ? sum_by_id(list, count) : 0;
}

static void edit(const struct row_sample *d, const struct row_edit *e, float *logits)
{
    for (uint32_t i = 0; i < d->bias_count; i++, e++)
        logits[e->id] += e->value;
    for (uint32_t i = 0; i < d->banned_count; i++, e++)
        logits[e->id] = -INFINITY;
    for (uint32_t i = 0; i < d->seen_count; i++, e++) {
        float x = logits[e->id];
        x = x > 0 ? x / d->repetition_penalty : x * d->repetition_penalty;
        logits[e->id] = e->value > 0 ? x - (d->presence_penalty + d->frequency_penalty * e->value) : x;
    }
}

/* ---- samples ---- */

static bool comes_before(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void order(struct candidate *list, uint32_t count)
{
    for (uint32_t gap = count / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < count; i++) {
            struct candidate moved = list[i];
            uint32_t at = i;
            for (; at >= gap && comes_before(moved, list[at - gap]); at -= gap)
                list[at] = list[at - gap];
            list[at] = moved;
        }
    }
}

/* How many of the best reach `goal`, and what they weigh. */
static uint32_t keep(const struct candidate *list, uint32_t count, double goal, double *weight)
{
    uint32_t kept = 0;
    for (*weight = 0; kept < count && *weight < goal; kept++)
        *weight += weight_of(list[kept].logit);
    return kept;
}

/* Candidates of a block in order of rank. */
#define RANKS 512u

static uint32_t by_rank(const struct row_sample *d, struct candidate *list, uint32_t count, double mass,
                        bool cuts)
{
    double weight, sum = 0;
    order(list, count);
    uint32_t kept = keep(list, cuts ? d->top_k : count, cuts ? INFINITY : mass * (double)d->top_p, &weight);
    if (cuts && d->top_p < 1)
        kept = keep(list, kept, weight * (double)d->top_p, &weight);
    for (uint32_t done = 0; done < kept; done += RANKS) {
        uint32_t end = MIN_OF(done + RANKS, kept);
        double some = sum_back(list + done, end - done);
        if (sum + some <= d->part * weight) {
            sum += some;
            continue;
        }
        for (uint32_t i = done; i < end; i++) {
            sum += weight_of(list[i].logit);
            if (sum > d->part * weight)
                return list[i].id;
        }
    }
    return list[kept - 1].id;
}

/* Where the block of ids begins that list[end - 1] belongs to. */
static uint32_t block_begin(const struct candidate *list, uint32_t end)
{
    uint32_t begin = end - 1;
    while (begin > 0 && list[begin - 1].id / ROW_SAMPLE_BLOCK == list[begin].id / ROW_SAMPLE_BLOCK)
        begin--;
    return begin;
}

static uint32_t by_id(const struct row_sample *d, const struct candidate *list, uint32_t count, double mass)
{
    double sum = 0;
    for (uint32_t end = count, begin; end > 0; end = begin) {
        begin = block_begin(list, end);
        double block = sum_of(list + begin, end - begin);
        if (sum + block <= d->part * mass) {
            sum += block;
            continue;
        }
        for (uint32_t i = end; i-- > begin;) {
            sum += weight_of(list[i].logit);
            if (sum > d->part * mass)
                return list[i].id;
        }
    }
    return list[0].id;
}

void row_sample_of(const struct row_samples *samples, uint32_t row, float *logits, uint32_t vocab,
                   const uint64_t *valid, struct candidate *list, struct row_sampled *ret)
{
    const struct row_sample *d = &samples->rows[row];
    const uint64_t *mask =
        d->mask == ROW_SAMPLE_ALL ? NULL : samples->masks + (uint64_t)d->mask * DIV_UP(vocab, 64u);
    uint32_t count = 0, best = 0;
    ASSERT(d->wanted && (d->mask == ROW_SAMPLE_ALL || d->mask < samples->mask_count));
    *ret = (struct row_sampled){.state = ROW_EMPTY};
    if (d->sums)
        add_sums(logits, vocab, valid, list, ret);
    edit(d, samples->edits + d->edits, logits);
    const float largest = largest_of(logits, vocab, valid, mask);
    if (largest == -INFINITY)
        return;
    while (logits[best] != largest || !has(valid, best) || !has(mask, best))
        best++;
    *ret = (struct row_sampled){ROW_SAMPLED, best, 0, ret->largest, ret->sum};
    if (d->temperature == 0 || d->top_k == 1 || largest == INFINITY)
        return;
    for (uint32_t i = 0; i < vocab; i++) {
        float below = (logits[i] - largest) / d->temperature;
        if (below >= -d->window && has(valid, i) && has(mask, i))
            list[count++] = (struct candidate){below, i};
    }
    const double mass = sum_by_id(list, count);
    bool cuts = d->top_k > 0 && d->top_k < count;
    ret->id = cuts || d->top_p < 1 ? by_rank(d, list, count, mass, cuts) : by_id(d, list, count, mass);
}
