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
#include "api/request/compaction_words.h"
#include "api/turns/cache_miss.h"
#include "api/wire/messages.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "engine/stream.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/request_memory.h"

struct own {
    enum reply_delta open; /* kind of the block that is open in the stream */
    uint32_t blocks;       /* begun until now */
    bool has_input;        /* the open block, a call, has bytes of its arguments */
    struct messages_signature signature;
};

/* ---- members ---- */

/* Divides the written tokens by their ttl. */
static void write_creation(const struct gen *g, const struct gen_usage *u, struct json_out *j)
{
    const struct gen_request *r = g->request;
    uint64_t head = g->prompts ? g->prompts[0].head : 0;
    uint64_t longer = r->keep_head_s > 300 && head > u->cached_tokens ? head - u->cached_tokens : 0;
    if (r->keep_s > 300)
        longer = u->written_tokens;
    longer = MIN_OF(longer, u->written_tokens);
    json_open(j, "cache_creation");
    JSON_PUT_U64S(j, {"ephemeral_5m_input_tokens", u->written_tokens - longer},
                  {"ephemeral_1h_input_tokens", longer});
    json_close(j);
}

static void write_tokens(const struct gen_usage *u, struct json_out *j)
{
    JSON_PUT_U64S(j, {"input_tokens", u->prompt_tokens - u->cached_tokens - u->written_tokens},
                  {"cache_creation_input_tokens", u->written_tokens},
                  {"cache_read_input_tokens", u->cached_tokens}, {"output_tokens", u->completion_tokens});
}

static void write_usage(const struct exchange *x, struct json_out *j)
{
    struct gen_usage u = gen_usage(&x->gen);
    json_open(j, "usage");
    write_tokens(&u, j);
    json_open(j, "output_tokens_details");
    json_put_u64(j, "thinking_tokens", u.reasoning_tokens);
    json_close(j);
    json_put_string(j, "service_tier", "standard");
    if (x->request.gen.compaction.on) {
        json_open_array(j, "iterations");
        json_open(j, NULL);
        json_put_string(j, "type", "compaction");
        write_tokens(&u, j);
        json_close(j);
        json_close(j);
    }
    write_creation(&x->gen, &u, j);
    timings_write(x, j);
    cache_miss_write_usage(x, j);
    json_close(j);
}

