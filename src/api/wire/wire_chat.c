/* wire_chat.c - OpenAI's chat completions: chat.completion and its chunks. */
#include "api/exchange.h"
#include "api/reply.h"
#include "api/request/custom_tool.h"
#include "api/request/field.h"
#include "api/wire/wire_openai.h"

#include "base/check.h"
#include "gen/choice.h"
#include "gen/reject.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* ---- fields ---- */

/* Whether to return logprobs: top_logprobs has the number of alternatives. */
static bool read_logprobs(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_boolean(v))
        return reject_value(why, f->name,
                            "logprobs must be true or false; top_logprobs is the number of alternatives.");
    r->gen.sampling.logprobs = json_is_true(v);
    return true;
}

static bool read_verbosity(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *word;
    return field_take_verbosity(r, f->name, v, &word, why);
}

/* llama.cpp's: "none" leaves reasoning in the text, with its marks; other formats have it apart, as here. */
static bool read_reasoning_format(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    static const char *const apart[] = {"auto", "deepseek", NULL};
    const char *word, *s = json_string_value(v);
    if (s && strcmp(s, "none") == 0) {
        r->gen.parses = false;
        return true;
    }
    return field_take_hint(r, f->name, v, apart, &word, why);
}

static bool read_modalities(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    const char *s = json_array_size(v) == 1 ? json_string_value(json_array_get(v, 0)) : NULL;
    if (s && strcmp(s, "text") == 0)
        return true;
    return reject_unsupported(why, f->name, "modalities must be [\"text\"]: other output is not supported.");
}

static const struct field fields[] = {
    {"logprobs", read_logprobs},
    {"top_logprobs", field_integer, FIELD_SAMPLING(top_logprobs), 0, SAMPLER_TOP_MAX},
    {"modalities", read_modalities},
    {"echo", field_refuse_unless_off, .say = "not supported in chats; use /v1/completions."},
    {"verbosity", read_verbosity},
    {"reasoning_format", read_reasoning_format},
    {"functions", field_refuse, .say = "not supported; use tools."},
    {"function_call", field_refuse, .say = "not supported; use tool_choice."},
    {"audio", field_refuse, .say = "audio output is not supported."},
    {"prediction", field_ignore_unless_off}, /* makes a reply faster, and changes none */
    {"web_search_options", field_refuse, .say = "web search is not supported."},
};

static const struct field_group own_fields = {fields, COUNT_OF(fields)};
static const struct field_group *const groups[] = {
    &fields_generation, &fields_openai, &fields_grammar, &fields_openai_conversation, &own_fields, NULL};

/* ---- calls ---- */

struct own {
    bool custom; /* the open call is that of a custom tool: r->block collects its arguments */
};

static bool is_custom(const struct reply *r)
{
    const struct own *own = r->own;
    return own->custom;
}

/* Puts the members of a call; a later piece of a stream has no id and no name. */
static void write_call(const struct reply *r, bool begins, struct json_out *j)
{
    const char *kind = is_custom(r) ? "custom" : "function";
    if (begins) {
        JSON_PUT_STRINGS(j, {"id", r->call_id}, {"type", kind});
    }
    json_open(j, kind);
    if (begins)
        json_put_text(j, "name", buf_slice(&r->call_name));
    json_put_text(j, is_custom(r) ? "input" : "arguments", buf_slice(&r->arguments));
    json_close(j);
}

/* ---- whole ---- */

static void write_message(const struct reply *r, struct json_out *j)
{
    json_open(j, "message");
    json_put_string(j, "role", "assistant");
    /* null where there is nothing but calls, as OpenAI has it. */
    if (r->content.len == 0 && r->items.len > 0)
        json_put_null(j, "content");
    else
        json_put_text(j, "content", buf_slice(&r->content));
    json_put_null(j, "refusal");
    if (r->reasoning.len > 0)
        json_put_text(j, "reasoning_content", buf_slice(&r->reasoning));
    if (r->items.len > 0)
        json_put_list(j, "tool_calls", buf_slice(&r->items));
    json_close(j);
}

static void write_logprobs(const struct reply *r, struct json_out *j)
{
    if (!r->exchange->request.gen.sampling.logprobs) {
        json_put_null(j, "logprobs");
        return;
    }
    json_open(j, "logprobs");
    json_put_list(j, "content", buf_slice(&r->logprobs));
    json_put_null(j, "refusal");
    json_close(j);
}

static void write_choice(const struct reply *r, struct json_out *j)
{
    json_open(j, NULL);
    json_put_u64(j, "index", r->choice->index);
    write_message(r, j);
    write_logprobs(r, j);
    openai_write_finish(r, j);
    openai_write_ids(r, j);
    json_close(j);
}

static void write_whole(struct exchange *x, struct buf *ret)
{
    struct json_out j = openai_whole(x, write_choice, ret);
    openai_write_prompt_logprobs(&x->replies[0], &j);
    if (x->request.return_token_ids)
        openai_write_prompt_ids(&x->gen.prompts[0], &j);
    json_end(&j);
}

/* ---- in pieces ---- */

