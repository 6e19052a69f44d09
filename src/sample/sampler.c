/* sampler.c - the order of operations is the header's; each is one function.
 *
 * The vocabulary is scanned a few times in plain loops; only possible candidates are sorted. With top_k or
 * top_p the candidates go into a heap and are popped in order of (logit down, id up). The work is n + kept
 * log n, and ties do not depend on a sort algorithm. A full sort of 250,000 logits per token was four times
 * slower.
 *
 * Seen tokens live in an open-addressing table with room for every token of the sequence, made only for
 * sequences with penalties: penalties touch the few tokens seen instead of the whole vocabulary. */
#include "sample/sampler.h"

#include "base/check.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* A token this much less likely than the best one is never drawn. 248,000 such tokens weigh 2.5e-7
 * together. */
#define SAMPLER_LOGIT_WINDOW 27.631021f /* ln 1e12 */

struct seen {
    uint32_t id_plus_1; /* 0: empty */
    uint32_t outputs;   /* times drawn; 0: only in the prompt */
};

struct sampler {
    struct sampler_params params;
    struct seen *seen; /* NULL without penalties */
    uint32_t seen_mask;
};

struct candidate {
    float logit;
    uint32_t id;
};

struct sampler_scratch {
    uint32_t vocab;
    float *raw;                   /* the logits before adjusting, for rows that want logprobs */
    struct candidate *candidates; /* [vocab] */
};