/* Puts the members before the content. */
static void write_head(const struct exchange *x, struct json_out *j)
{
    json_put_format(j, "id", "msg_%s", x->id_text);
    JSON_PUT_STRINGS(j, {"type", "message"}, {"role", "assistant"}, {"model", exchange_model_name(x)});
    if (!exchange_is_exact(x))
        json_put_bool(j, "exact", false);
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

/* Puts stop_reason and stop_sequence. */
static void write_stop(const struct reply *r, struct json_out *j)
{
    struct slice string = {0};
    uint32_t token;
    ASSERT(r->choice->over);
    bool asked = choice_stopped_by(r->choice, &string, &token) && string.len > 0;
    json_put_string(j, "stop_reason", stop_reason(r->choice, asked));
    if (asked)
        json_put_text(j, "stop_sequence", string);
    else
        json_put_null(j, "stop_sequence");
}

static void open_call(const struct reply *r, const char *key, struct json_out *j)
{
    json_open(j, key);
    JSON_PUT_STRINGS(j, {"type", "tool_use"}, {"id", r->call_id});
    json_put_text(j, "name", buf_slice(&r->call_name));
    const char *toolset = messages_toolset_of(&r->exchange->request, buf_slice(&r->call_name));
    if (toolset)
        json_put_string(j, "toolset_name", toolset);
}

/* ---- whole ---- */

static void write_signature(struct own *own, bool omitted, struct slice text, struct json_out *j)
{
    char signature[MESSAGES_SIGNATURE_BYTES];
    messages_signature_end(&own->signature, signature);
    struct buf *ret = json_begin_text(j, "signature");
    if (omitted)
        reasoning_seal(text, ret);
    else
        buf_puts(ret, signature);
    json_end_text(j);
}

static void write_thinking(struct reply *r, struct json_out *j)
{
    struct own *own = r->own;
    bool omitted = r->exchange->request.thinking_omitted;
    messages_signature_begin(&own->signature);
    messages_signature_add(&own->signature, buf_slice(&r->reasoning));
    json_open(j, NULL);
    json_put_string(j, "type", "thinking");
    json_put_text(j, "thinking", omitted ? SLICE("") : buf_slice(&r->reasoning));
    write_signature(own, omitted, buf_slice(&r->reasoning), j);
    json_close(j);
}

/* An input is an object: one that was cut has its open text inside, in the form in which Anthropic's
 * documentation has clients return such a text. No tool takes it for its arguments. */
static void write_input(const struct reply *r, struct json_out *j)
{
    struct slice text = buf_slice(&r->arguments);
    if (!r->choice->call_cut) {
        json_put_raw(j, "input", text.len ? text : SLICE("{}"));
        return;
    }
    json_open(j, "input");
    json_put_text(j, "INVALID_JSON", text);
    json_close(j);
}

static void write_text(struct slice text, const char *key, struct json_out *j)
{
    json_open(j, key);
    json_put_string(j, "type", "text");
    json_put_text(j, "text", text);
    json_close(j);
}

/* The collected block goes to the items. */
static void write_block(struct reply *r)
{
    struct json_out j = json_out_items(&r->items);
    switch (r->pending) {
    case DELTA_NONE:
        break;
    case DELTA_REASONING:
        write_thinking(r, &j);
        buf_clear(&r->reasoning);
        break;
    case DELTA_CONTENT:
        if (compacts(r->exchange))
            messages_write_compaction(&r->exchange->request, buf_slice(&r->content), NULL, &j);
        else
            write_text(buf_slice(&r->content), NULL, &j);
        buf_clear(&r->content);
        break;
    case DELTA_CALL:
        open_call(r, NULL, &j);
        write_input(r, &j);
        json_end(&j);
        break;
    }
    r->pending = DELTA_NONE;
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
    struct json_out j = json_out_object(ret);
    write_head(x, &j);
    json_put_list(&j, "content", buf_slice(&r->items));
    write_stop(r, &j);
    write_usage(x, &j);
    cache_miss_write_diagnostics(x, &j);
    json_end(&j);
}

/* ---- events ---- */

static struct json_out event_begin(struct exchange *x, const char *type)
{
    buf_printf(&x->out, "event: %s\ndata: ", type);
    struct json_out j = json_out_object(&x->out);
    json_put_string(&j, "type", type);
    return j;
}

static void event_end(struct json_out *j)
{
    json_end(j);
    buf_puts(j->buf, "\n\n");
}

static void ping(struct exchange *x)
{
    struct json_out j = event_begin(x, "ping");
    event_end(&j);
}

static void begin(struct exchange *x)
{
    struct json_out j = event_begin(x, "message_start");
    json_open(&j, "message");
    write_head(x, &j);
    json_put_list(&j, "content", SLICE(""));
    json_put_null(&j, "stop_reason");
    json_put_null(&j, "stop_sequence");
    write_usage(x, &j);
    cache_miss_write_diagnostics(x, &j);
    json_close(&j);
    event_end(&j);
    ping(x);
}

static struct json_out delta_begin(struct reply *r, const char *type)
{
    const struct own *own = r->own;
    struct json_out j = event_begin(r->exchange, "content_block_delta");
    json_put_u64(&j, "index", own->blocks - 1);
    json_open(&j, "delta");
    json_put_string(&j, "type", type);
    return j;
}

static void delta_end(struct json_out *j)
{
    json_close(j);
    event_end(j);
}

static void sign(struct reply *r)
{
    struct json_out j = delta_begin(r, "signature_delta");
    write_signature(r->own, r->exchange->request.thinking_omitted, buf_slice(&r->block), &j);
    delta_end(&j);
}

static void close_block(struct reply *r)
{
    struct own *own = r->own;
    if (own->open == DELTA_NONE)
        return;
    if (own->open == DELTA_REASONING)
        sign(r);
    own->open = DELTA_NONE;
    struct json_out j = event_begin(r->exchange, "content_block_stop");
    json_put_u64(&j, "index", own->blocks - 1);
    event_end(&j);
}

static struct json_out start_begin(struct reply *r)
{
    struct own *own = r->own;
    struct json_out j = event_begin(r->exchange, "content_block_start");
    json_put_u64(&j, "index", own->blocks++);
    return j;
}

static void open_block(struct reply *r)
{
    struct own *own = r->own;
    own->open = r->pending;
    own->has_input = false;
    struct json_out j = start_begin(r);
    if (r->pending == DELTA_REASONING) {
        messages_signature_begin(&own->signature);
        buf_clear(&r->block);
        json_open(&j, "content_block");
        JSON_PUT_STRINGS(&j, {"type", "thinking"}, {"thinking", ""}, {"signature", ""});
        json_close(&j);
    } else if (r->pending == DELTA_CONTENT) {
        write_text(SLICE(""), "content_block", &j);
    } else {
        open_call(r, "content_block", &j);
        json_put_raw(&j, "input", SLICE("{}"));
        json_close(&j);
    }
    event_end(&j);
}

static void put_delta(struct reply *r, const char *type, const char *member, struct slice text)
{
    struct json_out j = delta_begin(r, type);
    json_put_text(&j, member, text);
    delta_end(&j);
}

static void flush(struct reply *r)
{
    struct own *own = r->own;
    if (r->pending == DELTA_NONE)
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
    case DELTA_NONE:
        break;
    case DELTA_REASONING:
        messages_signature_add(&own->signature, buf_slice(&r->reasoning));
        if (r->exchange->request.thinking_omitted)
            buf_put_slice(&r->block, buf_slice(&r->reasoning));
        else
            put_delta(r, "thinking_delta", "thinking", buf_slice(&r->reasoning));
        break;
    case DELTA_CONTENT:
        put_delta(r, "text_delta", "text", buf_slice(&r->content));
        break;
    case DELTA_CALL:
        own->has_input |= r->arguments.len > 0;
        put_delta(r, "input_json_delta", "partial_json", buf_slice(&r->arguments));
        break;
    }
}

