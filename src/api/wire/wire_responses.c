/* wire_responses.c - OpenAI's Responses: replies of items, whole and as events.
 *
 * An item is open while parts of its kind arrive; another kind, or another call, closes it. All of its text
 * is collected, because the event that ends it repeats it, and the last event repeats all items. Ids of items
 * follow from the id of the request and their place, so that all events agree. */
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/reasoning_seal.h"
#include "api/reply.h"
#include "api/request/custom_tool.h"
#include "api/request/request.h"
#include "api/request/compaction_words.h"
#include "api/responses_store.h"
#include "api/timings.h"
#include "api/wire/responses.h"
#include "api/wire/wire_openai.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/wide_integer.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "http/sse.h"

#include <math.h>
#include <stdio.h>

struct own {
    enum reply_delta open; /* kind of the item that is open */
    uint32_t items;        /* begun until now */
    uint32_t sequence;     /* number of the next event */
    bool custom;           /* the open call is that of a custom tool */
    bool search;           /* the open call is a search for tools, which the client runs */
    bool cut;              /* the open item is not whole */
};

static struct own *own_of(const struct exchange *x)
{
    return x->replies[0].own;
}

/* ---- the response object ---- */

static const json_t *given(const struct request *r, const char *name)
{
    const json_t *v = json_object_get(r->root, name);
    return v && !json_is_null(v) ? v : NULL;
}

/* Puts the request's value, or what stands for its absence. */
static void echo(const struct request *r, const char *name, const char *absent, struct json_out *j)
{
    const json_t *v = given(r, name);
    if (v)
        json_put_value(j, name, v);
    else
        json_put_raw(j, name, slice_of(absent));
}

static void echo_reasoning(const struct request *r, struct json_out *j)
{
    const json_t *summary = json_object_get(given(r, "reasoning"), "summary");
    json_open(j, "reasoning");
    JSON_PUT_STRINGS(j, {"effort", r->gen.reasoning_effort}, {"summary", json_string_value(summary)});
    json_close(j);
}

static void echo_text(const struct request *r, struct json_out *j)
{
    const char *verbosity = json_string_value(json_object_get(given(r, "text"), "verbosity"));
    const json_t *format = json_object_get(given(r, "text"), "format");
    json_open(j, "text");
    if (json_is_object(format))
        json_put_value(j, "format", format);
    else
        json_put_raw(j, "format", SLICE("{\"type\":\"text\"}"));
    json_put_string(j, "verbosity", verbosity ? verbosity : "medium");
    json_close(j);
}

/* On a prep thread: the members that do not change during the reply. */
static void open_reply(struct reply *r)
{
    const struct request *q = &r->exchange->request;
    struct json_out j = json_out_items(&r->echo);
    struct wide_integers *before = wide_integers_enter(&r->exchange->gen.memory.wide);
    echo(q, "instructions", "null", &j);
    echo(q, "max_output_tokens", "null", &j);
    echo(q, "max_tool_calls", "null", &j);
    echo(q, "metadata", "{}", &j);
    json_put_bool(&j, "parallel_tool_calls", q->gen.parallel_tool_calls);
    echo(q, "previous_response_id", "null", &j);
    echo(q, "prompt_cache_key", "null", &j);
    echo_reasoning(q, &j);
    echo(q, "safety_identifier", "null", &j);
    json_put_bool(&j, "background", false);
    json_put_string(&j, "service_tier", "default");
    json_put_bool(&j, "store", q->stores && r->exchange->api->responses);
    json_put_float(&j, "temperature", r->choice->sampling.temperature);
    json_put_float(&j, "top_p", r->choice->sampling.top_p);
    echo_text(q, &j);
    echo(q, "tool_choice", "\"auto\"", &j);
    echo(q, "tools", "[]", &j);
    json_put_i64(&j, "top_logprobs", q->gen.sampling.top_logprobs);
    json_put_string(&j, "truncation", q->gen.drops_turns ? "auto" : "disabled");
    echo(q, "user", "null", &j);
    wide_integers_enter(before);
}

