/* sampler.c - the order of operations is the header's; each is one function. The sample itself is sample.c.
 *
 * Seen tokens live in an open-addressing table with room for every token of the sequence, made only for
 * sequences with penalties: penalties touch the few tokens seen instead of the whole vocabulary. */
#include "sample/sample.h"
#include "sample/mask.h"
#include "sample/weights.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "compute/row_sample.h"
#include "compute/row_top.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define LEAST ROW_SAMPLE_LEAST /* least `below` of which logprobs take the exponential */

struct seen {
    uint32_t id_plus_1; /* 0: empty */
    uint32_t outputs;   /* times sampled; 0: only in the prompt */
};

struct sampler {
    struct sampler_params params;
    struct seen *seen; /* NULL without penalties */
    uint32_t seen_mask;
    uint32_t *slots, slot_count; /* slots of tokens that were seen, in the order in which they came */
    bool bias_twice;             /* an id has several entries in params.bias */
    const uint64_t *allowed;     /* NULL: all ids */
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

/* Something may be sampled before min_tokens. */
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
    /* 64 bytes of alignment for each of the four blocks. */
    size_t bytes = sizeof(struct sampler) + p->bias_count * sizeof(struct logit_bias) + 4 * 64;
    if (has_penalties(p))
        bytes += seen_slots(tokens_max) * sizeof(struct seen) + tokens_max * sizeof(uint32_t);
    return bytes;
}