void sampler_params_default(struct sampler_params *p)
{
    *p = (struct sampler_params){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

static int check_range(const char *name, float v, float low, float high, bool low_open, bool high_open,
                       struct err *e)
{
    if (isfinite(v) && (low_open ? v > low : v >= low) && (high_open ? v < high : v <= high))
        return 0;
    return err_set(e, -EINVAL, "%s is %g: it must be in %c%g, %g%c", name, (double)v, low_open ? '(' : '[',
                   (double)low, (double)high, high_open ? ')' : ']');
}

static int check_bias(const struct sampler_params *p, uint32_t vocab, struct err *e)
{
    if (p->bias_count > SAMPLER_BIAS_MAX)
        return err_set(e, -EINVAL, "logit_bias has %u entries: at most %u are taken", p->bias_count,
                       SAMPLER_BIAS_MAX);
    for (uint32_t i = 0; i < p->bias_count; i++) {
        if (p->bias[i].id >= vocab)
            return err_set(e, -EINVAL, "logit_bias names token %u: the vocabulary has %u", p->bias[i].id,
                           vocab);
        int r = check_range("a value of logit_bias", p->bias[i].bias, -100, 100, false, false, e);
        if (r < 0)
            return r;
    }
    return 0;
}

int sampler_params_check(const struct sampler_params *p, uint32_t vocab, struct err *e)
{
    const struct {
        const char *name;
        float value, low, high;
        bool low_open, high_open;
    } ranges[] = {
        {"temperature", p->temperature, 0, 2, false, false},
        {"top_p", p->top_p, 0, 1, true, false},
        {"min_p", p->min_p, 0, 1, false, true},
        {"repetition_penalty", p->repetition_penalty, 0, 100, true, false},
        {"presence_penalty", p->presence_penalty, -2, 2, false, false},
        {"frequency_penalty", p->frequency_penalty, -2, 2, false, false},
    };
    for (size_t i = 0; i < COUNT_OF(ranges); i++) {
        int r = check_range(ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high,
                            ranges[i].low_open, ranges[i].high_open, e);
        if (r < 0)
            return r;
    }
    if (p->top_logprobs > SAMPLER_TOP_MAX)
        return err_set(e, -EINVAL, "top_logprobs is %u: at most %u are given", p->top_logprobs,
                       SAMPLER_TOP_MAX);
    if (p->stop_count > SAMPLER_STOP_MAX)
        return err_set(e, -EINVAL, "%u stop tokens: at most %u are taken", p->stop_count, SAMPLER_STOP_MAX);
    for (uint32_t i = 0; i < p->stop_count; i++)
        if (p->stop_ids[i] >= vocab)
            return err_set(e, -EINVAL, "stop token %u: the vocabulary has %u", p->stop_ids[i], vocab);
    return check_bias(p, vocab, e);
}

static bool has_penalties(const struct sampler_params *p)
{
    return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

static uint64_t seen_slots(uint32_t tokens_max)
{
    uint64_t slots = 16;
    while (slots * 3 < (uint64_t)tokens_max * 4)
        slots *= 2;
    return slots;
}

size_t sampler_bytes(const struct sampler_params *p, uint32_t tokens_max)
{
    /* 64 bytes of alignment for each of the three blocks. */
    size_t bytes = sizeof(struct sampler) + p->bias_count * sizeof(struct logit_bias) + 3 * 64;
    if (has_penalties(p))
        bytes += seen_slots(tokens_max) * sizeof(struct seen);
    return bytes;
}

int sampler_create(struct arena *a, const struct sampler_params *p, uint32_t tokens_max, struct sampler **ret)
{
    struct sampler *s = ARENA_NEW(a, struct sampler);
    struct logit_bias *bias = ARENA_ARRAY(a, struct logit_bias, p->bias_count);
    if (!s || !bias)
        return -ENOMEM;
    s->params = *p;
    if (p->bias_count)
        memcpy(bias, p->bias, p->bias_count * sizeof(*bias));
    s->params.bias = bias;
    if (has_penalties(p)) {
        uint64_t slots = seen_slots(tokens_max);
        s->seen = ARENA_ARRAY(a, struct seen, slots);
        if (!s->seen)
            return -ENOMEM;
        s->seen_mask = (uint32_t)(slots - 1);
    }
    *ret = s;
    return 0;
}

/* The id's slot, or the empty one where it goes: fewer ids than slots, so there is one. */
static struct seen *seen_find(struct sampler *s, uint32_t id)
{
    for (uint32_t i = (uint32_t)rng_at(0, id);; i++) {
        struct seen *slot = &s->seen[i & s->seen_mask];
        if (slot->id_plus_1 == 0 || slot->id_plus_1 == id + 1)
            return slot;
    }
}

void sampler_see_prompt(struct sampler *s, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; s->seen && i < count; i++)
        seen_find(s, ids[i])->id_plus_1 = ids[i] + 1;
}

void sampler_see_output(struct sampler *s, uint32_t id)
{
    if (!s->seen)
        return;
    struct seen *slot = seen_find(s, id);
    slot->id_plus_1 = id + 1;
    slot->outputs++;
}

int sampler_scratch_create(struct arena *a, uint32_t vocab, struct sampler_scratch **ret)
{
    struct sampler_scratch *s = ARENA_NEW(a, struct sampler_scratch);
    float *raw = ARENA_ARRAY(a, float, vocab);
    struct candidate *candidates = ARENA_ARRAY(a, struct candidate, vocab);
    if (!s || !raw || !candidates)
        return -ENOMEM;
    *s = (struct sampler_scratch){.vocab = vocab, .raw = raw, .candidates = candidates};
    *ret = s;
    return 0;
}

static bool is_listed(const uint64_t *valid_ids, uint32_t id)
{
    return !valid_ids || (valid_ids[id / 64] >> (id % 64) & 1);
}

/* (logit down, id up): the order of everything here. */
static bool comes_before(float logit, uint32_t id, float other, uint32_t other_id)
{
    return logit > other || (logit == other && id < other_id);
}

static void insert_top(struct sampled *ret, uint32_t top, uint32_t id, float logit)
{
    uint32_t at = ret->top_count;
    while (at > 0 && comes_before(logit, id, ret->top[at - 1].logprob, ret->top[at - 1].id))
        at--;
    if (at >= top)
        return;
    uint32_t last = ret->top_count < top ? ret->top_count++ : top - 1;
    memmove(&ret->top[at + 1], &ret->top[at], (last - at) * sizeof(ret->top[0]));
    ret->top[at] = (struct sampler_alternative){id, logit};
}

void sampler_logprobs(const float *logits, uint32_t vocab, const uint64_t *valid_ids, uint32_t id,
                      uint32_t top, struct sampled *ret)
{
    float max = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        if (is_listed(valid_ids, i) && logits[i] > max)
            max = logits[i];
    ret->top_count = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        if (!is_listed(valid_ids, i))
            continue;
        sum += exp((double)(logits[i] - max));
        if (top > 0)
            insert_top(ret, MIN_OF(top, SAMPLER_TOP_MAX), i, logits[i]);
    }
    double log_sum = (double)max + log(sum);
    for (uint32_t i = 0; i < ret->top_count; i++)
        ret->top[i].logprob = (float)((double)ret->top[i].logprob - log_sum);
    ret->logprob = (float)((double)logits[id] - log_sum);
}

static bool is_stop(const struct sampler_params *p, uint32_t id)
{
    for (uint32_t i = 0; i < p->stop_count; i++)
        if (p->stop_ids[i] == id)
            return true;
    return false;
}

static void mask(float *logits, uint32_t vocab, const uint64_t *valid_ids)
{
    /* NaN (a broken checkpoint) must not win every comparison below by losing none. */
    for (uint32_t i = 0; i < vocab; i++)
        logits[i] = isnan(logits[i]) ? -INFINITY : logits[i];
    for (uint32_t at = 0; valid_ids && at < vocab; at += 64) {
        uint64_t missing = ~valid_ids[at / 64];
        if (vocab - at < 64)
            missing &= ((uint64_t)1 << (vocab - at)) - 1;
        for (; missing; missing &= missing - 1)
            logits[at + (uint32_t)__builtin_ctzll(missing)] = -INFINITY;
    }
}

static void apply_penalties(const struct sampler *s, float *logits, uint32_t vocab)
{
    const struct sampler_params *p = &s->params;
    for (uint64_t i = 0; s->seen && i <= s->seen_mask; i++) {
        uint32_t id = s->seen[i].id_plus_1 - 1;
        if (s->seen[i].id_plus_1 == 0 || id >= vocab)
            continue;
        float l = logits[id];
        l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        if (s->seen[i].outputs > 0)
            l -= p->presence_penalty + p->frequency_penalty * (float)s->seen[i].outputs;
        logits[id] = l;
    }
}

static void adjust(const struct sampler *s, float *logits, uint32_t vocab, uint32_t outputs)
{
    const struct sampler_params *p = &s->params;
    for (uint32_t i = 0; i < p->bias_count; i++)
        logits[p->bias[i].id] += p->bias[i].bias;
    for (uint32_t i = 0; outputs < p->min_tokens && i < p->stop_count; i++)
        logits[p->stop_ids[i]] = -INFINITY;
    apply_penalties(s, logits, vocab);
}

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

/* The first of equals: its block is the first that has them. */
static uint32_t argmax(const float *logits, uint32_t vocab)
{
    enum { BLOCK = 1024 };
    uint32_t best = 0;
    float most = -INFINITY;
    for (uint32_t at = 0; at < vocab; at += BLOCK) {
        float here = largest(logits + at, MIN_OF(vocab - at, (uint32_t)BLOCK));
        if (here > most) {
            most = here;
            best = at;
        }
    }
    while (logits[best] < most)
        best++;
    return best;
}

static void sift_down(struct candidate *heap, uint32_t count, uint32_t at)
{
    struct candidate moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count &&
            comes_before(heap[child + 1].logit, heap[child + 1].id, heap[child].logit, heap[child].id))
            child++;
        if (!comes_before(heap[child].logit, heap[child].id, moved.logit, moved.id))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* Divides by the temperature and gathers what min_p and the window leave, in order of id. Their sum of
 * weights goes to *mass. */
static uint32_t gather(const struct sampler_params *p, const float *logits, uint32_t vocab, float max,
                       struct candidate *ret, double *mass)
{
    float window = SAMPLER_LOGIT_WINDOW;
    if (p->min_p > 0)
        window = MIN_OF(window, -logf(p->min_p));
    uint32_t count = 0;
    *mass = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        float below = (logits[i] - max) / p->temperature;
        if (!(below >= -window))
            continue;
        ret[count++] = (struct candidate){below, i};
        *mass += exp((double)below);
    }
    return count;
}

