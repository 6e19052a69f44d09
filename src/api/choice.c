/* choice.c - tokens in, pieces out.
 *
 * A token's bytes go through the detokenizer into `held`. They wait there while they may be the start of a
 * stop string: only the engine decides whether a stop string ends the sequence (it may not before
 * min_tokens). Its finish record says so. A later token proves that a complete stop string in `held` was
 * not one that ends the sequence. Bytes that leave `held` are the reply's text, and go through the chat
 * parser. */
#include "api/choice.h"

#include "api/exchange.h"
#include "api/reply.h"

#include "base/check.h"
#include "text/utf8.h"

#include <math.h>
#include <stdio.h>

/* Of one text of a reply; what a request holds in all is bounded by its memory. */
#define TEXT_BYTES_MAX ((size_t)64 << 20)

static struct buf *const *bufs_of(struct choice *c, struct buf *ret[11])
{
    struct buf *all[] = {&c->held,           &c->content, &c->reasoning, &c->calls,          &c->arguments,
                         &c->call_name,      &c->ids,     &c->logprobs,  &c->logprob_tokens, &c->logprob_tops,
                         &c->logprob_offsets};
    memcpy(ret, all, sizeof(all));
    return ret;
}

void choice_init(struct choice *c, struct exchange *x, uint32_t index, uint32_t prompt_index)
{
    struct charge charge = request_memory_charge(&x->memory);
    struct buf *bufs[11];
    *c = (struct choice){.exchange = x, .index = index, .prompt_index = prompt_index};
    list_init(&c->by_stream);
    bufs_of(c, bufs);
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        buf_init(bufs[i], TEXT_BYTES_MAX, &charge);
    buf_init(&c->prompt_logprobs, TEXT_BYTES_MAX, &charge);
}

static uint32_t find_token(const struct tokenizer *t, struct slice content)
{
    uint32_t id = UINT32_MAX;
    return t && tokenizer_find(t, content, &id) ? id : UINT32_MAX;
}

static chat_sink_fn on_event;

int choice_open(struct choice *c)
{
    struct exchange *x = c->exchange;
    const struct request *r = &x->request;
    if (x->model->tokenizer)
        detok_init(&c->detok, x->model->tokenizer, r->gen.skip_special_tokens);
    if (r->gen.sampling.prompt_logprobs >= 0)
        c->prompt_left = x->prompts[c->prompt_index].count;
    if (x->kind != REQUEST_CHAT)
        return 0;
    if (x->model->format != CHAT_FORMAT_PLAIN) {
        c->think_open = find_token(x->model->tokenizer, SLICE("<think>"));
        c->think_close = find_token(x->model->tokenizer, SLICE("</think>"));
        c->in_reasoning = x->prompts[c->prompt_index].in_reasoning;
    } else {
        c->think_open = c->think_close = UINT32_MAX;
    }
    struct charge charge = request_memory_charge(&x->memory);
    struct chat_parser_opts opts = {
        .format = x->model->format,
        .in_reasoning = x->prompts[c->prompt_index].in_reasoning,
        .parse_tools = r->gen.tools != NULL,
        .tools = r->gen.tools,
        .bytes_max = TEXT_BYTES_MAX,
        .charge = &charge,
        .sink = on_event,
        .sink_arg = c,
    };
    return chat_parser_create(&opts, &c->parser);
}

void choice_close(struct choice *c)
{
    struct buf *bufs[11];
    if (c->stream) {
        if (!c->over) {
            stream_close(c->stream);
            engine_wake(c->exchange->model->engine);
        }
        list_remove(&c->by_stream);
        stream_release(c->stream);
        atomic_fetch_sub(&c->exchange->api->streams_now, 1);
        c->stream = NULL;
    }
    chat_parser_free(c->parser);
    c->parser = NULL;
    bufs_of(c, bufs);
    for (size_t i = 0; i < COUNT_OF(bufs); i++)
        buf_done(bufs[i]);
    buf_done(&c->prompt_logprobs);
}

/* ---- text ---- */

static bool streams(const struct choice *c)
{
    return c->exchange->request.stream;
}

