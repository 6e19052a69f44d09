/* choice.c - tokens in, parts out.
 *
 * A token's bytes go through the detokenizer into `held`. They wait there while they may be the start of a
 * stop string: only the engine decides whether a stop string ends the sequence (it may not before
 * min_tokens). Its finish record says so. A later token proves that a complete stop string in `held` was
 * not one that ends the sequence. Bytes that leave `held` are the reply's text, and go through the chat
 * parser. The format's special tokens go there as tokens, at their places in the text. */
#include "gen/choice.h"

#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/request_memory.h"

#include "base/check.h"
#include "chat/chat_format.h"
#include "chat/chat_syntax.h"
#include "engine/engine.h"
#include "model/config/pooling.h"
#include "model/model.h"
#include "registry/registry.h"
#include "tokenizer/tokenizer.h"

#include <math.h>

/* Limit of one text of a reply; a request's memory bounds all of them together. */
#define TEXT_BYTES_MAX ((size_t)64 << 20)

void choice_init(struct choice *c, struct gen *g, uint32_t index, uint32_t prompt_index)
{
    ASSERT(prompt_index < g->prompt_count);
    struct charge charge = request_memory_charge(&g->memory);
    *c = (struct choice){.gen = g, .index = index, .prompt_index = prompt_index};
    list_init(&c->by_stream);
    buf_init(&c->held, TEXT_BYTES_MAX, &charge);
    buf_init(&c->marks, TEXT_BYTES_MAX, &charge);
}

/* The id of a marker that is a single token. */
static uint32_t marker_token(const struct gen *g, enum chat_marker m)
{
    const struct tokenizer *t = g->model->tokenizer;
    struct slice content = slice_of(g->model->syntax->marker[m]);
    uint32_t id = UINT32_MAX;
    return t && tokenizer_find(t, content, &id) ? id : UINT32_MAX;
}

static chat_sink_fn on_event;

int choice_open(struct choice *c)
{
    struct gen *g = c->gen;
    const struct gen_request *r = g->request;
    const struct prompt_ids *prompt = &g->prompts[c->prompt_index];
    const struct tokenizer *t = g->model->tokenizer;
    if (t) {
        detok_init(&c->detok, t, r->skip_special_tokens);
        detok_continue(&c->detok);
    }
    if (r->sampling.prompt_logprobs >= 0)
        c->prompt_left = prompt->count;
    if (!r->parses)
        return 0;
    ASSERT(!c->parser);
    c->think_open = marker_token(g, CHAT_REASONING_OPEN);
    c->think_close = marker_token(g, CHAT_REASONING_CLOSE);
    c->in_reasoning = prompt->in_reasoning;
    struct charge charge = request_memory_charge(&g->memory);
    struct chat_parser_opts opts = {
        .syntax = g->model->syntax,
        .in_reasoning = prompt->in_reasoning,
        .parse_tools = r->tools != NULL && !r->compaction.on,
        .by_token = true,
        .hide_special = r->skip_special_tokens,
        .tools = r->tools,
        .bytes_max = TEXT_BYTES_MAX,
        .charge = &charge,
        .sink = on_event,
        .sink_arg = c,
    };
    return chat_parser_create(&opts, &c->parser);
}

void choice_close(struct choice *c)
{
    if (c->stream) {
        if (!c->over) {
            stream_close(c->stream);
            engine_wake(c->gen->model->engine);
        }
        list_remove(&c->by_stream);
        stream_release(c->stream);
        c->gen->host->give_stream(c->gen);
        c->stream = NULL;
    }
    chat_parser_free(c->parser);
    c->parser = NULL;
    buf_done(&c->held);
    buf_done(&c->marks);
}

/* ---- text ---- */

static void put(struct choice *c, const struct reply_part *p)
{
    c->sink(c->sink_arg, p);
}

static void on_event(void *arg, const struct chat_event *event)
{
    static const enum reply_part_kind kinds[] = {[CHAT_REASONING] = PART_REASONING,
                                                 [CHAT_CONTENT] = PART_TEXT,
                                                 [CHAT_TOOL_BEGIN] = PART_CALL,
                                                 [CHAT_TOOL_ARGUMENTS] = PART_ARGUMENTS,
                                                 [CHAT_TOOL_END] = PART_CALL_END};
    ASSERT((size_t)event->kind < COUNT_OF(kinds));
    struct choice *c = arg;
    bool call = event->kind != CHAT_REASONING && event->kind != CHAT_CONTENT;
    /* A reply that may have one call ends with the first. */
    if (call && event->index > 0 && !gen_repeats_calls(c->gen->request))
        return;
    if (event->kind == CHAT_TOOL_BEGIN)
        c->call_count = event->index + 1;
    c->call_cut = event->kind == CHAT_TOOL_END && event->cut;
    put(c, &(struct reply_part){
               .kind = kinds[event->kind], .text = event->text, .call_index = event->index, .id = event->id});
}