/* Keeps the best candidates: at most top_k, and as few as make up top_p of the weight that top_k leaves.
 * They end at the array's end in reverse order; returns how many, and their weight. */
static uint32_t keep_best(const struct sampler_params *p, struct candidate *heap, uint32_t count, double mass,
                          double *kept_mass)
{
    uint32_t k = p->top_k > 0 ? MIN_OF(p->top_k, count) : count;
    for (uint32_t i = count / 2; i-- > 0;)
        sift_down(heap, count, i);
    uint32_t kept = 0, left = count;
    /* Without top_k the whole weight is known, and popping stops as soon as top_p of it is reached. */
    double goal = k == count ? mass * (double)p->top_p : INFINITY, sum = 0;
    while (kept < k && sum < goal) {
        struct candidate best = heap[0];
        heap[0] = heap[--left];
        heap[left] = best; /* the freed place at the back: best first from the end */
        sift_down(heap, left, 0);
        sum += exp((double)best.logit);
        kept++;
    }
    if (k < count && p->top_p < 1) {
        double part = 0;
        uint32_t n = 0;
        while (n < kept && part < sum * (double)p->top_p)
            part += exp((double)heap[count - 1 - n++].logit);
        kept = n;
        sum = part;
    }
    *kept_mass = sum;
    return kept;
}

