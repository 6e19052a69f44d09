/* reply_chunk.c - the frame, and the chunks that are the same for chats and completions. */
#include "api/reply_chunk.h"

#include "api/reply.h"

void reply_write_head(const struct exchange *x, bool chunk, struct buf *ret)
{
    bool chat = x->kind == REQUEST_CHAT;
    const char *object = !chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    buf_printf(ret,
               "\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", chat ? "chatcmpl" : "cmpl",
               x->id_text, object, (long long)x->created_s);
    json_write_string(ret, slice_of(x->model->id));
    if (!exchange_is_exact(x))
        buf_puts(ret, ",\"exact\":false");
}

void reply_write_whole(const struct exchange *x, reply_choice_fn *write_choice, struct buf *ret)
{
    buf_putc(ret, '{');
    reply_write_head(x, false, ret);
    buf_puts(ret, ",\"choices\":[");
    for (uint32_t i = 0; i < x->choice_count; i++) {
        if (i > 0)
            buf_putc(ret, ',');
        write_choice(&x->choices[i], ret);
    }
    buf_puts(ret, "],");
    reply_write_usage(x, ret);
}

void reply_chunk_begin(struct exchange *x)
{
    buf_puts(&x->out, "data: {");
    reply_write_head(x, true, &x->out);
    buf_puts(&x->out, ",\"choices\":[");
}

void reply_chunk_end(struct exchange *x, bool with_prompt_ids)
{
    buf_puts(&x->out, "]");
    if (with_prompt_ids && x->request.return_token_ids)
        reply_write_prompt_ids(&x->prompts[0], &x->out);
    if (x->request.continuous_usage) {
        buf_putc(&x->out, ',');
        reply_write_usage(x, &x->out);
    } else if (x->request.include_usage) {
        buf_puts(&x->out, ",\"usage\":null");
    }
    buf_puts(&x->out, "}\n\n");
}

void reply_usage(struct exchange *x)
{
    buf_puts(&x->out, "data: {");
    reply_write_head(x, true, &x->out);
    buf_puts(&x->out, ",\"choices\":[],");
    reply_write_usage(x, &x->out);
    buf_puts(&x->out, "}\n\n");
}

void reply_finish(struct choice *c)
{
    struct exchange *x = c->exchange;
    reply_chunk_begin(x);
    buf_printf(&x->out,
               "{\"index\":%u,%s,\"logprobs\":null,\"finish_reason\":\"%s\",\"stop_reason\":", c->index,
               x->kind == REQUEST_CHAT ? "\"delta\":{}" : "\"text\":\"\"", choice_finish_reason(c));
    choice_write_stop_reason(c, &x->out);
    buf_putc(&x->out, '}');
    reply_chunk_end(x, false);
}

void reply_write_prompt_ids(const struct prompt_ids *p, struct buf *ret)
{
    buf_puts(ret, ",\"prompt_token_ids\":[");
    for (uint32_t i = 0; i < p->count; i++)
        buf_printf(ret, i ? ",%u" : "%u", p->ids[i]);
    buf_putc(ret, ']');
}

void reply_write_list(const char *name, const struct buf *items, struct buf *ret)
{
    buf_printf(ret, "\"%s\":[", name);
    buf_put_slice(ret, buf_slice(items));
    buf_putc(ret, ']');
}

void reply_write_ids(const struct choice *c, struct buf *ret)
{
    if (!c->exchange->request.return_token_ids)
        return;
    buf_putc(ret, ',');
    reply_write_list("token_ids", &c->ids, ret);
}