/* The next piece is of another kind: the pending one is written first. */
static void turn_to(struct choice *c, enum piece_kind kind)
{
    if (streams(c) && c->pending != PIECE_NONE && c->pending != kind)
        c->flush(c);
    c->pending = kind;
}

static void begin_call(struct choice *c, uint32_t index, struct slice name)
{
    struct request_id random = request_id_draw();
    char text[33];
    if (streams(c) && c->pending != PIECE_NONE)
        c->flush(c);
    request_id_text(random, text);
    snprintf(c->call_id, sizeof(c->call_id), "call_%.24s", text);
    c->call_index = index;
    c->call_count = index + 1;
    c->call_begun = true;
    c->pending = PIECE_CALL;
    buf_clear(&c->arguments);
    buf_clear(&c->call_name);
    buf_put_slice(&c->call_name, name);
}

static void end_call(struct choice *c)
{
    if (streams(c))
        return;
    if (c->calls.len > 0)
        buf_putc(&c->calls, ',');
    buf_printf(&c->calls, "{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", c->call_id);
    json_write_string(&c->calls, buf_slice(&c->call_name));
    buf_puts(&c->calls, ",\"arguments\":");
    json_write_string(&c->calls, buf_slice(&c->arguments));
    buf_puts(&c->calls, "}}");
}

static void on_event(void *arg, const struct chat_event *event)
{
    struct choice *c = arg;
    bool call = event->kind != CHAT_REASONING && event->kind != CHAT_CONTENT;
    /* parallel_tool_calls false: the first call is the reply's, as the client asked. */
    if (call && event->index > 0 && !c->exchange->request.gen.parallel_tool_calls)
        return;
    switch (event->kind) {
    case CHAT_REASONING:
        turn_to(c, PIECE_REASONING);
        buf_put_slice(&c->reasoning, event->text);
        break;
    case CHAT_CONTENT:
        turn_to(c, PIECE_CONTENT);
        buf_put_slice(&c->content, event->text);
        break;
    case CHAT_TOOL_BEGIN:
        begin_call(c, event->index, event->text);
        break;
    case CHAT_TOOL_ARGUMENTS:
        turn_to(c, PIECE_CALL);
        buf_put_slice(&c->arguments, event->text);
        break;
    case CHAT_TOOL_END:
        end_call(c);
        break;
    }
}

static void deliver(struct choice *c, struct slice text)
{
    if (text.len == 0)
        return;
    if (!c->parser) {
        c->pending = PIECE_CONTENT;
        buf_put_slice(&c->content, text);
        return;
    }
    int r = chat_parser_push(c->parser, text);
    if (r < 0 && c->error == 0)
        c->error = r;
}

static void deliver_held(struct choice *c, size_t bytes)
{
    deliver(c, slice_sub(buf_slice(&c->held), 0, bytes));
    buf_consume(&c->held, bytes);
    c->held_from += bytes;
}

/* How many bytes of `held` are certain to be text. They end before a stop string that ends after `old` (the
 * bytes held before this token), and before a tail that may start a stop string. */
static size_t certain_bytes(const struct choice *c, size_t old)
{
    struct slice held = buf_slice(&c->held);
    const struct request *r = &c->exchange->request;
    size_t certain = held.len;
    for (uint32_t i = 0; i < r->gen.stop_count; i++) {
        struct slice stop = r->gen.stops[i];
        size_t from = old >= stop.len ? old - stop.len + 1 : 0;
        certain = MIN_OF(certain, slice_find(held, stop, from));
        size_t tail = MIN_OF(held.len, stop.len - 1);
        while (tail > 0 && memcmp(held.ptr + held.len - tail, stop.ptr, tail) != 0)
            tail--;
        certain = MIN_OF(certain, held.len - tail);
    }
    return certain;
}

/* ---- logprobs ---- */

static void comma(struct buf *b)
{
    if (b->len > 0)
        buf_putc(b, ',');
}

static uint64_t characters_of(struct slice s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return n;
}

