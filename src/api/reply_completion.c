/* reply_completion.c - text_completion and its chunks. */
#include "api/reply.h"

#include "api/reply_chunk.h"

static void write_logprobs(const struct choice *c, struct buf *ret)
{
    if (!c->exchange->request.gen.sampling.logprobs) {
        buf_puts(ret, ",\"logprobs\":null");
        return;
    }
    buf_puts(ret, ",\"logprobs\":{");
    reply_write_list("tokens", &c->logprob_tokens, ret);
    buf_putc(ret, ',');
    reply_write_list("token_logprobs", &c->logprobs, ret);
    buf_putc(ret, ',');
    reply_write_list("top_logprobs", &c->logprob_tops, ret);
    buf_putc(ret, ',');
    reply_write_list("text_offset", &c->logprob_offsets, ret);
    buf_putc(ret, '}');
}

static void write_choice(const struct choice *c, struct buf *ret)
{
    const struct exchange *x = c->exchange;
    buf_printf(ret, "{\"index\":%u,\"text\":", c->index);
    json_write_string(ret, buf_slice(&c->content));
    write_logprobs(c, ret);
    buf_printf(ret, ",\"finish_reason\":\"%s\",\"stop_reason\":", choice_finish_reason(c));
    choice_write_stop_reason(c, ret);
    if (x->request.gen.sampling.prompt_logprobs >= 0) {
        buf_putc(ret, ',');
        reply_write_list("prompt_logprobs", &c->prompt_logprobs, ret);
    }
    reply_write_ids(c, ret);
    if (x->request.return_token_ids)
        reply_write_prompt_ids(&x->prompts[c->prompt_index], ret);
    buf_putc(ret, '}');
}

void reply_write_completion(struct exchange *x, struct buf *ret)
{
    reply_write_whole(x, write_choice, ret);
    buf_putc(ret, '}');
}

void reply_flush_completion(struct choice *c)
{
    struct exchange *x = c->exchange;
    if (!choice_has_pending(c))
        return;
    reply_chunk_begin(x);
    buf_printf(&x->out, "{\"index\":%u,\"text\":", c->index);
    json_write_string(&x->out, buf_slice(&c->content));
    write_logprobs(c, &x->out);
    buf_puts(&x->out, ",\"finish_reason\":null");
    reply_write_ids(c, &x->out);
    if (x->request.return_token_ids && !c->prompt_ids_told)
        reply_write_prompt_ids(&x->prompts[c->prompt_index], &x->out);
    c->prompt_ids_told = true;
    buf_putc(&x->out, '}');
    reply_chunk_end(x, false);
    choice_clear_pending(c);
}
