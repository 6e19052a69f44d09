/* timings.c - two forms of the same figures: Plateau's own in `usage`, which knows the queue and the tiers of
 * the prefix cache, and llama.cpp's beside it.
 *
 * A prompt counts once for all of its choices, as in the rest of `usage`. */
#include "api/timings.h"

#include "api/exchange.h"

#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/slice.h"
#include "gen/choice.h"

#include <string.h>

/* A choice that is not admitted has waited until now. */
struct exchange_sums timings_sum_up(const struct exchange *x)
{
    uint64_t now_ns = clock_now_ns();
    struct exchange_sums s = {0};
    for (uint32_t i = 0; i < x->gen.choice_count; i++) {
        const struct choice *c = &x->gen.choices[i];
        if (!c->stream && !c->over)
            continue;
        struct stream_admission a;
        struct choice_times t = choice_times(c, now_ns);
        if (!choice_admitted(c, &a))
            t.queued_ns = now_ns - x->submitted_ns;
        s.choices++;
        s.prompt_tokens += x->gen.prompts[c->prompt_index].count;
        s.tokens += c->tokens;
        s.end = c->over ? c->finish.reason : x->cut_reason;
        s.cached_tokens += a.cached_tokens;
        s.queued_ns = MAX_OF(s.queued_ns, t.queued_ns);
        s.prefill_ns = MAX_OF(s.prefill_ns, t.prefill_ns);
        s.decode_ns = MAX_OF(s.decode_ns, t.decode_ns);
    }
    return s;
}

static double ms_of(uint64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

double timings_first_token_ms(const struct exchange *x)
{
    return x->first_token_ns > x->arrived_ns ? ms_of(x->first_token_ns - x->arrived_ns) : 0;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Writes the cached tokens by tier. Those of no lower tier were in the memory that computes the model. */
static void write_tiers(const struct exchange *x, const struct gen_usage *u, struct json_out *j)
{
    uint64_t lower = u->pinned_tokens + u->ssd_tokens;
    uint64_t here = u->cached_tokens - MIN_OF(lower, u->cached_tokens);
    bool on_host = strcmp(x->gen.model->device, "cpu") == 0;
    json_open(j, "cached_tokens");
    JSON_PUT_U64S(j, {"device", on_host ? 0 : here}, {"host", on_host ? here : 0},
                  {"pinned", u->pinned_tokens}, {"ssd", u->ssd_tokens});
    json_close(j);
}

void timings_write(const struct exchange *x, struct json_out *j)
{
    if (!x->request.include_timings)
        return;
    struct exchange_sums s = timings_sum_up(x);
    struct gen_usage u = gen_usage(&x->gen);
    json_open(j, "timings");
    json_put_fixed(j, "queued_ms", 3, ms_of(s.queued_ns));
    json_put_fixed(j, "prefill_ms", 3, ms_of(s.prefill_ns));
    json_put_fixed(j, "first_token_ms", 3, timings_first_token_ms(x));
    json_put_fixed(j, "decode_ms", 3, ms_of(s.decode_ns));
    JSON_PUT_U64S(j, {"prefill_tokens", u.prompt_tokens - u.cached_tokens},
                  {"decode_tokens", u.completion_tokens});
    write_tiers(x, &u, j);
    json_close(j);
}

void timings_write_llama(const struct exchange *x, struct json_out *j)
{
    if (!x->request.timings_per_token)
        return;
    struct exchange_sums s = timings_sum_up(x);
    struct gen_usage u = gen_usage(&x->gen);
    double prompt_n = (double)(u.prompt_tokens - u.cached_tokens), prompt_ms = ms_of(s.prefill_ns);
    double predicted_n = (double)u.completion_tokens, predicted_ms = ms_of(s.decode_ns);
    /* The prefill gives each choice its first token. */
    double steps = predicted_n - MIN_OF(predicted_n, (double)s.choices);
    json_open(j, "timings");
    json_put_u64(j, "cache_n", u.cached_tokens);
    json_put_fixed(j, "prompt_n", 0, prompt_n);
    json_put_fixed(j, "prompt_ms", 3, prompt_ms);
    json_put_general(j, "prompt_per_token_ms", 6, ratio(prompt_ms, prompt_n));
    json_put_general(j, "prompt_per_second", 6, ratio(prompt_n * 1000, prompt_ms));
    json_put_fixed(j, "predicted_n", 0, predicted_n);
    json_put_fixed(j, "predicted_ms", 3, predicted_ms);
    json_put_general(j, "predicted_per_token_ms", 6, ratio(predicted_ms, steps));
    json_put_general(j, "predicted_per_second", 6, ratio(steps * 1000, predicted_ms));
    json_close(j);
}
