/* sampler.c - the order of operations is the header's; each is one function. The draw itself is draw.c.
 *
 * Seen tokens live in an open-addressing table with room for every token of the sequence, made only for
 * sequences with penalties: penalties touch the few tokens seen instead of the whole vocabulary. */
#include "sample/draw.h"
#include "sample/mask.h"
#include "sample/weights.h"

#include "base/check.h"
#include "base/rng.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#define LEAST (-500.0f) /* of what logprobs take an exponential */

struct seen {
    uint32_t id_plus_1; /* 0: empty */
    uint32_t outputs;   /* times drawn; 0: only in the prompt */
};

struct sampler {
    struct sampler_params params;
    struct seen *seen; /* NULL without penalties */
    uint32_t seen_mask;
    const uint64_t *allowed; /* NULL: all ids */
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

static bool is_stop(const struct sampler_params *p, uint32_t id)
{
    for (uint32_t i = 0; i < p->stop_count; i++)
        if (p->stop_ids[i] == id)
            return true;
    return false;
}

/* Something may be drawn before min_tokens. */
static int check_only_biased(const struct sampler_params *p, struct err *e)
{
    bool some = !p->only_biased || p->min_tokens == 0;
    for (uint32_t i = 0; i < p->bias_count && !some; i++)
        some = !is_stop(p, p->bias[i].id);
    return some ? 0
                : err_set(e, -EINVAL,
                          "each id of allowed_token_ids ends the reply, which min_tokens (%u) forbids",
                          p->min_tokens);
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
    int r = check_bias(p, vocab, e);
    return r < 0 ? r : check_only_biased(p, e);
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
static struct seen *seen_find(const struct sampler *s, uint32_t id)
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

/* Takes the ids [from, until) into `top` alternatives. Returns the weight of those with a token. */
static double add_block(const float *logits, const uint64_t *valid_ids, float max, uint32_t from,
                        uint32_t until, uint32_t top, struct sampled *ret)
{
    struct candidate list[SAMPLER_BLOCK];
    uint32_t count = 0;
    for (uint32_t i = from; i < until; i++) {
        float below = logits[i] - max;
        /* Less adds nothing to a sum of 1 or more; nor does NaN here. */
        list[count] = (struct candidate){below >= LEAST ? below : LEAST, i};
        count += is_listed(valid_ids, i);
    }
    for (uint32_t i = 0; i < count && top > 0; i++)
        if (ret->top_count < top || logits[list[i].id] > ret->top[top - 1].logprob)
            insert_top(ret, top, list[i].id, logits[list[i].id]);
    return weights_sum(list, count);
}

void sampler_logprobs(const float *logits, uint32_t vocab, const uint64_t *valid_ids, uint32_t id,
                      uint32_t top, struct sampled *ret)
{
    float max = mask_most(logits, vocab, valid_ids, NULL);
    double sum = 0;
    ret->top_count = 0;
    for (uint32_t from = 0; from < vocab; from += SAMPLER_BLOCK)
        sum += add_block(logits, valid_ids, max, from, MIN_OF(vocab, from + SAMPLER_BLOCK),
                         MIN_OF(top, (uint32_t)SAMPLER_TOP_MAX), ret);
    double log_sum = isfinite(max) ? (double)max + log(sum) : NAN;
    for (uint32_t i = 0; i < ret->top_count; i++)
        ret->top[i].logprob = (float)((double)ret->top[i].logprob - log_sum);
    ret->logprob = (float)((double)logits[id] - log_sum);
}

/* ---- rows ahead of their draw ---- */

/* Whatever has been drawn, the draw's logits are the model's. */
static bool never_edits(const struct sampler *s)
{
    const struct sampler_params *p = &s->params;
    return !p->only_biased && p->bias_count == 0 && !s->seen && (p->min_tokens == 0 || p->stop_count == 0);
}

/* Nothing but the draw reads the row: its mask stays beside it, and forbidden logits keep their values. Most
 * masks forbid nearly all ids, and then neither this nor the draw touches the row's memory. */
static bool masks_beside(const struct sampler *s, const uint64_t *allowed)
{
    return allowed && !s->params.logprobs && never_edits(s);
}

float sampler_ready(const struct sampler *s, const struct sampler_row *row, uint32_t block)
{
    uint32_t from = block * SAMPLER_BLOCK, count = MIN_OF(row->vocab - from, SAMPLER_BLOCK);
    const uint64_t *valid = row->valid_ids ? row->valid_ids + from / 64 : NULL;
    const uint64_t *allowed = row->allowed ? row->allowed + from / 64 : NULL;
    if (masks_beside(s, row->allowed))
        return mask_most(row->logits + from, count, valid, allowed);
    return mask_ids(row->logits + from, count, valid, s->params.logprobs ? NULL : allowed);
}

bool sampler_weighs(const struct sampler *s, const uint64_t *allowed)
{
    const struct sampler_params *p = &s->params;
    return p->temperature > 0 && p->top_k == 0 && never_edits(s) && !(p->logprobs && allowed);
}

/* For a draw without edits. */
static struct draw_row ready_row(const struct sampler *s, const struct sampler_row *row,
                                 const struct sampler_blocks *blocks)
{
    bool beside = blocks && masks_beside(s, row->allowed);
    return (struct draw_row){row->logits, row->vocab, beside ? row->valid_ids : NULL,
                             beside ? row->allowed : NULL, blocks};
}

void sampler_weigh(const struct sampler *s, const struct sampler_row *row,
                   const struct sampler_blocks *blocks, uint32_t from, uint32_t until)
{
    const struct draw_row r = ready_row(s, row, blocks);
    draw_weigh(&s->params, &r, from, until);
}

/* ---- draws ---- */

static float penalised(const struct sampler_params *p, float logit, uint32_t outputs)
{
    float l = logit > 0 ? logit / p->repetition_penalty : logit * p->repetition_penalty;
    return outputs > 0 ? l - (p->presence_penalty + p->frequency_penalty * (float)outputs) : l;
}

static void apply_penalties(const struct sampler *s, float *logits, uint32_t vocab)
{
    for (uint64_t i = 0; s->seen && i <= s->seen_mask; i++) {
        uint32_t id = s->seen[i].id_plus_1 - 1;
        if (s->seen[i].id_plus_1 != 0 && id < vocab)
            logits[id] = penalised(&s->params, logits[id], s->seen[i].outputs);
    }
}

/* Masks every id without an entry in `bias`. */
static void mask_unbiased(const struct sampler_params *p, float *logits, uint32_t vocab)
{
    float kept[SAMPLER_BIAS_MAX];
    for (uint32_t i = 0; i < p->bias_count; i++)
        kept[i] = logits[p->bias[i].id];
    for (uint32_t i = 0; i < vocab; i++)
        logits[i] = -INFINITY;
    for (uint32_t i = 0; i < p->bias_count; i++)
        logits[p->bias[i].id] = kept[i];
}

static void adjust(const struct sampler *s, float *logits, uint32_t vocab, uint32_t outputs)
{
    const struct sampler_params *p = &s->params;
    if (p->only_biased)
        mask_unbiased(p, logits, vocab);
    for (uint32_t i = 0; i < p->bias_count; i++)
        logits[p->bias[i].id] += p->bias[i].bias;
    for (uint32_t i = 0; outputs < p->min_tokens && i < p->stop_count; i++)
        logits[p->stop_ids[i]] = -INFINITY;
    apply_penalties(s, logits, vocab);
}

const struct sampler_params *sampler_params_of(const struct sampler *s)
{
    return &s->params;
}

void sampler_allow(struct sampler *s, const uint64_t *allowed)
{
    s->allowed = allowed;
}

static bool has_edits(const struct sampler *s, uint32_t outputs)
{
    return s->params.bias_count > 0 || s->seen ||
           (outputs < s->params.min_tokens && s->params.stop_count > 0);
}

void sampler_draw_ready(struct sampler *s, struct sampler_scratch *scratch, const struct sampler_row *row,
                        const struct sampler_blocks *blocks, uint32_t position, uint32_t outputs,
                        struct sampled *ret)
{
    ASSERT(row->vocab > 0 && row->vocab <= scratch->vocab && row->allowed == s->allowed);
    bool as_ready = !has_edits(s, outputs) && !s->params.only_biased;
    struct draw_row r = ready_row(s, row, blocks);
    ASSERT(as_ready || !r.allowed);
    ret->top_count = 0;
    if (s->params.logprobs) {
        memcpy(scratch->raw, row->logits, row->vocab * sizeof(*row->logits));
        if (s->allowed)
            mask_ids(row->logits, row->vocab, NULL, s->allowed);
        as_ready &= !s->allowed;
    }
    adjust(s, row->logits, row->vocab, outputs);
    if (!as_ready)
        r.blocks = NULL;
    ret->none = !draw_of_row(&s->params, &r, scratch->candidates, position, &ret->id);
    ret->stop = outputs >= s->params.min_tokens && is_stop(&s->params, ret->id);
    if (s->params.logprobs)
        sampler_logprobs(scratch->raw, row->vocab, row->valid_ids, ret->id, s->params.top_logprobs, ret);
}

void sampler_draw(struct sampler *s, struct sampler_scratch *scratch, float *logits, uint32_t vocab,
                  const uint64_t *valid_ids, uint32_t position, uint32_t outputs, struct sampled *ret)
{
    const struct sampler_row row = {logits, vocab, valid_ids, s->allowed};
    mask_ids(logits, vocab, valid_ids, s->params.logprobs ? NULL : s->allowed);
    sampler_draw_ready(s, scratch, &row, NULL, position, outputs, ret);
}

/* ---- the best tokens ---- */

/* Entries of logit_bias that are looked for in a list. */
#define BIAS_FEW 16u

/* Whether edits raise no logit, and are few enough to be made in a list. */
static bool lowers_only(const struct sampler *s)
{
    const struct sampler_params *p = &s->params;
    bool lowers = p->repetition_penalty >= 1 && p->presence_penalty >= 0 && p->frequency_penalty >= 0 &&
                  p->bias_count <= BIAS_FEW;
    for (uint32_t i = 0; i < p->bias_count && lowers; i++)
        lowers = p->bias[i].bias <= 0;
    return lowers;
}

/* What adjust() makes of a token's logit. True: it edits it. */
static bool edit(const struct sampler *s, uint32_t outputs, struct candidate *c)
{
    const struct sampler_params *p = &s->params;
    const struct seen *seen = s->seen ? seen_find(s, c->id) : NULL;
    bool edited = false;
    for (uint32_t i = 0; i < p->bias_count; i++) {
        bool is_it = p->bias[i].id == c->id;
        c->logit += is_it ? p->bias[i].bias : 0;
        edited |= is_it;
    }
    if (outputs < p->min_tokens && is_stop(p, c->id)) {
        c->logit = -INFINITY;
        edited = true;
    }
    if (seen && seen->id_plus_1 != 0) {
        c->logit = penalised(p, c->logit, seen->outputs);
        edited = true;
    }
    return edited;
}

/* Edits a list that lacks edits, where they raise no logit. A token outside of it has at most the last one's
 * logit, so edited ones above that are in order; the others are left out. False: none is known to be best. */
static bool edit_best(const struct sampler *s, const struct sampler_best *b, uint32_t outputs,
                      struct candidate *list, struct sampler_best *ret)
{
    const float least = b->list[b->count - 1].logit;
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        struct candidate c = b->list[i];
        uint32_t at = count;
        if (edit(s, outputs, &c) && !(c.logit > least))
            continue;
        for (; at > 0 && comes_before(c.logit, c.id, list[at - 1].logit, list[at - 1].id); at--)
            list[at] = list[at - 1];
        list[at] = c;
        count++;
    }
    *ret = (struct sampler_best){
        .list = list, .count = count, .vocab = b->vocab, .edited = true, .mass = (double)INFINITY};
    return count > 0 && list[0].logit > -INFINITY;
}

static bool draw_best(const struct sampler *s, struct sampler_scratch *scratch, const struct sampler_best *b,
                      uint32_t position, uint32_t *ret)
{
    struct draw_pool pool;
    *ret = b->list[0].id;
    if (draw_is_greedy(&s->params, b->list[0].logit))
        return true;
    draw_pool_of_best(&s->params, b, scratch->candidates, &pool);
    return draw_from(&s->params, &pool, position, ret);
}

/* The log-softmax that sampler_logprobs() computes, if all sums within the bounds give the same bits. */
struct log_sum {
    double low, high;
};

static bool logprob_within(const struct log_sum *l, float logit, float *ret)
{
    *ret = (float)((double)logit - l->low);
    return isfinite(logit) && *ret == (float)((double)logit - l->high);
}

/* Several sums of the same terms differ by their rounding, and so do a logarithm and a sum of two. */
static struct log_sum bound_log_sum(const struct sampler_best *b)
{
    double max = (double)b->list[0].logit, middle = max + log(b->sum);
    double width = b->error * 2 + ((double)b->vocab + 8 * (2 + fabs(max) + fabs(middle))) * DBL_EPSILON;
    return (struct log_sum){middle - width, middle + width};
}

static bool add_logprobs(const struct sampler *s, const struct sampler_best *b, struct sampled *ret)
{
    struct log_sum l = bound_log_sum(b);
    uint32_t drawn = 0, top = MIN_OF(s->params.top_logprobs, SAMPLER_TOP_MAX);
    while (b->list[drawn].id != ret->id)
        drawn++;
    if (top > b->count || !logprob_within(&l, b->list[drawn].logit, &ret->logprob))
        return false;
    for (; ret->top_count < top; ret->top_count++) {
        struct sampler_alternative *it = &ret->top[ret->top_count];
        it->id = b->list[ret->top_count].id;
        if (!logprob_within(&l, b->list[ret->top_count].logit, &it->logprob))
            return false;
    }
    return true;
}

/* More than top_k: the last ones of a list, and their equals, do not count. */
#define BEYOND_TOP_K 16u

void sampler_wants(const struct sampler *s, uint32_t outputs, uint32_t most, uint32_t *count,
                   float *temperature)
{
    const struct sampler_params *p = &s->params;
    *count = 0;
    *temperature = 0;
    bool edits = has_edits(s, outputs), fits = p->top_k > 0 && p->top_k + BEYOND_TOP_K <= most;
    if (s->allowed || p->only_biased || p->logprobs || (edits && !lowers_only(s)))
        return;
    if (draw_is_greedy(p, 0))
        *count = edits ? most : 1;
    else if (p->top_k > 0)
        *count = !fits ? 0 : edits ? most : p->top_k + BEYOND_TOP_K;
    else if (edits ? p->min_p > 0 && p->top_p == 1 : p->min_p > 0 || p->top_p < 1)
        *count = most;
    if (*count > 1 && p->top_k == 0 && p->top_p < 1)
        *temperature = p->temperature;
}

bool sampler_draw_best(struct sampler *s, struct sampler_scratch *scratch, const struct sampler_best *b,
                       uint32_t position, uint32_t outputs, struct sampled *ret)
{
    struct sampled drawn = {.top_count = 0};
    bool edits = has_edits(s, outputs);
    ASSERT(b->count <= b->vocab && b->vocab <= scratch->vocab);
    if (b->count == 0 || s->allowed || s->params.only_biased || (edits && s->params.logprobs))
        return false;
    struct sampler_best own;
    if (edits && !b->edited) {
        struct candidate *list = scratch->candidates + b->count;
        bool room = 2 * b->count <= scratch->vocab && b->count < b->vocab;
        if (!room || !lowers_only(s) || !edit_best(s, b, outputs, list, &own))
            return false;
        b = &own;
    }
    if (!draw_best(s, scratch, b, position, &drawn.id))
        return false;
    drawn.none = b->list[0].logit == -INFINITY;
    drawn.stop = outputs >= s->params.min_tokens && is_stop(&s->params, drawn.id);
    if (s->params.logprobs && !add_logprobs(s, b, &drawn))
        return false;
    *ret = drawn;
    return true;
}

bool sampler_keep(const struct sampler *s, const float *logits, uint32_t vocab, const uint64_t *valid_ids,
                  uint32_t id, uint32_t outputs, struct sampled *ret)
{
    bool stop = is_stop(&s->params, id);
    if (stop && outputs < s->params.min_tokens)
        return false;
    ret->id = id;
    ret->none = false;
    ret->stop = stop;
    ret->top_count = 0;
    if (s->params.logprobs && logits)
        sampler_logprobs(logits, vocab, valid_ids, id, s->params.top_logprobs, ret);
    return true;
}
