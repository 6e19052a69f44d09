/* wire_openai.c - the frame of OpenAI's replies, and what chats and completions write alike. */
#include "api/wire/wire_openai.h"

#include "api/exchange.h"
#include "api/reply.h"
#include "api/timings.h"
#include "api/turns/cache_miss.h"
#include "api/token_text.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/request_memory.h"
#include "http/sse.h"

#include <math.h>
#include <stdio.h>

void openai_write_logprob(struct json_out *j, const char *key, float logprob)
{
    if (isfinite(logprob))
        json_put_float(j, key, logprob);
    else
        json_put_raw(j, key, SLICE("-9999.0"));
}

static void write_prompt_entry(struct reply *r, uint32_t id, float logprob, uint32_t rank, struct json_out *j)
{
    char room[TOKEN_TEXT_BYTES];
    json_key(j, token_text(NULL, id, room));
    json_open(j, NULL);
    openai_write_logprob(j, "logprob", logprob);
    json_put_fixed(j, "rank", 0, rank > 0 ? rank : NAN);
    json_put_text(j, "decoded_token", token_text(r->exchange->gen.model->tokenizer, id, room));
    json_close(j);
}

static void note_prompt_logprob(struct reply *r, const struct stream_token *t)
{
    struct json_out j = json_out_items(&r->prompt_logprobs);
    uint32_t count = MIN_OF(t->top_count, (uint32_t)r->exchange->request.gen.sampling.prompt_logprobs),
             rank = 0;
    if (isnan(t->logprob)) {
        json_put_null(&j, NULL); /* the first token has no predecessor */
        return;
    }
    json_open(&j, NULL);
    for (uint32_t i = 0; i < t->top_count; i++)
        if (t->top[i].id == t->id)
            rank = i + 1;
    write_prompt_entry(r, t->id, t->logprob, rank, &j);
    for (uint32_t i = 0; i < count; i++)
        if (t->top[i].id != t->id)
            write_prompt_entry(r, t->top[i].id, t->top[i].logprob, i + 1, &j);
    json_end(&j);
}

static bool wants_prompt_logprobs(const struct request *r)
{
    return r->gen.sampling.prompt_logprobs >= 0 && !r->echo_logprobs_only;
}

void openai_note_token(struct reply *r, const struct reply_part *p)
{
    if (p->kind == PART_PROMPT_TOKEN) {
        if (wants_prompt_logprobs(&r->exchange->request))
            note_prompt_logprob(r, p->token);
    } else if (r->exchange->request.return_token_ids) {
        struct json_out j = json_out_items(&r->ids);
        json_put_u64(&j, NULL, p->token->id);
    }
}

void openai_write_prompt_ids(const struct prompt_ids *p, struct json_out *j)
{
    json_open_array(j, "prompt_token_ids");
    for (uint32_t i = 0; i < p->count; i++)
        json_put_u64(j, NULL, p->ids[i]);
    json_close(j);
}

void openai_write_ids(const struct reply *r, struct json_out *j)
{
    if (r->exchange->request.return_token_ids)
        json_put_list(j, "token_ids", buf_slice(&r->ids));
}

void openai_write_prompt_logprobs(const struct reply *r, struct json_out *j)
{
    if (wants_prompt_logprobs(&r->exchange->request))
        json_put_list(j, "prompt_logprobs", buf_slice(&r->prompt_logprobs));
    else
        json_put_null(j, "prompt_logprobs");
}

/* NULL when it failed. */
static const char *finish_reason(const struct choice *c)
{
    switch (c->finish.reason) {
    case FINISH_STOP:
        return c->call_count > 0 && !c->call_cut ? "tool_calls" : "stop";
    case FINISH_LENGTH:
        return "length";
    case FINISH_REPETITION:
        return "repetition";
    default:
        return NULL;
    }
}

void openai_write_finish(const struct reply *r, struct json_out *j)
{
    struct slice string;
    uint32_t token;
    ASSERT(r->choice->over);
    json_put_string(j, "finish_reason", finish_reason(r->choice));
    if (r->choice->finish.reason == FINISH_REPETITION)
        json_put_string(j, "stop_reason", "repetition_detected");
    else if (!choice_stopped_by(r->choice, &string, &token))
        json_put_null(j, "stop_reason");
    else if (string.len > 0)
        json_put_text(j, "stop_reason", string);
    else
        json_put_u64(j, "stop_reason", token);
}

