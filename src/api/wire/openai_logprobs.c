/* openai_logprobs.c - logprobs of tokens as chats and Responses have them. */
#include "api/exchange.h"
#include "api/reply.h"
#include "api/token_text.h"
#include "api/wire/wire_openai.h"

#include "base/check.h"
#include "tokenizer/tokenizer.h"

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
    token_text_write(t, id, ret);
    buf_puts(ret, ",\"logprob\":");
    openai_write_logprob(ret, logprob);
    buf_puts(ret, ",\"bytes\":");
    write_bytes(t, id, ret);
}

void openai_note_logprob(const struct reply *r, const struct stream_token *token, struct buf *ret)
{
    const struct tokenizer *t = r->exchange->gen.model->tokenizer;
    uint32_t top_max = (uint32_t)r->exchange->request.gen.sampling.top_logprobs;
    openai_comma(ret);
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