static void deliver(struct choice *c, struct slice text)
{
    if (text.len == 0)
        return;
    if (!c->parser) {
        put(c, &(struct reply_part){.kind = PART_TEXT, .text = text});
        return;
    }
    int r = chat_parser_push(c->parser, text);
    if (r < 0 && c->error == 0)
        c->error = r;
}

static void deliver_special(struct choice *c, const struct choice_mark *m)
{
    ASSERT(c->parser);
    int r = chat_parser_push_special(c->parser, m->special);
    if (r < 0 && c->error == 0)
        c->error = r;
}

/* The first `bytes` of `held`, and the special tokens among them. A token is delivered whole. */
static void deliver_held(struct choice *c, size_t bytes)
{
    size_t from = 0;
    struct choice_mark m;
    while (c->marks.len > 0) {
        memcpy(&m, c->marks.ptr, sizeof(m));
        size_t at = (size_t)(m.at - c->held_from);
        if (at + m.bytes > bytes) {
            bytes = c->over || at > bytes ? bytes : at;
            break;
        }
        deliver(c, slice_sub(buf_slice(&c->held), from, at - from));
        deliver_special(c, &m);
        from = at + m.bytes;
        buf_consume(&c->marks, sizeof(m));
    }
    ASSERT(from <= bytes);
    deliver(c, slice_sub(buf_slice(&c->held), from, bytes - from));
    buf_consume(&c->held, bytes);
    c->held_from += bytes;
}

/* How many bytes of `held` are certain to be text. They end before a stop string that ends after `old` (the
 * bytes held before this token), and before a tail that may start a stop string. */
static size_t certain_bytes(const struct choice *c, size_t old)
{
    struct slice held = buf_slice(&c->held);
    const struct gen_request *r = c->gen->request;
    size_t certain = held.len;
    for (uint32_t i = 0; i < r->stop_count; i++) {
        struct slice stop = r->stops[i];
        ASSERT(stop.len > 0);
        size_t from = old >= stop.len ? old - stop.len + 1 : 0;
        certain = MIN_OF(certain, slice_find(held, stop, from));
        size_t tail = MIN_OF(held.len, stop.len - 1);
        while (tail > 0 && memcmp(held.ptr + held.len - tail, stop.ptr, tail) != 0)
            tail--;
        certain = MIN_OF(certain, held.len - tail);
    }
    return certain;
}

/* ---- tokens ---- */

static bool ends_row(const struct choice *c, uint32_t id)
{
    for (uint32_t i = 0; i < c->sampling.stop_count; i++)
        if (c->sampling.stop_ids[i] == id)
            return true;
    return false;
}

