/* wire_completion.c - OpenAI's completions: text_completion and its chunks. */
#include "api/exchange.h"
#include "api/reply.h"
#include "api/request/field.h"
#include "api/token_text.h"
#include "api/wire/wire_openai.h"

#include "base/check.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/reject.h"
#include "tokenizer/detok.h"
#include "tokenizer/tokenizer.h"

#include <math.h>

/* ---- fields ---- */

/* The logprobs of an echoed prompt are those of prompt_logprobs, in another place. */
static bool check_echo(struct request *r, struct reject *why)
{
    struct gen_sampling *s = &r->gen.sampling;
    if (r->gen.prompt_only && !r->echo)
        return reject_value(why, "max_tokens",
                            "max_tokens must be an integer of at least 1; 0 is allowed only with echo.");
    if (!r->echo)
        return true;
    r->echoed = json_incref(r->gen.prompt);
    r->echo_logprobs = s->logprobs;
    if (s->logprobs && r->stream)
        return reject_unsupported(why, "echo",
                                  "echo with logprobs is not sent in streams; set stream to false.");
    if (s->logprobs && s->prompt_logprobs < 0) {
        s->prompt_logprobs = s->top_logprobs;
        r->echo_logprobs_only = true;
    }
    return true;
}

static bool check(struct request *r, struct reject *why)
{
    if (!r->gen.prompt)
        return reject_value(why, "prompt", "prompt is missing.");
    return request_check_prompts(r, "prompt", why) && check_echo(r, why) && fields_openai_check(r, why);
}

/* Its form is checked when all fields are known. */
static bool read_prompt(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)f, (void)why;
    r->gen.prompt = v;
    return true;
}

/* How many alternatives to return. */
static bool read_logprob_count(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (json_is_false(v))
        return true;
    if (!field_integer_of(v, &x) || x < 0 || x > SAMPLER_TOP_MAX)
        return reject_value(why, f->name, "logprobs must be an integer from 0 to %d.", SAMPLER_TOP_MAX);
    r->gen.sampling.logprobs = true;
    r->gen.sampling.top_logprobs = x;
    return true;
}

static const struct field fields[] = {
    {"prompt", read_prompt, .prompt = true},
    {"echo", field_bool, FIELD_AT(echo)},
    {"logprobs", read_logprob_count},
    {"suffix", field_refuse_unless_off, .say = "fill-in-the-middle is not supported."},
    {"prompt_embeds", field_refuse, .say = "prompt embeddings are not supported; send text or token ids."},
};

static const struct field_group own_fields = {fields, COUNT_OF(fields)};
static const struct field_group *const groups[] = {&fields_generation, &fields_openai, &fields_grammar,
                                                   &own_fields, NULL};

/* ---- whole and in pieces ---- */

struct own {
    uint64_t characters;  /* characters of text so far, for text_offset */
    bool prompt_ids_sent; /* streams */
};

static void write_logprobs(const struct reply *r, struct json_out *j)
{
    if (!r->exchange->request.gen.sampling.logprobs) {
        json_put_null(j, "logprobs");
        return;
    }
    json_open(j, "logprobs");
    json_put_list(j, "tokens", buf_slice(&r->logprob_tokens));
    json_put_list(j, "token_logprobs", buf_slice(&r->logprobs));
    json_put_list(j, "top_logprobs", buf_slice(&r->logprob_tops));
    json_put_list(j, "text_offset", buf_slice(&r->logprob_offsets));
    json_close(j);
}

static void write_choice(const struct reply *r, struct json_out *j)
{
    json_open(j, NULL);
    json_put_u64(j, "index", r->choice->index);
    json_put_text(j, "text", buf_slice(&r->content));
    write_logprobs(r, j);
    openai_write_finish(r, j);
    openai_write_prompt_logprobs(r, j);
    openai_write_ids(r, j);
    if (r->exchange->request.return_token_ids)
        openai_write_prompt_ids(&r->exchange->gen.prompts[r->choice->prompt_index], j);
    json_close(j);
}

static void write_whole(struct exchange *x, struct buf *ret)
{
    struct json_out j = openai_whole(x, write_choice, ret);
    json_end(&j);
}

static void flush(struct reply *r)
{
    const struct exchange *x = r->exchange;
    struct own *own = r->own;
    struct json_out j = openai_chunk_begin(r);
    json_put_text(&j, "text", buf_slice(&r->content));
    write_logprobs(r, &j);
    json_put_null(&j, "finish_reason");
    openai_write_ids(r, &j);
    if (x->request.return_token_ids && !own->prompt_ids_sent)
        openai_write_prompt_ids(&x->gen.prompts[r->choice->prompt_index], &j);
    own->prompt_ids_sent = true;
    openai_chunk_end(r->exchange, false, &j);
}

