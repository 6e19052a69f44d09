/* wire_openai.c - the frame of OpenAI's replies, and what chats and completions write alike. */
#include "api/wire/wire_openai.h"

#include "api/exchange.h"
#include "api/reply.h"
#include "api/timings.h"
#include "api/turns/cache_miss.h"
#include "api/token_text.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/json/json_write.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/request_memory.h"
#include "http/sse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- items ---- */

void openai_comma(struct buf *b)
{
    if (b->len > 0)
        buf_putc(b, ',');
}

void openai_write_float(struct buf *ret, float x)
{
    char text[32];
    ASSERT(isfinite(x));
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    buf_puts(ret, text);
}

void openai_write_logprob(struct buf *ret, float logprob)
{
    if (isfinite(logprob))
        openai_write_float(ret, logprob);
    else
        buf_puts(ret, "-9999.0");
}

static void write_prompt_entry(struct reply *r, uint32_t id, float logprob, uint32_t rank)
{
    struct buf *b = &r->prompt_logprobs;
    buf_printf(b, "\"%u\":{\"logprob\":", id);
    openai_write_logprob(b, logprob);
    if (rank > 0)
        buf_printf(b, ",\"rank\":%u,\"decoded_token\":", rank);
    else
        buf_puts(b, ",\"rank\":null,\"decoded_token\":");
    token_text_write(r->exchange->gen.model->tokenizer, id, b);
    buf_putc(b, '}');
}

static void note_prompt_logprob(struct reply *r, const struct stream_token *t)
{
    struct buf *b = &r->prompt_logprobs;
    uint32_t count = MIN_OF(t->top_count, (uint32_t)r->exchange->request.gen.sampling.prompt_logprobs),
             rank = 0;
    openai_comma(b);
    if (isnan(t->logprob)) {
        buf_puts(b, "null"); /* the first token has no predecessor */
        return;
    }
    buf_putc(b, '{');
    for (uint32_t i = 0; i < t->top_count; i++)
        if (t->top[i].id == t->id)
            rank = i + 1;
    write_prompt_entry(r, t->id, t->logprob, rank);
    for (uint32_t i = 0; i < count; i++) {
        if (t->top[i].id == t->id)
            continue;
        buf_putc(b, ',');
        write_prompt_entry(r, t->top[i].id, t->top[i].logprob, i + 1);
    }
    buf_putc(b, '}');
}

static bool wants_prompt_logprobs(const struct request *r)
{
    return r->gen.sampling.prompt_logprobs >= 0 && !r->echo_logprobs_only;
}

void openai_note_token(struct reply *r, const struct part *p)
{
    if (p->kind == PART_PROMPT_TOKEN) {
        if (wants_prompt_logprobs(&r->exchange->request))
            note_prompt_logprob(r, p->token);
    } else if (r->exchange->request.return_token_ids) {
        openai_comma(&r->ids);
        buf_printf(&r->ids, "%u", p->token->id);
    }
}

void openai_write_list(const char *name, const struct buf *items, struct buf *ret)
{
    buf_printf(ret, "\"%s\":[", name);
    buf_put_slice(ret, buf_slice(items));
    buf_putc(ret, ']');
}

void openai_write_prompt_ids(const struct prompt_ids *p, struct buf *ret)
{
    buf_puts(ret, ",\"prompt_token_ids\":[");
    for (uint32_t i = 0; i < p->count; i++)
        buf_printf(ret, i ? ",%u" : "%u", p->ids[i]);
    buf_putc(ret, ']');
}

void openai_write_ids(const struct reply *r, struct buf *ret)
{
    if (!r->exchange->request.return_token_ids)
        return;
    buf_putc(ret, ',');
    openai_write_list("token_ids", &r->ids, ret);
}