static uint32_t draw(const struct sampler *s, struct candidate *candidates, const float *logits,
                     uint32_t vocab, uint32_t position)
{
    const struct sampler_params *p = &s->params;
    uint32_t best = argmax(logits, vocab);
    if (p->temperature == 0 || p->top_k == 1 || !isfinite(logits[best]))
        return best;
    double mass;
    uint32_t count = gather(p, logits, vocab, logits[best], candidates, &mass);
    uint32_t kept = count;
    if ((p->top_k > 0 && p->top_k < count) || p->top_p < 1)
        kept = keep_best(p, candidates, count, mass, &mass);
    /* Inverse of the cumulative weights, from the array's back: best first where sorted, highest id first
     * where not. */
    double target = rng_uniform_at(p->seed, position) * mass, sum = 0;
    for (uint32_t i = 0; i < kept; i++) {
        const struct candidate *c = &candidates[count - 1 - i];
        sum += exp((double)c->logit);
        if (sum > target)
            return c->id;
    }
    return kept > 0 ? candidates[count - kept].id : best; /* the last one: rounding left a crumb */
}

void sampler_draw(struct sampler *s, struct sampler_scratch *scratch, float *logits, uint32_t vocab,
                  const uint64_t *valid_ids, uint32_t position, uint32_t outputs, struct sampled *ret)
{
    ASSERT(vocab > 0 && vocab <= scratch->vocab);
    mask(logits, vocab, valid_ids);
    ret->top_count = 0;
    if (s->params.logprobs)
        memcpy(scratch->raw, logits, vocab * sizeof(*logits));
    adjust(s, logits, vocab, outputs);
    ret->id = draw(s, scratch->candidates, logits, vocab, position);
    ret->stop = outputs >= s->params.min_tokens && is_stop(&s->params, ret->id);
    if (s->params.logprobs)
        sampler_logprobs(scratch->raw, vocab, valid_ids, ret->id, s->params.top_logprobs, ret);
}

bool sampler_keep(const struct sampler *s, const float *logits, uint32_t vocab, const uint64_t *valid_ids,
                  uint32_t id, uint32_t outputs, struct sampled *ret)
{
    bool stop = is_stop(&s->params, id);
    if (stop && outputs < s->params.min_tokens)
        return false;
    ret->id = id;
    ret->stop = stop;
    ret->top_count = 0;
    if (s->params.logprobs && logits)
        sampler_logprobs(logits, vocab, valid_ids, id, s->params.top_logprobs, ret);
    return true;
}