static void write_usage(const struct exchange *x, struct json_out *j)
{
    struct gen_usage u = gen_usage(&x->gen);
    json_open(j, "usage");
    JSON_PUT_U64S(j, {"prompt_tokens", u.prompt_tokens}, {"completion_tokens", u.completion_tokens},
                  {"total_tokens", u.prompt_tokens + u.completion_tokens});
    json_open(j, "prompt_tokens_details");
    JSON_PUT_U64S(j, {"cached_tokens", u.cached_tokens}, {"cache_write_tokens", u.written_tokens});
    json_close(j);
    json_open(j, "completion_tokens_details");
    ASSERT(u.accepted_tokens <= u.drafted_tokens);
    JSON_PUT_U64S(j, {"reasoning_tokens", u.reasoning_tokens},
                  {"accepted_prediction_tokens", u.accepted_tokens},
                  {"rejected_prediction_tokens", u.drafted_tokens - u.accepted_tokens});
    json_close(j);
    timings_write(x, j);
    cache_miss_write_usage(x, j);
    json_close(j);
}

/* Begins a whole reply or a chunk, up to its open list of choices. */
static struct json_out begin_choices(const struct exchange *x, const char *object, struct buf *ret)
{
    struct json_out j = json_out_object(ret);
    struct buf *id = json_begin_text(&j, "id"); /* each chunk has it: no printf() */
    buf_puts(id, x->wire->id_prefix);
    buf_putc(id, '-');
    buf_puts(id, x->id_text);
    json_end_text(&j);
    json_put_string(&j, "object", object);
    json_put_i64(&j, "created", x->gen.created_s);
    json_put_string(&j, "model", exchange_model_name(x));
    json_put_format(&j, "system_fingerprint", "plateau-" PLATEAU_VERSION "-%s", x->gen.model->compute);
    if (!exchange_is_exact(x))
        json_put_bool(&j, "exact", false);
    json_open_array(&j, "choices");
    return j;
}

/* ---- the frame ---- */

struct json_out openai_whole(const struct exchange *x, openai_choice_fn *write_choice, struct buf *ret)
{
    struct json_out j = begin_choices(x, x->wire->object, ret);
    for (uint32_t i = 0; i < x->gen.choice_count; i++)
        write_choice(&x->replies[i], &j);
    json_close(&j);
    write_usage(x, &j);
    timings_write_llama(x, &j);
    return j;
}

struct json_out openai_chunk_begin(const struct reply *r)
{
    struct exchange *x = r->exchange;
    buf_puts(&x->out, "data: ");
    struct json_out j = begin_choices(x, x->wire->chunk_object, &x->out);
    json_open(&j, NULL);
    json_put_u64(&j, "index", r->choice->index);
    return j;
}

/* Ends a chunk whose choices are closed. */
static void end_chunk(struct exchange *x, bool usage, struct json_out *j)
{
    if (usage)
        write_usage(x, j);
    else if (x->request.include_usage)
        json_put_null(j, "usage");
    timings_write_llama(x, j);
    json_end(j);
    buf_puts(&x->out, "\n\n");
}

void openai_chunk_end(struct exchange *x, bool with_prompt_ids, struct json_out *j)
{
    json_close(j); /* the choice */
    json_close(j);
    if (with_prompt_ids && x->request.return_token_ids)
        openai_write_prompt_ids(&x->gen.prompts[0], j);
    end_chunk(x, x->request.continuous_usage, j);
}

void openai_finish(struct reply *r, const char *member, struct slice empty)
{
    struct json_out j = openai_chunk_begin(r);
    json_put_raw(&j, member, empty);
    json_put_null(&j, "logprobs");
    openai_write_finish(r, &j);
    openai_chunk_end(r->exchange, false, &j);
}

static void write_usage_chunk(struct exchange *x)
{
    buf_puts(&x->out, "data: ");
    struct json_out j = begin_choices(x, x->wire->chunk_object, &x->out);
    json_close(&j);
    end_chunk(x, true, &j);
}

static void end(struct exchange *x)
{
    if (x->request.include_usage)
        write_usage_chunk(x);
    sse_data(&x->out, SLICE("[DONE]"));
}

static void fail(struct exchange *x, const struct reject *why)
{
    buf_puts(&x->out, "data: ");
    reject_write(why, x->id_text, &x->out);
    buf_puts(&x->out, "\n\n");
}

static void ping(struct exchange *x)
{
    sse_comment(&x->out, "keep-alive");
}

const struct wire_frame openai_frame = {
    .envelope = {reject_status, reject_write}, .fail = fail, .ping = ping, .end = end};
