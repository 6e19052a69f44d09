/* wire_messages.c - Anthropic's Messages: replies of ordered blocks, whole and as events.
 *
 * A block is open while parts of its kind arrive; another kind, or another call, closes it. A thinking block
 * ends with a signature, which has the text where the block omits it: the client returns it, and the next
 * prompt has the reasoning. The first event tells cached, written and other tokens of the prompt apart, so it
 * waits for the admission of the sequence. */
#include "api/exchange.h"
#include "api/reasoning_seal.h"
#include "api/reply.h"
#include "api/timings.h"
#include "api/request/compaction.h"
#include "api/turns/cache_miss.h"
#include "api/wire/messages.h"
#include "api/wire/wire.h"

#include "base/charge.h"
#include "base/check.h"
#include "base/json/json_write.h"
#include "engine/stream.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/request_memory.h"
#include "http/sse.h"

struct own {
    enum piece_kind open; /* kind of the block that is open in the stream */
    uint32_t blocks;      /* begun until now */
    bool has_input;       /* the open block, a call, has bytes of its arguments */
    struct messages_signature signature;
};

/* ---- members ---- */

/* Divides the written tokens by their ttl. */
static void write_creation(const struct gen *g, const struct gen_usage *u, struct buf *ret)
{
    const struct gen_request *r = g->request;
    uint64_t head = g->prompts ? g->prompts[0].head : 0;
    uint64_t longer = r->keep_head_s > 300 && head > u->cached_tokens ? head - u->cached_tokens : 0;
    if (r->keep_s > 300)
        longer = u->written_tokens;
    longer = MIN_OF(longer, u->written_tokens);
    buf_printf(ret,
               ",\"cache_creation\":{\"ephemeral_5m_input_tokens\":%llu,\"ephemeral_1h_input_tokens\":%llu}",
               (ull)(u->written_tokens - longer), (ull)longer);
}

static void write_usage(const struct exchange *x, struct buf *ret)
{
    struct gen_usage u = gen_usage(&x->gen);
    buf_printf(ret,
               "\"usage\":{\"input_tokens\":%llu,\"cache_creation_input_tokens\":%llu,"
               "\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu,"
               "\"output_tokens_details\":{\"thinking_tokens\":%llu},\"service_tier\":\"standard\"",
               (ull)(u.prompt_tokens - u.cached_tokens - u.written_tokens), (ull)u.written_tokens,
               (ull)u.cached_tokens, (ull)u.completion_tokens, (ull)u.reasoning_tokens);
    if (x->request.gen.compaction.on)
        buf_printf(
            ret,
            ",\"iterations\":[{\"type\":\"compaction\",\"input_tokens\":%llu,"
            "\"cache_creation_input_tokens\":%llu,\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu}]",
            (ull)(u.prompt_tokens - u.cached_tokens - u.written_tokens), (ull)u.written_tokens,
            (ull)u.cached_tokens, (ull)u.completion_tokens);
    write_creation(&x->gen, &u, ret);
    timings_write(x, ret);
    cache_miss_write_usage(x, ret);
    buf_putc(ret, '}');
}

/* `"id":...` up to the content. */
static void write_head(const struct exchange *x, struct buf *ret)
{
    buf_printf(ret, "\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", x->id_text);
    json_write_string(ret, slice_of(x->request.model ? x->request.model : x->gen.model->id));
    if (!exchange_is_exact(x))
        buf_puts(ret, ",\"exact\":false");
}

static bool compacts(const struct exchange *x)
{
    return x->request.gen.compaction.on;
}

/* NULL where it failed: no reply is written then. */
static const char *stop_reason(const struct choice *c, bool by_sequence)
{
    if (c->gen->request->compaction.on)
        return "compaction";
    if (c->finish.reason == FINISH_LENGTH)
        return "max_tokens";
    if (c->finish.reason == FINISH_REPETITION)
        return "repetition";
    if (by_sequence)
        return "stop_sequence";
    return c->call_count > 0 ? "tool_use" : "end_turn";
}