static void note_completion_logprob(struct choice *c, const struct stream_token *t, uint32_t top_max)
{
    const struct tokenizer *tokenizer = c->exchange->model->tokenizer;
    comma(&c->logprob_tokens);
    reply_write_token(tokenizer, t->id, &c->logprob_tokens);
    comma(&c->logprobs);
    reply_write_logprob(&c->logprobs, t->logprob);
    comma(&c->logprob_offsets);
    buf_printf(&c->logprob_offsets, "%llu", (unsigned long long)c->characters);
    if (tokenizer)
        c->characters += characters_of(tokenizer_token_bytes(tokenizer, t->id));
    comma(&c->logprob_tops);
    if (top_max == 0) {
        buf_puts(&c->logprob_tops, "null");
        return;
    }
    /* The token itself is always listed, as in OpenAI's API: last, when it is not among the best. */
    bool listed = false;
    buf_putc(&c->logprob_tops, '{');
    for (uint32_t i = 0; i < MIN_OF(t->top_count, top_max); i++) {
        if (i > 0)
            buf_putc(&c->logprob_tops, ',');
        listed = listed || t->top[i].id == t->id;
        reply_write_token(tokenizer, t->top[i].id, &c->logprob_tops);
        buf_putc(&c->logprob_tops, ':');
        reply_write_logprob(&c->logprob_tops, t->top[i].logprob);
    }
    if (!listed) {
        buf_puts(&c->logprob_tops, MIN_OF(t->top_count, top_max) ? "," : "");
        reply_write_token(tokenizer, t->id, &c->logprob_tops);
        buf_putc(&c->logprob_tops, ':');
        reply_write_logprob(&c->logprob_tops, t->logprob);
    }
    buf_putc(&c->logprob_tops, '}');
}

static void note_logprob(struct choice *c, const struct stream_token *t)
{
    const struct exchange *x = c->exchange;
    uint32_t top_max = (uint32_t)x->request.gen.sampling.top_logprobs;
    if (x->kind == REQUEST_CHAT) {
        comma(&c->logprobs);
        reply_write_chat_logprob(x->model->tokenizer, t, top_max, &c->logprobs);
    } else {
        note_completion_logprob(c, t, top_max);
    }
}

static void write_prompt_entry(struct choice *c, uint32_t id, float logprob, uint32_t rank)
{
    struct buf *b = &c->prompt_logprobs;
    buf_printf(b, "\"%u\":{\"logprob\":", id);
    reply_write_logprob(b, logprob);
    if (rank > 0)
        buf_printf(b, ",\"rank\":%u,\"decoded_token\":", rank);
    else
        buf_puts(b, ",\"rank\":null,\"decoded_token\":");
    reply_write_token(c->exchange->model->tokenizer, id, b);
    buf_putc(b, '}');
}

static void note_prompt_logprob(struct choice *c, const struct stream_token *t)
{
    struct buf *b = &c->prompt_logprobs;
    uint32_t count = MIN_OF(t->top_count, (uint32_t)c->exchange->request.gen.sampling.prompt_logprobs),
             rank = 0;
    comma(b);
    if (isnan(t->logprob)) {
        buf_puts(b, "null"); /* the first token has no predecessor */
        return;
    }
    buf_putc(b, '{');
    for (uint32_t i = 0; i < t->top_count; i++)
        if (t->top[i].id == t->id)
            rank = i + 1;
    write_prompt_entry(c, t->id, t->logprob, rank);
    for (uint32_t i = 0; i < count; i++) {
        if (t->top[i].id == t->id)
            continue;
        buf_putc(b, ',');
        write_prompt_entry(c, t->top[i].id, t->top[i].logprob, i + 1);
    }
    buf_putc(b, '}');
}

/* ---- tokens ---- */

static bool ends_row(const struct choice *c, uint32_t id)
{
    for (uint32_t i = 0; i < c->sampling.stop_count; i++)
        if (c->sampling.stop_ids[i] == id)
            return true;
    return false;
}

static void count_reasoning(struct choice *c, uint32_t id)
{
    if (id == c->think_close)
        c->in_reasoning = false;
    else if (id == c->think_open)
        c->in_reasoning = true;
    else if (c->in_reasoning)
        c->reasoning_tokens++;
}