static void write_error_member(const struct reject *why, struct json_out *j)
{
    if (!why) {
        json_put_null(j, "error");
        return;
    }
    /* Agents compact their conversation at this code, and OpenAI's API has it here too. */
    bool too_long = why->kind == REJECT_CONTEXT_LENGTH, busy = reject_status(why) == 429;
    json_open(j, "error");
    JSON_PUT_STRINGS(j,
                     {"code", too_long ? reject_code(why)
                              : busy   ? "rate_limit_exceeded"
                                       : "server_error"},
                     {"message", why->message});
    json_close(j);
}

enum stage { STAGE_IN_PROGRESS, STAGE_COMPLETED, STAGE_INCOMPLETE, STAGE_FAILED };

static const char *const stage_names[] = {"in_progress", "completed", "incomplete", "failed"};

/* The reply has one item, its summary. */
static bool compacts(const struct reply *r)
{
    return r->exchange->request.gen.compaction.on;
}

/* How the reply ended; a summary that was cut is one. */
static enum stage stage_of(const struct reply *r)
{
    ASSERT(r->choice->over);
    enum finish_reason why = r->choice->finish.reason;
    bool cut = (why == FINISH_LENGTH || why == FINISH_REPETITION) && !compacts(r);
    return cut ? STAGE_INCOMPLETE : STAGE_COMPLETED;
}

static void write_incomplete(const struct reply *r, enum stage stage, struct json_out *j)
{
    bool loops = r->choice->finish.reason == FINISH_REPETITION;
    if (stage != STAGE_INCOMPLETE) {
        json_put_null(j, "incomplete_details");
        return;
    }
    json_open(j, "incomplete_details");
    json_put_string(j, "reason", loops ? "repetition" : "max_output_tokens");
    json_close(j);
}

static void write_response(const struct exchange *x, enum stage stage, const struct reject *why,
                           const char *key, struct json_out *j)
{
    const struct reply *r = &x->replies[0];
    json_open(j, key);
    json_put_format(j, "id", "resp_%s", x->id_text);
    json_put_string(j, "object", "response");
    json_put_i64(j, "created_at", x->gen.created_s);
    if (stage == STAGE_COMPLETED)
        json_put_i64(j, "completed_at", (int64_t)clock_wall_s());
    else
        json_put_null(j, "completed_at");
    json_put_string(j, "status", stage_names[stage]);
    write_error_member(why, j);
    write_incomplete(r, stage, j);
    json_put_string(j, "model", exchange_model_name(x));
    if (!exchange_is_exact(x))
        json_put_bool(j, "exact", false);
    json_put_list(j, "output", buf_slice(&r->items));
    if (stage == STAGE_IN_PROGRESS || x->gen.submitted == 0)
        json_put_null(j, "usage");
    else
        responses_write_usage(x, j);
    json_put_items(j, buf_slice(&r->echo));
    json_close(j);
}

/* ---- events ---- */

static bool streams(const struct reply *r)
{
    return r->exchange->request.stream;
}

static struct json_out event_begin(struct exchange *x, const char *type)
{
    buf_printf(&x->out, "event: %s\ndata: ", type);
    struct json_out j = json_out_object(&x->out);
    json_put_string(&j, "type", type);
    json_put_u64(&j, "sequence_number", own_of(x)->sequence++);
    return j;
}

static void event_end(struct json_out *j)
{
    json_end(j);
    buf_puts(j->buf, "\n\n");
}

/* Returns the response in x->out, until the next event. */
static struct slice response_event(struct exchange *x, const char *type, enum stage stage,
                                   const struct reject *why)
{
    struct json_out j = event_begin(x, type);
    json_key(&j, SLICE("response"));
    size_t from = x->out.len;
    write_response(x, stage, why, NULL, &j);
    size_t end = x->out.len;
    event_end(&j);
    return slice_sub(buf_slice(&x->out), from, end - from);
}

/* ---- items ---- */

static const char *prefix_of(const struct own *own)
{
    switch (own->open) {
    case DELTA_REASONING:
        return "rs";
    case DELTA_CALL:
        return own->custom ? "ctc" : own->search ? "tsc" : "fc";
    default:
        return "msg";
    }
}

static void write_item_id(const struct reply *r, const char *key, struct json_out *j)
{
    const struct own *own = r->own;
    json_put_format(j, key, "%s_%s_%u", prefix_of(own), r->exchange->id_text, own->items - 1);
}