/* The markers of a format that are not single tokens count by what the parser says. */
static void count_parsed_reasoning(struct choice *c, bool before)
{
    c->in_reasoning = chat_parser_reasons(c->parser);
    c->reasoning_tokens += before && c->in_reasoning;
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

/* Its text, if it has any, is the end of what the token has added. */
static void note_special(struct choice *c, uint32_t id, size_t old)
{
    const struct chat_syntax *s = c->gen->model->syntax;
    uint32_t special = c->parser ? chat_syntax_special(s, id) : UINT32_MAX;
    if (special == UINT32_MAX)
        return;
    size_t len = s->specials[special].text.len;
    ASSERT(c->held.len >= old);
    size_t bytes = c->held.len - old >= len ? len : 0;
    struct choice_mark m = {
        .at = c->held_from + c->held.len - bytes, .bytes = (uint32_t)bytes, .special = special};
    buf_put(&c->marks, &m, sizeof(m));
}

static void on_token(struct choice *c, const struct stream_token *t)
{
    ASSERT(!c->over);
    const struct gen *g = c->gen;
    if (g->request->prompt_only)
        return;
    c->tokens++;
    put(c, &(struct reply_part){.kind = PART_TOKEN, .token = t});
    /* The token that ends the sequence, an end token or a stop id, is not text. */
    if (ends_row(c, t->id) || !g->model->tokenizer)
        return;
    bool by_token = c->think_close != UINT32_MAX, reasons = c->parser && chat_parser_reasons(c->parser);
    if (c->parser && by_token)
        count_reasoning(c, t->id);
    size_t old = c->held.len;
    detok_push(&c->detok, t->id, &c->held);
    note_special(c, t->id, old);
    deliver_held(c, certain_bytes(c, old));
    if (c->parser && !by_token)
        count_parsed_reasoning(c, reasons);
}

/* The engine samples at least one token; a request for the prompt alone gets none. */
static void drop_output(struct stream_finish *f)
{
    f->completion_tokens = 0;
    if (f->reason == FINISH_STOP)
        f->reason = FINISH_LENGTH;
}

static void on_finish(struct choice *c)
{
    const struct stream_finish *f = &c->finish;
    ASSERT(!c->over && c->gen->over < c->gen->choice_count);
    c->over = true;
    c->gen->over++;
    if (c->gen->request->prompt_only)
        drop_output(&c->finish);
    if (c->gen->model->tokenizer)
        detok_flush(&c->detok, &c->held);
    size_t end = c->held.len;
    if (f->reason == FINISH_STOP && f->stopped_by_string) {
        size_t keep = 0;
        if (c->gen->request->include_stop && f->stop_index < c->gen->request->stop_count)
            keep = c->gen->request->stops[f->stop_index].len;
        uint64_t cut = f->text_bytes + keep;
        end = cut < c->held_from ? 0 : (size_t)MIN_OF(cut - c->held_from, (uint64_t)c->held.len);
    }
    deliver_held(c, end);
    buf_clear(&c->held);
    bool by_model = f->reason == FINISH_STOP && !f->stopped_by_string;
    int r = c->parser ? chat_parser_finish(c->parser, by_model ? CHAT_END_BY_MODEL : CHAT_END_CUT) : 0;
    if (r < 0 && c->error == 0)
        c->error = r;
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
            put(c, &(struct reply_part){.kind = PART_PROMPT_TOKEN, .token = &t});
        } else {
            on_token(c, &t);
        }
    }
    if (stream_finished(c->stream, &c->finish))
        on_finish(c);
    if (c->error == 0)
        c->error = c->held.error ? c->held.error : c->marks.error;
    return taken;
}

/* ---- results ---- */

bool choice_admitted(const struct choice *c, struct stream_admission *ret)
{
    const struct stream_finish *f = &c->finish;
    *ret = (struct stream_admission){.cached_tokens = f->cached_tokens,
                                     .pinned_tokens = f->pinned_tokens,
                                     .ssd_tokens = f->ssd_tokens,
                                     .written_tokens = f->written_tokens,
                                     .lost = f->lost,
                                     .queued_ns = f->queued_ns};
    return c->over || (c->stream && stream_admitted(c->stream, ret));
}

struct choice_times choice_times(const struct choice *c, uint64_t now_ns)
{
    struct stream_admission a;
    if (c->over)
        return (struct choice_times){c->finish.queued_ns, c->finish.prefill_ns, c->finish.decode_ns};
    if (!choice_admitted(c, &a))
        return (struct choice_times){0};
    uint64_t first_ns = stream_first_token_ns(c->stream), prefilled_ns = first_ns ? first_ns : now_ns;
    return (struct choice_times){.queued_ns = a.queued_ns,
                                 .prefill_ns = prefilled_ns - MIN_OF(a.admitted_ns, prefilled_ns),
                                 .decode_ns = now_ns - MIN_OF(prefilled_ns, now_ns)};
}

const float *choice_vector(struct choice *c, uint32_t *count)
{
    const struct served_model *m = c->gen->model;
    const int64_t asked = c->gen->request->dimensions;
    uint32_t room;
    float *v = stream_result(c->stream, &room);
    ASSERT(c->over && room == m->shape->vector_room);
    *count = asked > 0 ? (uint32_t)asked : m->shape->vector_width;
    if (m->use.pooling.normalize)
        pooling_normalize(v, *count);
    return v;
}

double choice_score(const struct choice *c)
{
    const float *v = stream_values(c->stream);
    ASSERT(c->over);
    /* A classifier with one label: its sigmoid. */
    if (c->gen->model->shape->labels > 0)
        return 1 / (1 + exp(-(double)v[0]));
    return 1 / (1 + exp((double)v[1] - (double)v[0]));
}

bool choice_stopped_by(const struct choice *c, struct slice *string, uint32_t *token)
{
    const struct stream_finish *f = &c->finish;
    const struct gen_request *r = c->gen->request;
    *string = (struct slice){0};
    *token = f->stop_token;
    if (!c->over || f->reason != FINISH_STOP)
        return false;
    if (f->stopped_by_string && f->stop_index < r->stop_count)
        *string = r->stops[f->stop_index];
    bool asked = string->len > 0;
    for (uint32_t i = 0; i < r->stop_id_count && !f->stopped_by_string; i++)
        asked = asked || r->stop_ids[i] == f->stop_token;
    return asked;
}
