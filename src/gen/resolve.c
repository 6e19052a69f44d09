/* resolve.c - defaults, and the bounds that depend on the model. */
#include "gen/resolve.h"

#include "gen/gen_request.h"
#include "gen/reject.h"

#include "base/check.h"
#include "base/rng.h"
#include "model/config/generation_config.h"
#include "model/model.h"
#include "registry/registry.h"
#include "sample/sampler.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#define SUMMARY_PART 8 /* a summary, with its reasoning, takes at most the context divided by this */

static double or_default(double given, bool has, double theirs, double neutral)
{
    if (!isnan(given))
        return given;
    return has ? theirs : neutral;
}

static bool add_stop_id(struct sampler_params *p, uint32_t id, uint32_t vocab, const char *param,
                        struct reject *why)
{
    if (id >= vocab)
        return reject_value(why, param, "%s has the token id %u; the model's largest is %u.", param, id,
                            vocab - 1);
    for (uint32_t i = 0; i < p->stop_count; i++)
        if (p->stop_ids[i] == id)
            return true;
    if (p->stop_count == SAMPLER_STOP_MAX)
        return reject_value(why, param,
                            "There are more than %d stop token ids, counting the model's own end tokens.",
                            SAMPLER_STOP_MAX);
    p->stop_ids[p->stop_count++] = id;
    return true;
}

static bool add_stops(const struct gen_request *r, const struct served_model *m, struct sampler_params *p,
                      struct reject *why)
{
    uint32_t vocab = m->shape->vocab;
    /* An output with a grammar ends where the grammar does. */
    bool ends = !r->ignore_eos || r->grammar.param;
    for (uint32_t i = 0; i < m->defaults.eos_count && ends; i++)
        if (m->defaults.eos_ids[i] < vocab &&
            !add_stop_id(p, m->defaults.eos_ids[i], vocab, "stop_token_ids", why))
            return false;
    for (uint32_t i = 0; i < r->stop_id_count; i++)
        if (!add_stop_id(p, r->stop_ids[i], vocab, "stop_token_ids", why))
            return false;
    return true;
}

/* An entry for each allowed id, with its logit_bias or 0. Ids that are listed twice have one entry. */
static bool add_allowed(const struct gen_request *r, const struct served_model *m, struct logit_bias *bias,
                        struct sampler_params *p, struct reject *why)
{
    size_t i;
    json_t *each;
    char key[24];
    json_array_foreach(r->allowed_ids, i, each) {
        uint32_t id = (uint32_t)json_integer_value(each), at = 0;
        if (json_integer_value(each) >= m->shape->vocab)
            return reject_value(why, "allowed_token_ids",
                                "allowed_token_ids[%zu] is %lld; the model's largest token id is %u.", i,
                                (long long)json_integer_value(each), m->shape->vocab - 1);
        snprintf(key, sizeof(key), "%u", id);
        while (at < p->bias_count && bias[at].id != id)
            at++;
        ASSERT(at < gen_bias_count(r));
        if (at == p->bias_count)
            bias[p->bias_count++] =
                (struct logit_bias){id, (float)json_number_value(json_object_get(r->logit_bias, key))};
    }
    p->bias = bias;
    p->only_biased = true;
    return true;
}

static bool add_bias(const struct gen_request *r, const struct served_model *m, struct logit_bias *bias,
                     struct sampler_params *p, struct reject *why)
{
    const char *key;
    json_t *value;
    uint64_t id = 0;
    if (r->allowed_ids)
        return add_allowed(r, m, bias, p, why);
    if (!r->logit_bias)
        return true;
    json_object_foreach(r->logit_bias, key, value) {
        if (!slice_u64(slice_of(key), m->shape->vocab - 1, &id))
            return reject_value(why, "logit_bias",
                                "logit_bias has the token id %s; the model's largest is %u.", key,
                                m->shape->vocab - 1);
        ASSERT(p->bias_count < gen_bias_count(r));
        bias[p->bias_count++] = (struct logit_bias){(uint32_t)id, (float)json_number_value(value)};
    }
    p->bias = bias;
    return true;
}

bool resolve_sampling(const struct gen_request *r, const struct served_model *m, struct logit_bias *bias,
                      struct sampler_params *ret, struct reject *why)
{
    const struct generation_defaults *d = &m->defaults;
    const struct gen_sampling *s = &r->sampling;
    ASSERT(m->shape->vocab > 0);
    bool samples = d->do_sample;
    struct sampler_params p;
    struct err e = {0};
    sampler_params_default(&p);
    p.temperature = (float)or_default(s->temperature, samples && d->has_temperature, d->temperature, 1);
    p.top_p = (float)or_default(s->top_p, samples && d->has_top_p, d->top_p, 1);
    p.min_p = (float)or_default(s->min_p, samples && d->has_min_p, d->min_p, 0);
    p.top_k = s->top_k >= 0 ? (uint32_t)s->top_k : samples && d->has_top_k ? d->top_k : 0;
    p.repetition_penalty =
        (float)or_default(s->repetition_penalty, d->has_repetition_penalty, d->repetition_penalty, 1);
    p.presence_penalty = (float)s->presence_penalty;
    p.frequency_penalty = (float)s->frequency_penalty;
    p.min_tokens = (uint32_t)s->min_tokens;
    p.logprobs = s->logprobs || s->prompt_logprobs >= 0;
    p.top_logprobs = (uint32_t)MAX_OF(s->top_logprobs, MAX_OF(s->prompt_logprobs, (int64_t)0));
    if (!add_stops(r, m, &p, why) || !add_bias(r, m, bias, &p, why))
        return false;
    if (sampler_params_check(&p, m->shape->vocab, &e) < 0)
        return reject_value(why, NULL, "%s", e.text);
    *ret = p;
    return true;
}

