/* reply_chat.c - chat.completion and its chunks. */
#include "api/reply.h"

#include "api/reply_chunk.h"

/* ---- whole ---- */

static void write_message(const struct choice *c, struct buf *ret)
{
    buf_puts(ret, "{\"role\":\"assistant\",\"content\":");
    /* null where there is nothing but calls, as OpenAI has it. */
    if (c->content.len == 0 && c->calls.len > 0)
        buf_puts(ret, "null");
    else
        json_write_string(ret, buf_slice(&c->content));
    buf_puts(ret, ",\"refusal\":null");
    if (c->reasoning.len > 0) {
        buf_puts(ret, ",\"reasoning_content\":");
        json_write_string(ret, buf_slice(&c->reasoning));
    }
    if (c->calls.len > 0) {
        buf_putc(ret, ',');
        reply_write_list("tool_calls", &c->calls, ret);
    }
    buf_putc(ret, '}');
}

static void write_logprobs(const struct choice *c, struct buf *ret)
{
    if (!c->exchange->request.gen.sampling.logprobs) {
        buf_puts(ret, ",\"logprobs\":null");
        return;
    }
    buf_puts(ret, ",\"logprobs\":{\"content\":[");
    buf_put_slice(ret, buf_slice(&c->logprobs));
    buf_puts(ret, "],\"refusal\":null}");
}

static void write_choice(const struct choice *c, struct buf *ret)
{
    buf_printf(ret, "{\"index\":%u,\"message\":", c->index);
    write_message(c, ret);
    write_logprobs(c, ret);
    buf_printf(ret, ",\"finish_reason\":\"%s\",\"stop_reason\":", choice_finish_reason(c));
    choice_write_stop_reason(c, ret);
    reply_write_ids(c, ret);
    buf_putc(ret, '}');
}

void reply_write_chat(struct exchange *x, struct buf *ret)
{
    reply_write_whole(x, write_choice, ret);
    if (x->request.gen.sampling.prompt_logprobs >= 0) {
        buf_putc(ret, ',');
        reply_write_list("prompt_logprobs", &x->choices[0].prompt_logprobs, ret);
    }
    if (x->request.return_token_ids)
        reply_write_prompt_ids(&x->prompts[0], ret);
    buf_putc(ret, '}');
}

/* ---- in pieces ---- */

static void write_role(struct choice *c)
{
    struct exchange *x = c->exchange;
    reply_chunk_begin(x);
    buf_printf(&x->out,
               "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
               "\"finish_reason\":null}",
               c->index);
    reply_chunk_end(x, c->index == 0);
}

void reply_begin_chat(struct exchange *x)
{
    if (x->told_role)
        return;
    x->told_role = true;
    for (uint32_t i = 0; i < x->choice_count; i++)
        write_role(&x->choices[i]);
}

static void write_call_piece(const struct choice *c, struct buf *ret)
{
    buf_printf(ret, "\"tool_calls\":[{\"index\":%u,", c->call_index);
    if (c->call_begun) {
        buf_printf(ret, "\"id\":\"%s\",\"type\":\"function\",", c->call_id);
        buf_puts(ret, "\"function\":{\"name\":");
        json_write_string(ret, buf_slice(&c->call_name));
        buf_puts(ret, ",\"arguments\":");
    } else {
        buf_puts(ret, "\"function\":{\"arguments\":");
    }
    json_write_string(ret, buf_slice(&c->arguments));
    buf_puts(ret, "}}]");
}

static void write_delta(const struct choice *c, struct buf *ret)
{
    buf_puts(ret, "\"delta\":{");
    switch (c->pending) {
    case PIECE_NONE:
        break;
    case PIECE_REASONING:
        buf_puts(ret, "\"reasoning_content\":");
        json_write_string(ret, buf_slice(&c->reasoning));
        break;
    case PIECE_CONTENT:
        buf_puts(ret, "\"content\":");
        json_write_string(ret, buf_slice(&c->content));
        break;
    case PIECE_CALL:
        write_call_piece(c, ret);
        break;
    }
    buf_putc(ret, '}');
}

void reply_flush_chat(struct choice *c)
{
    struct exchange *x = c->exchange;
    if (!choice_has_pending(c))
        return;
    reply_begin_chat(x);
    reply_chunk_begin(x);
    buf_printf(&x->out, "{\"index\":%u,", c->index);
    write_delta(c, &x->out);
    write_logprobs(c, &x->out);
    buf_puts(&x->out, ",\"finish_reason\":null");
    reply_write_ids(c, &x->out);
    buf_putc(&x->out, '}');
    reply_chunk_end(x, false);
    choice_clear_pending(c);
}