static void write_role(struct reply *r)
{
    struct json_out j = openai_chunk_begin(r);
    json_open(&j, "delta");
    JSON_PUT_STRINGS(&j, {"role", "assistant"}, {"content", ""});
    json_close(&j);
    json_put_null(&j, "logprobs");
    json_put_null(&j, "finish_reason");
    openai_chunk_end(r->exchange, r->choice->index == 0, &j);
}

static void begin(struct exchange *x)
{
    for (uint32_t i = 0; i < x->gen.choice_count; i++)
        write_role(&x->replies[i]);
}

static void write_call_piece(const struct reply *r, struct json_out *j)
{
    json_open_array(j, "tool_calls");
    json_open(j, NULL);
    json_put_u64(j, "index", r->call_index);
    write_call(r, r->call_begun, j);
    json_close(j);
    json_close(j);
}

static void write_delta(const struct reply *r, struct json_out *j)
{
    json_open(j, "delta");
    switch (r->pending) {
    case DELTA_NONE:
        break;
    case DELTA_REASONING:
        json_put_text(j, "reasoning_content", buf_slice(&r->reasoning));
        break;
    case DELTA_CONTENT:
        json_put_text(j, "content", buf_slice(&r->content));
        break;
    case DELTA_CALL:
        write_call_piece(r, j);
        break;
    }
    json_close(j);
}

static void flush(struct reply *r)
{
    struct json_out j = openai_chunk_begin(r);
    write_delta(r, &j);
    write_logprobs(r, &j);
    json_put_null(&j, "finish_reason");
    openai_write_ids(r, &j);
    openai_chunk_end(r->exchange, false, &j);
}

static void finish(struct reply *r)
{
    openai_finish(r, "delta", SLICE("{}"));
}

/* ---- parts ---- */

static void put(struct reply *r, enum reply_delta kind, struct buf *to, struct slice text)
{
    reply_turn(r, kind, false);
    buf_put_slice(to, text);
}

static void begin_call(struct reply *r, const struct reply_part *p)
{
    struct own *own = r->own;
    reply_turn(r, DELTA_CALL, true);
    reply_begin_call(r, p, "call", true);
    own->custom = request_is_custom(&r->exchange->request, buf_slice(&r->call_name));
    buf_clear(&r->block);
}

static void end_call(struct reply *r)
{
    if (is_custom(r)) {
        reply_turn(r, DELTA_CALL, false);
        custom_tool_input(&r->exchange->gen.memory, buf_slice(&r->block), &r->arguments);
    }
    if (r->exchange->request.stream)
        return;
    struct json_out j = json_out_items(&r->items);
    json_open(&j, NULL);
    write_call(r, true, &j);
    json_end(&j);
}

/* True for a token of a stream with logprobs that the text leaves out, such as the end token. Clients take
 * the tokens of a chunk for its text. */
static bool has_no_text(const struct reply *r, const struct reply_part *p)
{
    const struct exchange *x = r->exchange;
    return p->kind == PART_TOKEN && x->request.stream && x->request.gen.sampling.logprobs &&
           tokenizer_is_special(x->gen.model->tokenizer, p->token->id);
}

static void part(void *arg, const struct reply_part *p)
{
    struct reply *r = arg;
    switch (p->kind) {
    case PART_TOKEN:
    case PART_PROMPT_TOKEN:
        if (has_no_text(r, p))
            reply_flush(r);
        openai_note_token(r, p);
        if (p->kind == PART_TOKEN && r->exchange->request.gen.sampling.logprobs)
            openai_note_logprob(r, p->token, &r->logprobs);
        break;
    case PART_REASONING:
        put(r, DELTA_REASONING, &r->reasoning, p->text);
        break;
    case PART_TEXT:
        put(r, DELTA_CONTENT, &r->content, p->text);
        break;
    case PART_CALL:
        begin_call(r, p);
        break;
    case PART_ARGUMENTS:
        if (is_custom(r))
            buf_put_slice(&r->block, p->text);
        else
            put(r, DELTA_CALL, &r->arguments, p->text);
        break;
    case PART_CALL_END:
        end_call(r);
        break;
    }
}

/* ---- the dialect ---- */

static bool check(struct request *r, struct reject *why)
{
    const struct gen_sampling *s = &r->gen.sampling;
    if (!r->gen.messages)
        return reject_value(why, "messages", "messages is missing.");
    if (!r->gen.parses && r->gen.tools)
        return reject_unsupported(why, "reasoning_format",
                                  "reasoning_format \"none\" is not supported with tools.");
    if (s->top_logprobs > 0 && !s->logprobs)
        return reject_value(why, "top_logprobs", "top_logprobs needs logprobs to be true.");
    return fields_openai_check(r, why);
}

const struct wire wire_chat = {
    .route = "/v1/chat/completions",
    .frame = &openai_frame,
    .form = {.groups = groups,
             .api = OPENAI,
             .output = GEN_TOKENS,
             .parses = true,
             .check = check,
             .convert = request_convert_messages},
    .id_prefix = "chatcmpl",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .own_bytes = sizeof(struct own),
    .part = part,
    .whole = write_whole,
    .begin = begin,
    .flush = flush,
    .finish = finish,
};