void openai_write_prompt_logprobs(const struct reply *r, struct buf *ret)
{
    if (!wants_prompt_logprobs(&r->exchange->request)) {
        buf_puts(ret, ",\"prompt_logprobs\":null");
        return;
    }
    buf_putc(ret, ',');
    openai_write_list("prompt_logprobs", &r->prompt_logprobs, ret);
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

void openai_write_finish(const struct reply *r, struct buf *ret)
{
    struct slice string;
    uint32_t token;
    ASSERT(r->choice->over);
    buf_printf(ret, ",\"finish_reason\":\"%s\",\"stop_reason\":", finish_reason(r->choice));
    if (r->choice->finish.reason == FINISH_REPETITION)
        buf_puts(ret, "\"repetition_detected\"");
    else if (!choice_stopped_by(r->choice, &string, &token))
        buf_puts(ret, "null");
    else if (string.len > 0)
        json_write_string(ret, string);
    else
        buf_printf(ret, "%u", token);
}

static void write_usage(const struct exchange *x, struct buf *ret)
{
    struct gen_usage u = gen_usage(&x->gen);
    buf_printf(ret,
               "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%llu,\"cache_write_tokens\":%llu},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%llu}",
               (ull)u.prompt_tokens, (ull)u.completion_tokens, (ull)(u.prompt_tokens + u.completion_tokens),
               (ull)u.cached_tokens, (ull)u.written_tokens, (ull)u.reasoning_tokens);
    timings_write(x, ret);
    cache_miss_write_usage(x, ret);
    buf_putc(ret, '}');
}

/* ---- the frame ---- */

/* `"id":...,"object":...,"created":...,"model":...` of whole replies and of chunks. */
static void write_head(const struct exchange *x, bool chunk, struct buf *ret)
{
    buf_printf(ret, "\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", x->wire->id_prefix,
               x->id_text, chunk ? x->wire->chunk_object : x->wire->object, (long long)x->gen.created_s);
    json_write_string(ret, slice_of(x->request.model ? x->request.model : x->gen.model->id));
    buf_printf(ret, ",\"system_fingerprint\":\"plateau-" PLATEAU_VERSION "-%s\"", x->gen.model->compute);
    if (!exchange_is_exact(x))
        buf_puts(ret, ",\"exact\":false");
}

void openai_whole(const struct exchange *x, openai_choice_fn *write_choice, struct buf *ret)
{
    buf_putc(ret, '{');
    write_head(x, false, ret);
    buf_puts(ret, ",\"choices\":[");
    for (uint32_t i = 0; i < x->gen.choice_count; i++) {
        if (i > 0)
            buf_putc(ret, ',');
        write_choice(&x->replies[i], ret);
    }
    buf_puts(ret, "],");
    write_usage(x, ret);
    timings_write_llama(x, ret);
}

void openai_chunk_begin(struct exchange *x)
{
    buf_puts(&x->out, "data: {");
    write_head(x, true, &x->out);
    buf_puts(&x->out, ",\"choices\":[");
}

void openai_chunk_end(struct exchange *x, bool with_prompt_ids)
{
    buf_puts(&x->out, "]");
    if (with_prompt_ids && x->request.return_token_ids)
        openai_write_prompt_ids(&x->gen.prompts[0], &x->out);
    if (x->request.continuous_usage) {
        buf_putc(&x->out, ',');
        write_usage(x, &x->out);
    } else if (x->request.include_usage) {
        buf_puts(&x->out, ",\"usage\":null");
    }
    timings_write_llama(x, &x->out);
    buf_puts(&x->out, "}\n\n");
}

void openai_finish(struct reply *r, const char *empty)
{
    struct exchange *x = r->exchange;
    openai_chunk_begin(x);
    buf_printf(&x->out, "{\"index\":%u,%s,\"logprobs\":null", r->choice->index, empty);
    openai_write_finish(r, &x->out);
    buf_putc(&x->out, '}');
    openai_chunk_end(x, false);
}

static void write_usage_chunk(struct exchange *x)
{
    buf_puts(&x->out, "data: {");
    write_head(x, true, &x->out);
    buf_puts(&x->out, ",\"choices\":[],");
    write_usage(x, &x->out);
    timings_write_llama(x, &x->out);
    buf_puts(&x->out, "}\n\n");
}

static void end(struct exchange *x)
{
    if (x->request.include_usage)
        write_usage_chunk(x);
    sse_data(&x->out, SLICE("[DONE]"));
}

static void fail(struct exchange *x, const struct reject *why)
{
    struct charge charge = request_memory_charge(&x->gen.memory);
    struct buf text;
    buf_init(&text, 8192, &charge);
    reject_write(why, x->id_text, &text);
    sse_data(&x->out, buf_slice(&text));
    buf_done(&text);
}

static void ping(struct exchange *x)
{
    sse_comment(&x->out, "keep-alive");
}

const struct wire_frame openai_frame = {
    .envelope = {reject_status, reject_write}, .fail = fail, .ping = ping, .end = end};