/* `"stop_reason":...,"stop_sequence":...` */
static void write_stop(const struct reply *r, struct buf *ret)
{
    struct slice string = {0};
    uint32_t token;
    ASSERT(r->choice->over);
    bool asked = choice_stopped_by(r->choice, &string, &token) && string.len > 0;
    buf_printf(ret, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(r->choice, asked));
    if (asked)
        json_write_string(ret, string);
    else
        buf_puts(ret, "null");
}

static void write_call_head(const struct reply *r, struct buf *ret)
{
    buf_printf(ret, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", r->call_id);
    json_write_string(ret, buf_slice(&r->call_name));
    const char *toolset = messages_toolset_of(&r->exchange->request, buf_slice(&r->call_name));
    if (toolset)
        json_write_member(ret, "toolset_name", toolset);
    buf_puts(ret, ",\"input\":");
}

/* ---- whole ---- */

static void write_signature(struct own *own, bool omitted, struct slice text, struct buf *ret)
{
    char signature[MESSAGES_SIGNATURE_BYTES];
    messages_signature_end(&own->signature, signature);
    if (omitted)
        reasoning_seal(text, ret);
    else
        buf_puts(ret, signature);
}

static void write_thinking(struct reply *r, struct buf *ret)
{
    struct own *own = r->own;
    bool omitted = r->exchange->request.thinking_omitted;
    messages_signature_begin(&own->signature);
    messages_signature_add(&own->signature, buf_slice(&r->reasoning));
    buf_puts(ret, "{\"type\":\"thinking\",\"thinking\":");
    json_write_string(ret, omitted ? SLICE("") : buf_slice(&r->reasoning));
    buf_puts(ret, ",\"signature\":\"");
    write_signature(own, omitted, buf_slice(&r->reasoning), ret);
    buf_puts(ret, "\"}");
}

/* An input is an object: one that was cut has its open text inside, in the form in which Anthropic's
 * documentation has clients return such a text. No tool takes it for its arguments. */
static void write_input(const struct reply *r, struct buf *ret)
{
    struct slice text = buf_slice(&r->arguments);
    if (!r->choice->call_cut) {
        buf_put_slice(ret, text.len ? text : SLICE("{}"));
        return;
    }
    buf_puts(ret, "{\"INVALID_JSON\":");
    json_write_string(ret, text);
    buf_putc(ret, '}');
}

/* The collected block goes to the items. */
static void write_block(struct reply *r)
{
    struct buf *ret = &r->items;
    if (r->pending == PIECE_NONE)
        return;
    if (ret->len > 0)
        buf_putc(ret, ',');
    switch (r->pending) {
    case PIECE_NONE:
        break;
    case PIECE_REASONING:
        write_thinking(r, ret);
        buf_clear(&r->reasoning);
        break;
    case PIECE_CONTENT:
        if (compacts(r->exchange)) {
            messages_write_compaction(&r->exchange->request, buf_slice(&r->content), ret);
        } else {
            buf_puts(ret, "{\"type\":\"text\",\"text\":");
            json_write_string(ret, buf_slice(&r->content));
            buf_putc(ret, '}');
        }
        buf_clear(&r->content);
        break;
    case PIECE_CALL:
        write_call_head(r, ret);
        write_input(r, ret);
        buf_putc(ret, '}');
        break;
    }
    r->pending = PIECE_NONE;
}

static void write_whole(struct exchange *x, struct buf *ret)
{
    struct reply *r = &x->replies[0];
    write_block(r);
    if (compacts(x) && r->items.len == 0) {
        struct reject why = {0};
        compaction_refuse(&why);
        x->status = messages_status(&why);
        messages_write_error(&why, x->id_text, ret);
        return;
    }
    buf_putc(ret, '{');
    write_head(x, ret);
    buf_puts(ret, ",\"content\":[");
    buf_put_slice(ret, buf_slice(&r->items));
    buf_puts(ret, "],");
    write_stop(r, ret);
    buf_putc(ret, ',');
    write_usage(x, ret);
    cache_miss_write_diagnostics(x, ret);
    buf_putc(ret, '}');
}

/* ---- events ---- */

static void event_begin(struct exchange *x, const char *type)
{
    buf_printf(&x->out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void event_end(struct exchange *x)
{
    buf_puts(&x->out, "}\n\n");
}

static void ping(struct exchange *x)
{
    event_begin(x, "ping");
    event_end(x);
}

static void begin(struct exchange *x)
{
    event_begin(x, "message_start");
    buf_puts(&x->out, ",\"message\":{");
    write_head(x, &x->out);
    buf_puts(&x->out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    write_usage(x, &x->out);
    cache_miss_write_diagnostics(x, &x->out);
    buf_putc(&x->out, '}');
    event_end(x);
    event_begin(x, "ping");
    event_end(x);
}

static void delta_begin(struct reply *r, const char *type)
{
    const struct own *own = r->own;
    event_begin(r->exchange, "content_block_delta");
    buf_printf(&r->exchange->out, ",\"index\":%u,\"delta\":{\"type\":\"%s\",", own->blocks - 1, type);
}

static void delta_end(struct reply *r)
{
    buf_putc(&r->exchange->out, '}');
    event_end(r->exchange);
}

static void sign(struct reply *r)
{
    struct buf *out = &r->exchange->out;
    delta_begin(r, "signature_delta");
    buf_puts(out, "\"signature\":\"");
    write_signature(r->own, r->exchange->request.thinking_omitted, buf_slice(&r->block), out);
    buf_putc(out, '"');
    delta_end(r);
}

static void close_block(struct reply *r)
{
    struct own *own = r->own;
    if (own->open == PIECE_NONE)
        return;
    if (own->open == PIECE_REASONING)
        sign(r);
    own->open = PIECE_NONE;
    event_begin(r->exchange, "content_block_stop");
    buf_printf(&r->exchange->out, ",\"index\":%u", own->blocks - 1);
    event_end(r->exchange);
}

static void open_block(struct reply *r)
{
    struct own *own = r->own;
    struct buf *out = &r->exchange->out;
    own->open = r->pending;
    own->has_input = false;
    event_begin(r->exchange, "content_block_start");
    buf_printf(out, ",\"index\":%u,\"content_block\":", own->blocks++);
    if (r->pending == PIECE_REASONING) {
        messages_signature_begin(&own->signature);
        buf_clear(&r->block);
        buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else if (r->pending == PIECE_CONTENT) {
        buf_puts(out, "{\"type\":\"text\",\"text\":\"\"}");
    } else {
        write_call_head(r, out);
        buf_puts(out, "{}}");
    }
    event_end(r->exchange);
}

static void put_delta(struct reply *r, const char *type, const char *member, const struct buf *text)
{
    delta_begin(r, type);
    buf_printf(&r->exchange->out, "\"%s\":", member);
    json_write_string(&r->exchange->out, buf_slice(text));
    delta_end(r);
}

static void flush(struct reply *r)
{
    struct own *own = r->own;
    if (r->pending == PIECE_NONE)
        return;
    if (compacts(r->exchange)) {
        buf_put_slice(&r->block, buf_slice(&r->content));
        return;
    }
    if (own->open != r->pending || r->call_begun) {
        close_block(r);
        open_block(r);
    }
    switch (r->pending) {
    case PIECE_NONE:
        break;
    case PIECE_REASONING:
        messages_signature_add(&own->signature, buf_slice(&r->reasoning));
        if (r->exchange->request.thinking_omitted)
            buf_put_slice(&r->block, buf_slice(&r->reasoning));
        else
            put_delta(r, "thinking_delta", "thinking", &r->reasoning);
        break;
    case PIECE_CONTENT:
        put_delta(r, "text_delta", "text", &r->content);
        break;
    case PIECE_CALL:
        own->has_input |= r->arguments.len > 0;
        put_delta(r, "input_json_delta", "partial_json", &r->arguments);
        break;
    }
}

/* Clients take no bytes for {}: a call that was cut before its arguments has the first one. */
static void open_input(struct reply *r)
{
    struct own *own = r->own;
    if (own->open != PIECE_CALL || own->has_input || !r->choice->call_cut)
        return;
    delta_begin(r, "input_json_delta");
    buf_puts(&r->exchange->out, "\"partial_json\":\"{\"");
    delta_end(r);
}

/* Clients take the last delta of a summary for all of it. */
static void put_summary(struct reply *r)
{
    struct own *own = r->own;
    event_begin(r->exchange, "content_block_start");
    buf_printf(&r->exchange->out, ",\"index\":%u,\"content_block\":", own->blocks++);
    messages_write_compaction(&r->exchange->request, SLICE(""), &r->exchange->out);
    event_end(r->exchange);
    put_delta(r, "compaction_delta", "content", &r->block);
    own->open = PIECE_CONTENT;
}

static void finish(struct reply *r)
{
    struct exchange *x = r->exchange;
    if (compacts(x) && r->block.len == 0) {
        struct reject why = {0};
        compaction_refuse(&why);
        x->wire->frame->fail(x, &why);
        return;
    }
    if (compacts(x))
        put_summary(r);
    open_input(r);
    close_block(r);
    event_begin(x, "message_delta");
    buf_puts(&x->out, ",\"delta\":{");
    write_stop(r, &x->out);
    buf_puts(&x->out, "},");
    write_usage(x, &x->out);
    event_end(x);
}

static void end(struct exchange *x)
{
    event_begin(x, "message_stop");
    event_end(x);
}

static void fail(struct exchange *x, const struct reject *why)
{
    struct charge charge = request_memory_charge(&x->gen.memory);
    struct buf text;
    buf_init(&text, 8192, &charge);
    messages_write_error(why, x->id_text, &text);
    sse_event(&x->out, "error", buf_slice(&text));
    buf_done(&text);
}

/* ---- parts ---- */

static void turn(struct reply *r, enum piece_kind kind, bool always)
{
    if (r->exchange->request.stream) {
        reply_turn(r, kind, always);
        return;
    }
    if (always || r->pending != kind)
        write_block(r);
    r->pending = kind;
}

static void put(struct reply *r, enum piece_kind kind, struct buf *to, struct slice text)
{
    turn(r, kind, false);
    buf_put_slice(to, text);
}

static void part(void *arg, const struct part *p)
{
    struct reply *r = arg;
    switch (p->kind) {
    case PART_TOKEN:
    case PART_PROMPT_TOKEN:
    case PART_CALL_END:
        break;
    case PART_REASONING:
        if (!compacts(r->exchange))
            put(r, PIECE_REASONING, &r->reasoning, p->text);
        break;
    case PART_TEXT:
        put(r, PIECE_CONTENT, &r->content, p->text);
        break;
    case PART_CALL:
        turn(r, PIECE_CALL, true);
        reply_begin_call(r, p, "toolu", false);
        break;
    case PART_ARGUMENTS:
        put(r, PIECE_CALL, &r->arguments, p->text);
        break;
    }
}

/* ---- the dialect ---- */

const struct wire_frame messages_frame = {
    .envelope = {messages_status, messages_write_error},
    .id_header = "request-id",
    .fail = fail,
    .ping = ping,
    .end = end,
};

const struct wire wire_messages = {
    .route = "/v1/messages",
    .frame = &messages_frame,
    .form = {.groups = messages_groups,
             .output = GEN_TOKENS,
             .parses = true,
             .may_have_no_output = true,
             .check = messages_check,
             .convert = messages_convert},
    .id_prefix = "msg",
    .object = "message",
    .chunk_object = "message",
    .own_bytes = sizeof(struct own),
    .part = part,
    .whole = write_whole,
    .begin = begin,
    .begins_admitted = true,
    .flush = flush,
    .finish = finish,
};