/* Puts item_id and output_index. */
static void write_place(const struct reply *r, struct json_out *j)
{
    const struct own *own = r->own;
    write_item_id(r, "item_id", j);
    json_put_u64(j, "output_index", own->items - 1);
}

static void write_part(const struct reply *r, struct slice text, const char *key, struct json_out *j)
{
    const struct own *own = r->own;
    bool reasons = own->open == DELTA_REASONING;
    json_open(j, key);
    json_put_string(j, "type", reasons ? "reasoning_text" : "output_text");
    json_put_text(j, "text", text);
    if (!reasons) {
        json_put_list(j, "annotations", SLICE(""));
        json_put_list(j, "logprobs", buf_slice(&r->block_logprobs));
    }
    json_close(j);
}

/* Writes the input of a custom tool's call. */
static void write_input(const struct reply *r, struct slice arguments, const char *key, struct json_out *j)
{
    struct request_memory *memory = &r->exchange->gen.memory;
    struct charge charge = request_memory_charge(memory);
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    custom_tool_input(memory, arguments, &text);
    if (text.error)
        j->buf->error = text.error;
    json_put_text(j, key, buf_slice(&text));
    buf_done(&text);
}

/* Writes the arguments of a search for tools as an object, or as a string where they were cut. */
static void write_search(const struct reply *r, struct slice text, bool begins, struct json_out *j)
{
    const struct own *own = r->own;
    JSON_PUT_STRINGS(j, {"call_id", r->call_id}, {"execution", "client"});
    if (begins || text.len == 0)
        json_put_raw(j, "arguments", SLICE("{}"));
    else if (own->cut)
        json_put_text(j, "arguments", text);
    else
        json_put_raw(j, "arguments", text);
}

static void write_call(const struct reply *r, struct slice text, bool begins, struct json_out *j)
{
    const struct own *own = r->own;
    const char *space;
    const json_t *tool = responses_find_tool(&r->exchange->request, buf_slice(&r->call_name), &space);
    const json_t *name = json_object_get(tool, "name");
    json_put_string(j, "call_id", r->call_id);
    json_put_text(j, "name", name ? slice_of(json_string_value(name)) : buf_slice(&r->call_name));
    if (space)
        json_put_string(j, "namespace", space);
    if (own->custom && !begins)
        write_input(r, text, "input", j);
    else
        json_put_text(j, own->custom ? "input" : "arguments", text);
}

static void write_content(const struct reply *r, struct slice text, bool begins, struct json_out *j)
{
    json_open_array(j, "content");
    if (!begins)
        write_part(r, text, NULL, j);
    json_close(j);
}

static void write_reasoning(const struct reply *r, struct slice text, bool begins, struct json_out *j)
{
    json_put_list(j, "summary", SLICE(""));
    write_content(r, text, begins, j);
    if (begins || !r->exchange->request.seals_reasoning) {
        json_put_null(j, "encrypted_content");
        return;
    }
    reasoning_seal(text, json_begin_text(j, "encrypted_content"));
    json_end_text(j);
}

/* Writes the open item, as it begins or as it ends. */
static void write_item(const struct reply *r, bool begins, const char *key, struct json_out *j)
{
    const struct own *own = r->own;
    struct slice text = begins ? SLICE("") : buf_slice(&r->block);
    if (compacts(r)) {
        responses_write_summary(r->exchange, own->items - 1, text, key, j);
        return;
    }
    static const char *const types[] = {[DELTA_REASONING] = "reasoning", [DELTA_CONTENT] = "message"};
    json_open(j, key);
    json_put_string(j, "type",
                    own->open != DELTA_CALL ? types[own->open]
                    : own->custom           ? "custom_tool_call"
                    : own->search           ? "tool_search_call"
                                            : "function_call");
    write_item_id(r, "id", j);
    json_put_string(j, "status", begins ? "in_progress" : own->cut ? "incomplete" : "completed");
    if (own->open == DELTA_CONTENT)
        json_put_string(j, "role", "assistant");
    if (own->open == DELTA_REASONING)
        write_reasoning(r, text, begins, j);
    else if (own->open == DELTA_CONTENT)
        write_content(r, text, begins, j);
    else if (own->search)
        write_search(r, text, begins, j);
    else
        write_call(r, text, begins, j);
    json_close(j);
}

