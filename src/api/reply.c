/* reply.c - shared by chats and completions: logprobs, usage, errors inside a stream, the end. */
#include "api/reply.h"
#include "api/reject_http.h"

#include "base/check.h"
#include "http/sse.h"
#include "text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void reply_write_logprob(struct buf *ret, float logprob)
{
    char text[32] = "-9999.0";
    for (int digits = 6; isfinite(logprob) && digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)logprob);
        if (strtof(text, NULL) == logprob)
            break;
    }
    buf_puts(ret, text);
}

void reply_write_token(const struct tokenizer *t, uint32_t id, struct buf *ret)
{
    char small[256];
    struct slice bytes;
    if (!t) {
        buf_printf(ret, "\"%u\"", id);
        return;
    }
    bytes = tokenizer_token_bytes(t, id);
    if (utf8_valid(bytes)) {
        json_write_string(ret, bytes);
        return;
    }
    /* A token may end within a character. U+FFFD takes three bytes for each byte at most; longer tokens are
     * cut. */
    struct buf text;
    buf_init(&text, sizeof(small) * 4, NULL);
    utf8_put_lossy(&text, slice_sub(bytes, 0, sizeof(small)));
    json_write_string(ret, buf_slice(&text));
    buf_done(&text);
}

static void write_bytes(const struct tokenizer *t, uint32_t id, struct buf *ret)
{
    struct slice bytes = t ? tokenizer_token_bytes(t, id) : (struct slice){0};
    buf_putc(ret, '[');
    for (size_t i = 0; i < bytes.len; i++)
        buf_printf(ret, i ? ",%u" : "%u", (unsigned char)bytes.ptr[i]);
    buf_putc(ret, ']');
}

static void write_alternative(const struct tokenizer *t, uint32_t id, float logprob, struct buf *ret)
{
    buf_puts(ret, "{\"token\":");
    reply_write_token(t, id, ret);
    buf_puts(ret, ",\"logprob\":");
    reply_write_logprob(ret, logprob);
    buf_puts(ret, ",\"bytes\":");
    write_bytes(t, id, ret);
}

void reply_write_chat_logprob(const struct tokenizer *t, const struct stream_token *token, uint32_t top_max,
                              struct buf *ret)
{
    write_alternative(t, token->id, token->logprob, ret);
    buf_puts(ret, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < MIN_OF(token->top_count, top_max); i++) {
        if (i > 0)
            buf_putc(ret, ',');
        write_alternative(t, token->top[i].id, token->top[i].logprob, ret);
        buf_putc(ret, '}');
    }
    buf_puts(ret, "]}");
}

/* Prompt tokens count once per prompt, for any n: each prompt is read once. */
void reply_write_usage(const struct exchange *x, struct buf *ret)
{
    uint64_t prompt = 0, completion = 0, reasoning = 0, cached = 0;
    for (uint32_t i = 0; i < x->prompt_count; i++)
        prompt += x->prompts[i].count;
    for (uint32_t i = 0; i < x->choice_count; i++) {
        const struct choice *c = &x->choices[i];
        completion += c->over ? c->finish.completion_tokens : c->tokens;
        reasoning += c->reasoning_tokens;
        if (c->over && c->index % x->request.gen.n == 0)
            cached += c->finish.cached_tokens;
    }
    buf_printf(ret,
               "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%llu},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%llu}}",
               (unsigned long long)prompt, (unsigned long long)completion,
               (unsigned long long)(prompt + completion), (unsigned long long)cached,
               (unsigned long long)reasoning);
}

void reply_error(struct exchange *x, const struct reject *why)
{
    struct charge charge = request_memory_charge(&x->memory);
    struct buf text;
    buf_init(&text, 8192, &charge);
    reject_write(why, &text);
    sse_data(&x->out, buf_slice(&text));
    buf_done(&text);
}

void reply_done(struct exchange *x)
{
    sse_data(&x->out, SLICE("[DONE]"));
}