/* The prompt of an empty output is still to be sent. */
static void finish(struct reply *r)
{
    if (r->content.len > 0) {
        flush(r);
        reply_clear(r);
    }
    openai_finish(r, "text", SLICE("\"\""));
}

static void note_top(const struct tokenizer *t, uint32_t id, float logprob, struct json_out *j)
{
    char room[TOKEN_TEXT_BYTES];
    json_key(j, token_text(t, id, room));
    openai_write_logprob(j, NULL, logprob);
}

static void note_tops(struct reply *r, const struct stream_token *t)
{
    uint32_t top_max = (uint32_t)r->exchange->request.gen.sampling.top_logprobs;
    const struct tokenizer *tokenizer = r->exchange->gen.model->tokenizer;
    struct json_out j = json_out_items(&r->logprob_tops);
    /* The token itself is always listed, as in OpenAI's API: last, when it is not among the best. */
    bool listed = false;
    json_open(&j, NULL);
    for (uint32_t i = 0; i < MIN_OF(t->top_count, top_max); i++) {
        listed = listed || t->top[i].id == t->id;
        note_top(tokenizer, t->top[i].id, t->top[i].logprob, &j);
    }
    if (!listed)
        note_top(tokenizer, t->id, t->logprob, &j);
    json_end(&j);
}

/* ---- parts ---- */

static uint64_t characters_of(struct slice s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return n;
}

static void note_logprob(struct reply *r, const struct stream_token *t)
{
    struct own *own = r->own;
    const struct tokenizer *tokenizer = r->exchange->gen.model->tokenizer;
    char room[TOKEN_TEXT_BYTES];
    struct json_out tokens = json_out_items(&r->logprob_tokens), logprobs = json_out_items(&r->logprobs),
                    offsets = json_out_items(&r->logprob_offsets), tops = json_out_items(&r->logprob_tops);
    json_put_text(&tokens, NULL, token_text(tokenizer, t->id, room));
    json_put_u64(&offsets, NULL, own->characters);
    if (tokenizer)
        own->characters += characters_of(tokenizer_token_bytes(tokenizer, t->id));
    if (isnan(t->logprob)) {
        json_put_null(&logprobs, NULL); /* the first token has no predecessor */
        json_put_null(&tops, NULL);
        return;
    }
    openai_write_logprob(&logprobs, NULL, t->logprob);
    note_tops(r, t);
}

static void part(void *arg, const struct reply_part *p)
{
    struct reply *r = arg;
    if (p->kind == PART_TEXT) {
        r->pending = DELTA_CONTENT;
        buf_put_slice(&r->content, p->text);
        return;
    }
    const struct request *q = &r->exchange->request;
    if (q->gen.prompt_only && p->kind == PART_TOKEN)
        return;
    openai_note_token(r, p);
    if (p->kind == PART_TOKEN ? q->gen.sampling.logprobs : q->echo_logprobs)
        note_logprob(r, p->token);
}

/* The prompt as the client sent it; of token ids their text. */
static void open_reply(struct reply *r)
{
    const struct exchange *x = r->exchange;
    const struct tokenizer *t = x->gen.model->tokenizer;
    const struct prompt_ids *p = &x->gen.prompts[r->choice->prompt_index];
    const json_t *prompt = x->request.echoed;
    struct detok d;
    if (json_is_array(prompt) && !json_is_integer(json_array_get(prompt, 0)))
        prompt = json_array_get(prompt, r->choice->prompt_index);
    if (json_is_string(prompt)) {
        buf_put(&r->content, json_string_value(prompt), json_string_length(prompt));
    } else if (prompt && t) {
        detok_init(&d, t, false);
        for (uint32_t i = 0; i < p->count; i++)
            detok_push(&d, p->ids[i], &r->content);
        detok_flush(&d, &r->content);
    }
}

/* ---- the dialect ---- */

const struct wire wire_completion = {
    .route = "/v1/completions",
    .frame = &openai_frame,
    .form =
        {.groups = groups, .api = OPENAI, .output = GEN_TOKENS, .may_have_no_output = true, .check = check},
    .id_prefix = "cmpl",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .own_bytes = sizeof(struct own),
    .open = open_reply,
    .part = part,
    .whole = write_whole,
    .flush = flush,
    .finish = finish,
};