static void item_event(const struct reply *r, const char *type, bool begins)
{
    const struct own *own = r->own;
    struct json_out j = event_begin(r->exchange, type);
    json_put_u64(&j, "output_index", own->items - 1);
    write_item(r, begins, "item", &j);
    event_end(&j);
}

static void part_event(const struct reply *r, const char *type, struct slice text)
{
    struct json_out j = event_begin(r->exchange, type);
    write_place(r, &j);
    json_put_u64(&j, "content_index", 0);
    write_part(r, text, "part", &j);
    event_end(&j);
}

static void open_item(struct reply *r, enum reply_delta kind)
{
    struct own *own = r->own;
    const char *space;
    ASSERT(own->open == DELTA_NONE && kind != DELTA_NONE);
    own->open = kind;
    own->items++;
    own->custom = false;
    own->search = kind == DELTA_CALL && responses_is_search(&r->exchange->request, buf_slice(&r->call_name));
    if (kind == DELTA_CALL) {
        const json_t *tool = responses_find_tool(&r->exchange->request, buf_slice(&r->call_name), &space);
        const char *type = json_string_value(json_object_get(tool, "type"));
        own->custom = type && strcmp(type, "custom") == 0;
    }
    buf_clear(&r->block);
    buf_clear(&r->block_logprobs);
    if (!streams(r))
        return;
    item_event(r, "response.output_item.added", true);
    if (kind != DELTA_CALL && !compacts(r))
        part_event(r, "response.content_part.added", SLICE(""));
}

/* The event with all text of the open item: `delta` or `done`. */
static void text_event(const struct reply *r, const char *type, const char *member, struct slice text,
                       bool custom)
{
    const struct own *own = r->own;
    bool delta = strcmp(member, "delta") == 0;
    struct json_out j = event_begin(r->exchange, type);
    write_place(r, &j);
    if (own->open != DELTA_CALL)
        json_put_u64(&j, "content_index", 0);
    if (own->open == DELTA_CONTENT)
        json_put_list(&j, "logprobs", buf_slice(delta ? &r->logprobs : &r->block_logprobs));
    if (custom)
        write_input(r, text, member, &j);
    else
        json_put_text(&j, member, text);
    event_end(&j);
}

static void write_done(const struct reply *r)
{
    const struct own *own = r->own;
    struct slice text = buf_slice(&r->block);
    switch (own->open) {
    case DELTA_NONE:
        break;
    case DELTA_REASONING:
        text_event(r, "response.reasoning_text.done", "text", text, false);
        part_event(r, "response.content_part.done", text);
        break;
    case DELTA_CONTENT:
        text_event(r, "response.output_text.done", "text", text, false);
        part_event(r, "response.content_part.done", text);
        break;
    case DELTA_CALL:
        if (own->custom) {
            text_event(r, "response.custom_tool_call_input.delta", "delta", text, true);
            text_event(r, "response.custom_tool_call_input.done", "input", text, true);
        } else if (!own->search) {
            text_event(r, "response.function_call_arguments.done", "arguments", text, false);
        }
        break;
    }
}

/* The store keeps the input, then the output. */
static void keep_item(struct reply *r, struct slice item)
{
    struct request *q = &r->exchange->request;
    if (!q->stores || !r->exchange->api->responses)
        return;
    buf_puts(&q->kept, RESPONSES_BETWEEN);
    buf_put_slice(&q->kept, item);
}

/* The reply, when it is whole. One that does not fit is not stored: clients then get a 404 for its id. */
static void store(struct exchange *x, struct slice reply)
{
    struct request *q = &x->request;
    struct responses_put put = {q->previous, buf_slice(&q->kept), reply, q->kept_input};
    if (q->stores && x->api->responses && q->kept.error == 0 && reply.ptr)
        responses_store_put(x->api->responses, (struct responses_key){x->gen.tenant, x->gen.id}, &put,
                            clock_now_ns());
}

