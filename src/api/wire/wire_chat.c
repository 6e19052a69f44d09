/* wire_chat.c - OpenAI's chat completions: chat.completion and its chunks. */
#include "api/exchange.h"
#include "api/reply.h"
#include "api/request/custom_tool.h"
#include "api/request/field.h"
#include "api/wire/wire_openai.h"

#include "base/check.h"
#include "base/json/json_write.h"
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

/* The members of a call, and its last brace; a later piece of a stream has no id and no name. */
static void write_call(const struct reply *r, bool begins, struct buf *ret)
{
    const char *kind = is_custom(r) ? "custom" : "function";
    if (begins)
        buf_printf(ret, "\"id\":\"%s\",\"type\":\"%s\",", r->call_id, kind);
    buf_printf(ret, "\"%s\":{", kind);
    if (begins) {
        buf_puts(ret, "\"name\":");
        json_write_string(ret, buf_slice(&r->call_name));
        buf_putc(ret, ',');
    }
    buf_printf(ret, "\"%s\":", is_custom(r) ? "input" : "arguments");
    json_write_string(ret, buf_slice(&r->arguments));
    buf_puts(ret, "}}");
}

/* ---- whole ---- */

static void write_message(const struct reply *r, struct buf *ret)
{
    buf_puts(ret, "{\"role\":\"assistant\",\"content\":");
    /* null where there is nothing but calls, as OpenAI has it. */
    if (r->content.len == 0 && r->items.len > 0)
        buf_puts(ret, "null");
    else
        json_write_string(ret, buf_slice(&r->content));
    buf_puts(ret, ",\"refusal\":null");
    if (r->reasoning.len > 0) {
        buf_puts(ret, ",\"reasoning_content\":");
        json_write_string(ret, buf_slice(&r->reasoning));
    }
    if (r->items.len > 0) {
        buf_putc(ret, ',');
        openai_write_list("tool_calls", &r->items, ret);
    }
    buf_putc(ret, '}');
}

static void write_logprobs(const struct reply *r, struct buf *ret)
{
    if (!r->exchange->request.gen.sampling.logprobs) {
        buf_puts(ret, ",\"logprobs\":null");
        return;
    }
    buf_puts(ret, ",\"logprobs\":{\"content\":[");
    buf_put_slice(ret, buf_slice(&r->logprobs));
    buf_puts(ret, "],\"refusal\":null}");
}

static void write_choice(const struct reply *r, struct buf *ret)
{
    buf_printf(ret, "{\"index\":%u,\"message\":", r->choice->index);
    write_message(r, ret);
    write_logprobs(r, ret);
    openai_write_finish(r, ret);
    openai_write_ids(r, ret);
    buf_putc(ret, '}');
}

static void write_whole(struct exchange *x, struct buf *ret)
{
    openai_whole(x, write_choice, ret);
    openai_write_prompt_logprobs(&x->replies[0], ret);
    if (x->request.return_token_ids)
        openai_write_prompt_ids(&x->gen.prompts[0], ret);
    buf_putc(ret, '}');
}

/* ---- in pieces ---- */

static void write_role(struct reply *r)
{
    struct exchange *x = r->exchange;
    openai_chunk_begin(x);
    buf_printf(&x->out,
               "{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
               "\"finish_reason\":null}",
               r->choice->index);
    openai_chunk_end(x, r->choice->index == 0);
}

static void begin(struct exchange *x)
{
    for (uint32_t i = 0; i < x->gen.choice_count; i++)
        write_role(&x->replies[i]);
}

static void write_call_piece(const struct reply *r, struct buf *ret)
{
    buf_printf(ret, "\"tool_calls\":[{\"index\":%u,", r->call_index);
    write_call(r, r->call_begun, ret);
    buf_puts(ret, "]");
}

static void write_delta(const struct reply *r, struct buf *ret)
{
    buf_puts(ret, "\"delta\":{");
    switch (r->pending) {
    case PIECE_NONE:
        break;
    case PIECE_REASONING:
        buf_puts(ret, "\"reasoning_content\":");
        json_write_string(ret, buf_slice(&r->reasoning));
        break;
    case PIECE_CONTENT:
        buf_puts(ret, "\"content\":");
        json_write_string(ret, buf_slice(&r->content));
        break;
    case PIECE_CALL:
        write_call_piece(r, ret);
        break;
    }
    buf_putc(ret, '}');
}

static void flush(struct reply *r)
{
    struct exchange *x = r->exchange;
    openai_chunk_begin(x);
    buf_printf(&x->out, "{\"index\":%u,", r->choice->index);
    write_delta(r, &x->out);
    write_logprobs(r, &x->out);
    buf_puts(&x->out, ",\"finish_reason\":null");
    openai_write_ids(r, &x->out);
    buf_putc(&x->out, '}');
    openai_chunk_end(x, false);
}

static void finish(struct reply *r)
{
    openai_finish(r, "\"delta\":{}");
}

/* ---- parts ---- */

static void put(struct reply *r, enum piece_kind kind, struct buf *to, struct slice text)
{
    reply_turn(r, kind, false);
    buf_put_slice(to, text);
}

static void begin_call(struct reply *r, const struct part *p)
{
    struct own *own = r->own;
    reply_turn(r, PIECE_CALL, true);
    reply_begin_call(r, p, "call", true);
    own->custom = request_is_custom(&r->exchange->request, buf_slice(&r->call_name));
    buf_clear(&r->block);
}

static void end_call(struct reply *r)
{
    if (is_custom(r)) {
        reply_turn(r, PIECE_CALL, false);
        custom_tool_input(&r->exchange->gen.memory, buf_slice(&r->block), &r->arguments);
    }
    if (r->exchange->request.stream)
        return;
    openai_comma(&r->items);
    buf_putc(&r->items, '{');
    write_call(r, true, &r->items);
}

/* True for a token of a stream with logprobs that the text leaves out, such as the end token. Clients take
 * the tokens of a chunk for its text. */
static bool has_no_text(const struct reply *r, const struct part *p)
{
    const struct exchange *x = r->exchange;
    return p->kind == PART_TOKEN && x->request.stream && x->request.gen.sampling.logprobs &&
           tokenizer_is_special(x->gen.model->tokenizer, p->token->id);
}

static void part(void *arg, const struct part *p)
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
        put(r, PIECE_REASONING, &r->reasoning, p->text);
        break;
    case PART_TEXT:
        put(r, PIECE_CONTENT, &r->content, p->text);
        break;
    case PART_CALL:
        begin_call(r, p);
        break;
    case PART_ARGUMENTS:
        if (is_custom(r))
            buf_put_slice(&r->block, p->text);
        else
            put(r, PIECE_CALL, &r->arguments, p->text);
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