struct repetition_params resolve_repetition(const struct gen_request *r, const struct served_model *m)
{
    if (r->output != GEN_TOKENS || r->prompt_only)
        return (struct repetition_params){0};
    if (r->has_repetition)
        return r->repetition;
    return r->parses && !r->ignore_eos ? m->repetition : (struct repetition_params){0};
}

uint64_t resolve_seed(const struct gen_request *r, uint64_t sampled, uint32_t k)
{
    uint64_t seed = r->sampling.has_seed ? (uint64_t)r->sampling.seed : sampled;
    return k == 0 ? seed : rng_at(seed, k);
}

bool resolve_length(const struct gen_request *r, const struct served_model *m, uint32_t prompt_tokens,
                    struct reject *why)
{
    const struct reject_context context = resolve_limit(r, m);
    char options[REJECT_CONTEXT_BYTES];
    if (prompt_tokens <= context.tokens)
        return true;
    why->tokens = prompt_tokens;
    why->tokens_max = context.tokens;
    return reject_set(why, REJECT_CONTEXT_LENGTH, r->prompt_name,
                      "This model's maximum context length is %u tokens (%s), but an input has %u tokens. "
                      "Shorten it, or set truncate_prompt_tokens to -1.",
                      context.tokens, reject_context_options(&context, options), prompt_tokens);
}

struct reject_context resolve_limit(const struct gen_request *r, const struct served_model *m)
{
    ASSERT(m->max_model_len > 0);
    if (r->compaction.on || r->appends)
        return (struct reject_context){.tokens = m->max_model_len + m->compaction_reserve};
    return (struct reject_context){.tokens = m->max_model_len, .reserve = m->compaction_reserve};
}

uint32_t resolve_context(const struct gen_request *r, const struct served_model *m)
{
    return resolve_limit(r, m).tokens;
}

uint32_t resolve_summary(const struct gen_request *r, const struct served_model *m)
{
    uint32_t most = resolve_context(r, m) / SUMMARY_PART + 1;
    return r->sampling.max_tokens > 0 ? (uint32_t)MIN_OF(r->sampling.max_tokens, (int64_t)most) : most;
}

bool resolve_max_tokens(const struct gen_request *r, const struct served_model *m,
                        uint32_t max_tokens_default, uint32_t prompt_tokens, uint32_t *ret,
                        struct reject *why)
{
    const struct generation_defaults *d = &m->defaults;
    const struct reject_context limit = resolve_limit(r, m);
    const uint32_t context = limit.tokens;
    char options[REJECT_CONTEXT_BYTES];
    if (prompt_tokens >= context) {
        why->tokens = prompt_tokens;
        why->tokens_max = context - 1;
        return reject_set(why, REJECT_CONTEXT_LENGTH, r->parses ? gen_messages_name(r) : "prompt",
                          "This model's maximum context length is %u tokens (%s), at least one of them for "
                          "the reply, but the prompt has %u tokens. Shorten it.",
                          context, reject_context_options(&limit, options), prompt_tokens);
    }
    uint32_t room = context - prompt_tokens;
    int64_t wanted = r->sampling.max_tokens;
    if (r->compaction.on)
        room = MIN_OF(room, resolve_summary(r, m));
    if (r->clamps)
        wanted = MIN_OF(wanted, (int64_t)room);
    if (wanted > room)
        return reject_set(why, REJECT_CONTEXT_LENGTH, "max_tokens",
                          "This model's maximum context length is %u tokens (%s), but %lld were requested: "
                          "%u in the prompt "
                          "and %lld for the reply. Shorten the prompt or lower max_tokens.",
                          context, reject_context_options(&limit, options),
                          (long long)(prompt_tokens + wanted), prompt_tokens, (long long)wanted);
    if (wanted < 0 && max_tokens_default > 0)
        wanted = max_tokens_default;
    if (wanted < 0 && d->has_max_new_tokens && d->max_new_tokens > 0)
        wanted = d->max_new_tokens;
    if (wanted < 0)
        wanted = r->parses ? room : 16; /* 16: OpenAI's own for completions */
    wanted = r->prompt_only ? 1 : MIN_OF(wanted, (int64_t)room);
    if (r->sampling.min_tokens > wanted)
        return reject_value(why, "min_tokens", "min_tokens is %lld, but the reply has at most %lld tokens.",
                            (long long)r->sampling.min_tokens, (long long)wanted);
    ASSERT(wanted >= 0 && wanted <= room);
    *ret = (uint32_t)wanted;
    return true;
}