static void close_item(struct reply *r)
{
    struct own *own = r->own;
    if (own->open == DELTA_NONE)
        return;
    if (own->open == DELTA_CALL && r->block.len == 0 && !own->cut)
        buf_puts(&r->block, "{}");
    if (streams(r)) {
        if (!compacts(r))
            write_done(r);
        item_event(r, "response.output_item.done", false);
    }
    struct json_out j = json_out_items(&r->items);
    size_t at = r->items.len > 0 ? r->items.len + 1 : 0; /* behind the comma */
    write_item(r, false, NULL, &j);
    keep_item(r, slice_sub(buf_slice(&r->items), at, r->items.len));
    own->open = DELTA_NONE;
}

/* The last item of a reply that ended by its length is not whole, unless it is a call that was. */
static void close_last(struct reply *r)
{
    struct own *own = r->own;
    own->cut = own->open == DELTA_CALL ? r->choice->call_cut : stage_of(r) == STAGE_INCOMPLETE;
    close_item(r);
}

/* ---- whole, and in pieces ---- */

static bool lacks_summary(const struct reply *r)
{
    return compacts(r) && r->items.len == 0;
}

static void write_whole(struct exchange *x, struct buf *ret)
{
    struct reply *r = &x->replies[0];
    struct json_out j = json_out(ret);
    struct reject why = {0};
    compaction_refuse(&why);
    close_last(r);
    bool lacks = lacks_summary(r);
    write_response(x, lacks ? STAGE_FAILED : stage_of(r), lacks ? &why : NULL, NULL, &j);
    if (ret->error == 0 && !lacks)
        store(x, buf_slice(ret));
}

static void begin(struct exchange *x)
{
    response_event(x, "response.created", STAGE_IN_PROGRESS, NULL);
    response_event(x, "response.in_progress", STAGE_IN_PROGRESS, NULL);
}

static const struct buf *pending_of(const struct reply *r)
{
    switch (r->pending) {
    case DELTA_REASONING:
        return &r->reasoning;
    case DELTA_CALL:
        return &r->arguments;
    default:
        return &r->content;
    }
}

/* Appends entries to others. */
static void add_logprobs(struct buf *to, const struct buf *from)
{
    struct json_out j = json_out_items(to);
    json_put_items(&j, buf_slice(from));
}

static void flush(struct reply *r)
{
    static const char *const types[] = {[DELTA_REASONING] = "response.reasoning_text.delta",
                                        [DELTA_CONTENT] = "response.output_text.delta",
                                        [DELTA_CALL] = "response.function_call_arguments.delta"};
    struct own *own = r->own;
    if (r->pending == DELTA_NONE)
        return;
    struct slice text = buf_slice(pending_of(r));
    if (own->open != r->pending || r->call_begun) {
        close_item(r);
        open_item(r, r->pending);
    }
    buf_put_slice(&r->block, text);
    add_logprobs(&r->block_logprobs, &r->logprobs);
    if (text.len > 0 && !own->custom && !own->search && !compacts(r))
        text_event(r, types[r->pending], "delta", text, false);
}

/* `error`, then response.failed with what there is. */
static void write_failure(struct exchange *x, const struct reject *why)
{
    struct json_out j = event_begin(x, "error");
    JSON_PUT_STRINGS(&j, {"code", reject_code(why)}, {"message", why->message},
                     {"param", why->param[0] ? why->param : NULL});
    event_end(&j);
    response_event(x, "response.failed", STAGE_FAILED, why);
}

static void finish(struct reply *r)
{
    struct exchange *x = r->exchange;
    enum stage stage = stage_of(r);
    close_last(r);
    if (lacks_summary(r)) {
        struct reject why = {0};
        compaction_refuse(&why);
        write_failure(x, &why);
        return;
    }
    struct slice response = response_event(
        x, stage == STAGE_INCOMPLETE ? "response.incomplete" : "response.completed", stage, NULL);
    if (x->out.error == 0)
        store(x, response);
}

static void end(struct exchange *x)
{
    (void)x; /* the last event is that of the reply's end */
}

static void fail(struct exchange *x, const struct reject *why)
{
    if (!x->replies || x->reply_count == 0)
        return;
    if (x->reply_stage == REPLY_PENDING)
        reply_begin(x);
    write_failure(x, why);
}

/* The sampling of a request that has no sequence. */
static void note_sampling(const struct gen_sampling *given, struct sampler_params *ret)
{
    sampler_params_default(ret);
    if (!isnan(given->temperature))
        ret->temperature = (float)given->temperature;
    if (!isnan(given->top_p))
        ret->top_p = (float)given->top_p;
}