static void on_token(struct choice *c, const struct stream_token *t)
{
    const struct exchange *x = c->exchange;
    c->tokens++;
    if (x->request.return_token_ids) {
        comma(&c->ids);
        buf_printf(&c->ids, "%u", t->id);
    }
    if (x->request.gen.sampling.logprobs)
        note_logprob(c, t);
    /* The token that ends the sequence, an end token or a stop id, is not text. */
    if (ends_row(c, t->id) || !x->model->tokenizer)
        return;
    if (x->kind == REQUEST_CHAT && x->model->format != CHAT_FORMAT_PLAIN)
        count_reasoning(c, t->id);
    size_t old = c->held.len;
    detok_push(&c->detok, t->id, &c->held);
    deliver_held(c, certain_bytes(c, old));
}

static void on_finish(struct choice *c)
{
    const struct stream_finish *f = &c->finish;
    c->over = true;
    if (c->exchange->model->tokenizer)
        detok_flush(&c->detok, &c->held);
    size_t end = c->held.len;
    if (f->reason == FINISH_STOP && f->stopped_by_string) {
        size_t keep = 0;
        if (c->exchange->request.gen.include_stop && f->stop_index < c->exchange->request.gen.stop_count)
            keep = c->exchange->request.gen.stops[f->stop_index].len;
        uint64_t cut = f->text_bytes + keep;
        end = cut < c->held_from ? 0 : (size_t)MIN_OF(cut - c->held_from, (uint64_t)c->held.len);
    }
    deliver_held(c, end);
    buf_clear(&c->held);
    int r = c->parser ? chat_parser_finish(c->parser) : 0;
    if (r < 0 && c->error == 0)
        c->error = r;
}

static void note_errors(struct choice *c)
{
    struct buf *bufs[11];
    bufs_of(c, bufs);
    for (size_t i = 0; i < COUNT_OF(bufs) && c->error == 0; i++)
        c->error = bufs[i]->error;
    if (c->error == 0)
        c->error = c->prompt_logprobs.error;
}

uint32_t choice_take(struct choice *c, uint32_t tokens_max)
{
    struct stream_token t;
    uint32_t taken = 0;
    if (c->over || !c->stream)
        return 0;
    for (; taken < tokens_max && stream_take(c->stream, &t); taken++) {
        if (c->prompt_left > 0) {
            c->prompt_left--;
            note_prompt_logprob(c, &t);
        } else {
            on_token(c, &t);
        }
    }
    if (stream_finished(c->stream, &c->finish))
        on_finish(c);
    note_errors(c);
    return taken;
}

/* ---- results ---- */

const char *choice_finish_reason(const struct choice *c)
{
    if (!c->over)
        return NULL;
    switch (c->finish.reason) {
    case FINISH_STOP:
        return c->call_count > 0 ? "tool_calls" : "stop";
    case FINISH_LENGTH:
        return "length";
    default:
        return NULL;
    }
}

void choice_write_stop_reason(const struct choice *c, struct buf *ret)
{
    const struct stream_finish *f = &c->finish;
    const struct request *r = &c->exchange->request;
    bool asked = false;
    for (uint32_t i = 0; i < r->gen.stop_id_count; i++)
        asked = asked || r->gen.stop_ids[i] == f->stop_token;
    if (c->over && f->reason == FINISH_STOP && f->stopped_by_string && f->stop_index < r->gen.stop_count)
        json_write_string(ret, r->gen.stops[f->stop_index]);
    else if (c->over && f->reason == FINISH_STOP && !f->stopped_by_string && asked)
        buf_printf(ret, "%u", f->stop_token);
    else
        buf_puts(ret, "null");
}

bool choice_has_pending(const struct choice *c)
{
    return c->pending != PIECE_NONE || c->ids.len > 0 || c->logprobs.len > 0;
}

void choice_clear_pending(struct choice *c)
{
    struct buf *each[] = {&c->content,  &c->reasoning,      &c->arguments,    &c->ids,
                          &c->logprobs, &c->logprob_tokens, &c->logprob_tops, &c->logprob_offsets};
    for (size_t i = 0; i < COUNT_OF(each); i++)
        if (each[i]->error == 0)
            buf_clear(each[i]);
    c->pending = PIECE_NONE;
    c->call_begun = false;
}
