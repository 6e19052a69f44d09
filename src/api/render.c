/* render.c - token ids and resolved sampling parameters, under vLLM's names. */
#include "api/render.h"

#include "api/exchange.h"
#include "api/memory_refusal.h"
#include "api/token_text.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "gen/choice.h"
#include "gen/gen.h"

#include <math.h>

static void write_stops(const struct gen_request *r, const struct sampler_params *p, struct json_out *j)
{
    json_open_array(j, "stop");
    for (uint32_t i = 0; i < r->stop_count; i++)
        json_put_text(j, NULL, r->stops[i]);
    json_close(j);
    json_open_array(j, "stop_token_ids");
    for (uint32_t i = 0; i < p->stop_count; i++)
        json_put_u64(j, NULL, p->stop_ids[i]);
    json_close(j);
}

/* Numbers that the request left out have the model's defaults here. A seed that it left out is null. */
static void write_sampling(const struct exchange *x, const struct choice *c, struct json_out *j)
{
    const struct gen_request *r = &x->request.gen;
    const struct sampler_params *p = &c->sampling;
    json_open(j, "sampling_params");
    json_put_u64(j, "n", r->n);
    json_put_float(j, "temperature", p->temperature);
    json_put_float(j, "top_p", p->top_p);
    json_put_u64(j, "top_k", p->top_k);
    json_put_float(j, "min_p", p->min_p);
    json_put_float(j, "presence_penalty", p->presence_penalty);
    json_put_float(j, "frequency_penalty", p->frequency_penalty);
    json_put_float(j, "repetition_penalty", p->repetition_penalty);
    if (r->sampling.has_seed)
        json_put_i64(j, "seed", r->sampling.seed);
    else
        json_put_null(j, "seed");
    write_stops(r, p, j);
    json_put_bool(j, "ignore_eos", r->ignore_eos);
    JSON_PUT_U64S(j, {"max_tokens", c->max_tokens}, {"min_tokens", p->min_tokens});
    json_put_fixed(j, "logprobs", 0, p->logprobs ? p->top_logprobs : NAN);
    json_put_fixed(j, "prompt_logprobs", 0,
                   r->sampling.prompt_logprobs >= 0 ? (double)r->sampling.prompt_logprobs : NAN);
    json_put_bool(j, "skip_special_tokens", r->skip_special_tokens);
    json_put_bool(j, "include_stop_str_in_output", r->include_stop);
    json_close(j);
}

/* Opens no braces: they are the caller's. `listed`: its number is part of the id. */
static bool write_prompt(struct exchange *x, uint32_t index, bool listed, struct json_out *j)
{
    if (listed)
        json_put_format(j, "request_id", "%s-%s-%u", x->wire->id_prefix, x->id_text, index);
    else
        json_put_format(j, "request_id", "%s-%s", x->wire->id_prefix, x->id_text);
    json_put_string(j, "model", exchange_model_name(x));
    if (!token_text_put_ids(x, &x->gen.prompts[index], "token_ids", j))
        return false;
    json_put_null(j, "features");
    write_sampling(x, &x->gen.choices[index * x->request.gen.n], j);
    return true;
}

static bool write_list(struct exchange *x)
{
    struct json_out j = json_out(&x->reply);
    bool ok = true;
    json_open_array(&j, NULL);
    for (uint32_t i = 0; ok && i < x->gen.prompt_count; i++) {
        json_open(&j, NULL);
        ok = write_prompt(x, i, true, &j);
        json_close(&j);
    }
    json_close(&j);
    return ok;
}

bool render_write(struct exchange *x)
{
    ASSERT(x->wire && x->gen.choice_count == x->gen.prompt_count * x->request.gen.n);
    if (!x->request.gen.messages) {
        if (!write_list(x))
            return false;
    } else {
        struct json_out j = json_out_object(&x->reply);
        if (!write_prompt(x, 0, false, &j))
            return false;
        json_end(&j);
    }
    return x->reply.error == 0 || memory_refusal_of(x->api, &x->gen.memory, &x->gen.reject);
}