/* A prompt that is too long fails as events, as in OpenAI's API: Codex compacts its conversation then, not
 * after an HTTP error. The exchange has no sequence: a reply of its own stands for it. */
static void refuse(struct exchange *x, const struct reject *why, struct buf *ret)
{
    struct reply *replies = x->replies, r;
    struct choice none = {.gen = &x->gen};
    struct own own = {0};
    uint32_t count = x->reply_count;
    if (why->kind != REJECT_CONTEXT_LENGTH)
        return;
    note_sampling(&x->request.gen.sampling, &none.sampling);
    reply_init(&r, x, &none, &own);
    x->replies = &r;
    x->reply_count = 1;
    open_reply(&r);
    begin(x);
    write_failure(x, why);
    ret->error = reply_error(&r) ? reply_error(&r) : x->out.error;
    buf_put_slice(ret, buf_slice(&x->out));
    buf_done(&x->out);
    reply_done(&r);
    x->replies = replies;
    x->reply_count = count;
}

static void ping(struct exchange *x)
{
    if (x->reply_stage == REPLY_PENDING)
        reply_begin(x);
    sse_comment(&x->out, "keep-alive");
}

/* ---- parts ---- */

/* The next text belongs to an item of this kind; `always`: to a new one. */
static void turn(struct reply *r, enum reply_delta kind, bool always)
{
    struct own *own = r->own;
    if (streams(r)) {
        reply_turn(r, kind, always);
        if (always)
            close_item(r); /* while the name of its call is known */
        return;
    }
    if (always || own->open != kind)
        close_item(r);
}

static void put(struct reply *r, enum reply_delta kind, struct buf *to, struct slice text)
{
    struct own *own = r->own;
    turn(r, kind, false);
    if (!streams(r) && own->open == DELTA_NONE)
        open_item(r, kind);
    if (kind == DELTA_CONTENT)
        add_logprobs(streams(r) ? &r->logprobs : &r->block_logprobs, &r->next_logprobs);
    buf_clear(&r->next_logprobs);
    buf_put_slice(streams(r) ? to : &r->block, text);
}

/* The markers of reasoning belong to no item. */
static void note_token(struct reply *r, const struct stream_token *token)
{
    const struct choice *c = r->choice;
    if (r->exchange->request.gen.sampling.logprobs && token->id != c->think_open &&
        token->id != c->think_close)
        openai_note_logprob(r, token, &r->next_logprobs);
}

static void part(void *arg, const struct reply_part *p)
{
    struct reply *r = arg;
    switch (p->kind) {
    case PART_TOKEN:
        note_token(r, p->token);
        break;
    case PART_PROMPT_TOKEN:
    case PART_CALL_END:
        break;
    case PART_REASONING:
        if (!compacts(r))
            put(r, DELTA_REASONING, &r->reasoning, p->text);
        break;
    case PART_TEXT:
        put(r, DELTA_CONTENT, &r->content, p->text);
        break;
    case PART_CALL:
        buf_clear(&r->next_logprobs);
        turn(r, DELTA_CALL, true);
        reply_begin_call(r, p, "call", true);
        if (!streams(r))
            open_item(r, DELTA_CALL);
        break;
    case PART_ARGUMENTS:
        put(r, DELTA_CALL, &r->arguments, p->text);
        break;
    }
}

/* ---- the dialect ---- */

static const struct wire_frame frame = {
    .envelope = {reject_status, reject_write},
    .fail = fail,
    .ping = ping,
    .end = end,
};

const struct wire wire_responses = {
    .route = "/v1/responses",
    .frame = &frame,
    .form = {.groups = responses_groups,
             .output = GEN_TOKENS,
             .parses = true,
             .check = responses_check,
             .convert = responses_convert},
    .id_prefix = "resp",
    .object = "response",
    .chunk_object = "response",
    .own_bytes = sizeof(struct own),
    .refuse = refuse,
    .open = open_reply,
    .part = part,
    .whole = write_whole,
    .begin = begin,
    .begins_admitted = true,
    .flush = flush,
    .finish = finish,
};