/* Clients take no bytes for {}: a call that was cut before its arguments has the first one. */
static void open_input(struct reply *r)
{
    struct own *own = r->own;
    if (own->open == DELTA_CALL && !own->has_input && r->choice->call_cut)
        put_delta(r, "input_json_delta", "partial_json", SLICE("{"));
}

/* Clients take the last delta of a summary for all of it. */
static void put_summary(struct reply *r)
{
    struct own *own = r->own;
    struct json_out j = start_begin(r);
    messages_write_compaction(&r->exchange->request, SLICE(""), "content_block", &j);
    event_end(&j);
    put_delta(r, "compaction_delta", "content", buf_slice(&r->block));
    own->open = DELTA_CONTENT;
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
    struct json_out j = event_begin(x, "message_delta");
    json_open(&j, "delta");
    write_stop(r, &j);
    json_close(&j);
    write_usage(x, &j);
    event_end(&j);
}

static void end(struct exchange *x)
{
    struct json_out j = event_begin(x, "message_stop");
    event_end(&j);
}

static void fail(struct exchange *x, const struct reject *why)
{
    buf_puts(&x->out, "event: error\ndata: ");
    messages_write_error(why, x->id_text, &x->out);
    buf_puts(&x->out, "\n\n");
}

/* ---- parts ---- */

static void turn(struct reply *r, enum reply_delta kind, bool always)
{
    if (r->exchange->request.stream) {
        reply_turn(r, kind, always);
        return;
    }
    if (always || r->pending != kind)
        write_block(r);
    r->pending = kind;
}

static void put(struct reply *r, enum reply_delta kind, struct buf *to, struct slice text)
{
    turn(r, kind, false);
    buf_put_slice(to, text);
}

static void part(void *arg, const struct reply_part *p)
{
    struct reply *r = arg;
    switch (p->kind) {
    case PART_TOKEN:
    case PART_PROMPT_TOKEN:
    case PART_CALL_END:
        break;
    case PART_REASONING:
        if (!compacts(r->exchange))
            put(r, DELTA_REASONING, &r->reasoning, p->text);
        break;
    case PART_TEXT:
        put(r, DELTA_CONTENT, &r->content, p->text);
        break;
    case PART_CALL:
        turn(r, DELTA_CALL, true);
        reply_begin_call(r, p, "toolu", false);
        break;
    case PART_ARGUMENTS:
        put(r, DELTA_CALL, &r->arguments, p->text);
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
    .budget_field = "thinking.budget_tokens",
    .note_headers = messages_note_betas,
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