static bool has_twice(const struct sampler_params *p)
{
    for (uint32_t i = 1; i < p->bias_count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (p->bias[k].id == p->bias[i].id)
                return true;
    return false;
}

int sampler_create(struct arena *a, const struct sampler_params *p, uint32_t tokens_max, struct sampler **ret)
{
    ASSERT(p->bias_count <= SAMPLER_BIAS_MAX && p->stop_count <= SAMPLER_STOP_MAX);
    struct sampler *s = ARENA_NEW(a, struct sampler);
    struct logit_bias *bias = ARENA_ARRAY(a, struct logit_bias, p->bias_count);
    if (!s || !bias)
        return -ENOMEM;
    s->params = *p;
    if (p->bias_count)
        memcpy(bias, p->bias, p->bias_count * sizeof(*bias));
    s->params.bias = bias;
    s->bias_twice = has_twice(p);
    if (has_penalties(p)) {
        uint64_t slots = seen_slots(tokens_max);
        ASSERT((slots & (slots - 1)) == 0 && slots > tokens_max);
        s->seen = ARENA_ARRAY(a, struct seen, slots);
        s->slots = ARENA_ARRAY(a, uint32_t, tokens_max);
        if (!s->seen || !s->slots)
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

static struct seen *see(struct sampler *s, uint32_t id)
{
    struct seen *slot = seen_find(s, id);
    ASSERT(s->slot_count < s->seen_mask || slot->id_plus_1 != 0);
    if (slot->id_plus_1 == 0)
        s->slots[s->slot_count++] = (uint32_t)(slot - s->seen);
    slot->id_plus_1 = id + 1;
    return slot;
}

void sampler_see_prompt(struct sampler *s, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; s->seen && i < count; i++)
        (void)see(s, ids[i]);
}

void sampler_see_output(struct sampler *s, uint32_t id)
{
    if (s->seen)
        see(s, id)->outputs++;
}

int sampler_scratch_create(struct arena *a, uint32_t vocab, struct sampler_scratch **ret)
{
    ASSERT(vocab > 0);
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
    ASSERT(ret->top_count <= top && top <= SAMPLER_TOP_MAX);
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
    ASSERT(from < until && until - from <= ROW_SAMPLE_BLOCK);
    struct candidate list[ROW_SAMPLE_BLOCK];
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

static double log_sum_of(float largest, double sum)
{
    return isfinite(largest) ? (double)largest + log(sum) : (double)NAN;
}

void sampler_logprobs(const float *logits, uint32_t vocab, const uint64_t *valid_ids, uint32_t id,
                      uint32_t top, struct sampled *ret)
{
    ASSERT(id < vocab);
    float max = mask_most(logits, vocab, valid_ids, NULL);
    double sum = 0;
    ret->top_count = 0;
    for (uint32_t from = 0; from < vocab; from += ROW_SAMPLE_BLOCK)
        sum += add_block(logits, valid_ids, max, from, MIN_OF(vocab, from + ROW_SAMPLE_BLOCK),
                         MIN_OF(top, (uint32_t)SAMPLER_TOP_MAX), ret);
    double log_sum = log_sum_of(max, sum);
    for (uint32_t i = 0; i < ret->top_count; i++)
        ret->top[i].logprob = (float)((double)ret->top[i].logprob - log_sum);
    ret->logprob = (float)((double)logits[id] - log_sum);
}

/* ---- rows ahead of their sample ---- */

/* Whatever has been sampled, the sample's logits are the model's. */
static bool never_edits(const struct sampler *s)
{
    const struct sampler_params *p = &s->params;
    return !p->only_biased && p->bias_count == 0 && !s->seen && (p->min_tokens == 0 || p->stop_count == 0);
}

/* Nothing but the sample reads the row: its mask stays beside it, and forbidden logits keep their values.
 * Most masks forbid nearly all ids, and then neither this nor the sample touches the row's memory. */
static bool masks_beside(const struct sampler *s, const uint64_t *allowed)
{
    return allowed && !s->params.logprobs && never_edits(s);
}

float sampler_ready(const struct sampler *s, const struct sampler_row *row, uint32_t block)
{
    ASSERT(block < DIV_UP(row->vocab, ROW_SAMPLE_BLOCK));
    uint32_t from = block * ROW_SAMPLE_BLOCK, count = MIN_OF(row->vocab - from, ROW_SAMPLE_BLOCK);
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

/* For a sample without edits. */
static struct sample_row ready_row(const struct sampler *s, const struct sampler_row *row,
                                   const struct sampler_blocks *blocks)
{
    bool beside = blocks && masks_beside(s, row->allowed);
    return (struct sample_row){row->logits, row->vocab, beside ? row->valid_ids : NULL,
                               beside ? row->allowed : NULL, blocks};
}

void sampler_weigh(const struct sampler *s, const struct sampler_row *row,
                   const struct sampler_blocks *blocks, uint32_t from, uint32_t until)
{
    const struct sample_row r = ready_row(s, row, blocks);
    sample_weigh(&s->params, &r, from, until);
}

/* ---- samples ---- */

static float penalised(const struct sampler_params *p, float logit, uint32_t outputs)
{
    float l = logit > 0 ? logit / p->repetition_penalty : logit * p->repetition_penalty;
    return outputs > 0 ? l - (p->presence_penalty + p->frequency_penalty * (float)outputs) : l;
}

static void apply_penalties(const struct sampler *s, float *logits, uint32_t vocab)
{
    for (uint32_t i = 0; i < s->slot_count; i++) {
        const struct seen *seen = &s->seen[s->slots[i]];
        ASSERT(seen->id_plus_1 > 0);
        uint32_t id = seen->id_plus_1 - 1;
        if (id < vocab)
            logits[id] = penalised(&s->params, logits[id], seen->outputs);
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

void sampler_sample_ready(struct sampler *s, struct sampler_scratch *scratch, const struct sampler_row *row,
                          const struct sampler_blocks *blocks, uint32_t position, uint32_t outputs,
                          struct sampled *ret)
{
    ASSERT(row->vocab > 0 && row->vocab <= scratch->vocab && row->allowed == s->allowed);
    bool as_ready = !has_edits(s, outputs) && !s->params.only_biased;
    struct sample_row r = ready_row(s, row, blocks);
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
    ret->none = !sample_of_row(&s->params, &r, scratch->candidates, position, &ret->id);
    ASSERT(ret->id < row->vocab);
    ret->stop = outputs >= s->params.min_tokens && is_stop(&s->params, ret->id);
    if (s->params.logprobs)
        sampler_logprobs(scratch->raw, row->vocab, row->valid_ids, ret->id, s->params.top_logprobs, ret);
}

void sampler_sample(struct sampler *s, struct sampler_scratch *scratch, float *logits, uint32_t vocab,
                    const uint64_t *valid_ids, uint32_t position, uint32_t outputs, struct sampled *ret)
{
    const struct sampler_row row = {logits, vocab, valid_ids, s->allowed};
    mask_ids(logits, vocab, valid_ids, s->params.logprobs ? NULL : s->allowed);
    sampler_sample_ready(s, scratch, &row, NULL, position, outputs, ret);
}

/* ---- samples of a device ---- */

/* Edits go one after the other; `room` runs out where they have none. */
struct edit_list {
    struct row_edit *next;
    uint32_t room;
    bool full;
};

static void add_edit(struct edit_list *l, uint32_t id, float value)
{
    if (l->room == 0) {
        l->full = true;
        return;
    }
    *l->next++ = (struct row_edit){id, value};
    l->room--;
}

static uint32_t times_in(const uint32_t *ids, uint32_t count, uint32_t id)
{
    uint32_t times = 0;
    for (uint32_t i = 0; i < count; i++)
        times += ids[i] == id;
    return times;
}

static void add_bias(const struct sampler *s, struct edit_list *l)
{
    for (uint32_t i = 0; i < s->params.bias_count; i++)
        add_edit(l, s->params.bias[i].id, s->params.bias[i].bias);
}

static void add_banned(const struct sampler *s, struct edit_list *l)
{
    const struct sampler_params *p = &s->params;
    for (uint32_t i = 0; i < p->stop_count; i++)
        if (times_in(p->stop_ids, i, p->stop_ids[i]) == 0)
            add_edit(l, p->stop_ids[i], 0);
}

static void add_seen(const struct sampler *s, const struct sampler_position *at, uint32_t vocab,
                     struct edit_list *l)
{
    for (uint32_t i = 0; i < s->slot_count && !l->full; i++) {
        const struct seen *seen = &s->seen[s->slots[i]];
        uint32_t id = seen->id_plus_1 - 1, more = times_in(at->drafts, at->draft_count, id);
        if (id < vocab)
            add_edit(l, id, (float)(seen->outputs + more));
    }
    for (uint32_t i = 0; s->seen && i < at->draft_count; i++) {
        uint32_t id = at->drafts[i];
        if (id < vocab && seen_find(s, id)->id_plus_1 == 0 && times_in(at->drafts, i, id) == 0)
            add_edit(l, id, (float)times_in(at->drafts, at->draft_count, id));
    }
}

bool sampler_order(const struct sampler *s, const struct sampler_position *at, uint32_t vocab,
                   struct row_edit *edits, uint32_t room, struct row_sample *ret)
{
    const struct sampler_params *p = &s->params;
    ASSERT(at->draft_count <= at->outputs);
    struct edit_list l = {edits, room, s->bias_twice};
    *ret = (struct row_sample){.part = rng_uniform_at(p->seed, at->position),
                               .temperature = p->temperature,
                               .window = sample_window(p),
                               .top_k = p->top_k,
                               .top_p = p->top_p,
                               .repetition_penalty = p->repetition_penalty,
                               .presence_penalty = p->presence_penalty,
                               .frequency_penalty = p->frequency_penalty,
                               .mask = ROW_SAMPLE_ALL,
                               .sums = p->logprobs,
                               .tops = p->logprobs ? MIN_OF(p->top_logprobs, (uint32_t)SAMPLER_TOP_MAX) : 0};
    add_bias(s, &l);
    ret->bias_count = (uint32_t)(l.next - edits);
    if (at->outputs < p->min_tokens)
        add_banned(s, &l);
    ret->banned_count = (uint32_t)(l.next - edits) - ret->bias_count;
    add_seen(s, at, vocab, &l);
    ret->seen_count = (uint32_t)(l.next - edits) - ret->bias_count - ret->banned_count;
    ASSERT((size_t)(l.next - edits) + l.room == room);
    return !l.full;
}

void sampler_mask_biased(const struct sampler *s, uint64_t *bits, uint32_t vocab)
{
    const struct sampler_params *p = &s->params;
    ASSERT(p->only_biased);
    bool kept[SAMPLER_BIAS_MAX];
    for (uint32_t i = 0; i < p->bias_count; i++)
        kept[i] = is_listed(bits, p->bias[i].id);
    memset(bits, 0, DIV_UP(vocab, 64u) * sizeof(*bits));
    for (uint32_t i = 0; i < p->bias_count; i++)
        bits[p->bias[i].id / 64] |= (uint64_t)kept[i] << p->bias[i].id % 64;
}

bool sampler_take(const struct sampler *s, const struct row_sampled *sampled, const struct row_top *top,
                  uint32_t outputs, struct sampled *ret)
{
    const struct sampler_params *p = &s->params;
    uint32_t count = p->logprobs ? MIN_OF(p->top_logprobs, (uint32_t)SAMPLER_TOP_MAX) : 0;
    if (sampled->state == ROW_LEFT || (count > 0 && top->count < count))
        return false;
    ret->id = sampled->id;
    ret->none = sampled->state == ROW_EMPTY;
    ret->stop = outputs >= p->min_tokens && is_stop(p, ret->id);
    ret->top_count = count;
    if (!p->logprobs)
        return true;
    double log_sum = log_sum_of(sampled->largest, sampled->sum);
    for (uint32_t i = 0; i < count; i++)
        ret->top[i] =
            (struct sampler_alternative){top->list[i].id, (float)((double)top->list[i].logit - log_sum)};
    ret->logprob = (float)((double)sampled->logit - log_sum);
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
