/* request_parse.c - the body as a whole: JSON, then the fields of its form, then what several fields say
 * together. */
#include "api/request/field.h"
#include "api/request/request.h"
#include "api/request/tool_choice.h"
#include "api/responses_store.h"

#include "gen/gen_request.h"
#include "gen/json_depth.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

#include <math.h>

/* By the first bytes: content-encoding is not read. */
static bool is_compressed(struct slice body)
{
    return slice_starts(body, SLICE("\x1f\x8b")) || slice_starts(body, SLICE("\x28\xb5\x2f\xfd"));
}

static bool load(const struct request_form *form, struct request *r, struct slice body,
                 const struct request_limits *limits, struct request_memory *memory, struct reject *why)
{
    const struct slice mark = SLICE("\xef\xbb\xbf"); /* byte order mark; some clients write it */
    json_error_t e;
    if (slice_starts(body, mark))
        body = slice_sub(body, mark.len, body.len);
    if (is_compressed(body))
        return reject_set(
            why, REJECT_INVALID_JSON, NULL,
            "The body is compressed (gzip or zstd). Send it as it is, without content-encoding.");
    if (body.len == 0 && form->may_be_empty)
        body = SLICE("{}");
    if (body.len == 0)
        return reject_set(why, REJECT_INVALID_JSON, NULL,
                          "The request has no body; it must be a JSON object.");
    if (!json_depth_within(body, limits->json_depth_max))
        return reject_set(why, REJECT_INVALID_JSON, NULL,
                          "The JSON is nested deeper than %u levels. Flatten it, or raise --json-depth.",
                          limits->json_depth_max);
    r->root = request_memory_parse(memory, body.ptr, body.len, &e);
    if (!r->root && (memory->refused || memory->unwanted))
        return request_memory_reject(memory, why);
    if (!r->root)
        return reject_set(why, REJECT_INVALID_JSON, NULL,
                          "The body is not valid JSON: %s (line %d, column %d).", e.text, e.line, e.column);
    if (!json_is_object(r->root))
        return reject_set(why, REJECT_INVALID_JSON, NULL, "The body must be a JSON object.");
    return true;
}

static void set_defaults(const struct request_form *form, struct request *r)
{
    *r = (struct request){
        .form = form,
        .gen = {.output = form->output,
                .parses = form->parses,
                .n = 1,
                .prompt_count = 1,
                .enable_thinking = -1,
                .thinking_budget = -1,
                .add_special_tokens = -1,
                .add_generation_prompt = true,
                .parallel_tool_calls = true,
                .skip_special_tokens = true,
                .speculative = true,
                .session_follows = 1,
                .sampling = {.temperature = NAN,
                             .top_p = NAN,
                             .min_p = NAN,
                             .repetition_penalty = NAN,
                             .top_k = -1,
                             .max_tokens = -1,
                             .prompt_logprobs = -1}},
    };
}

/* ---- combinations of fields ---- */

static bool check_output(struct request *r, const struct request_limits *limits, struct reject *why)
{
    if (r->stream && r->gen.sampling.prompt_logprobs >= 0)
        return reject_unsupported(why, "prompt_logprobs",
                                  "prompt_logprobs are not sent in streams; set stream to false.");
    if (!r->gen.skip_special_tokens && r->gen.stop_count > 0)
        return reject_unsupported(why, "skip_special_tokens",
                                  "Stop strings are matched in the text without special tokens: "
                                  "skip_special_tokens must be true with stop. Use stop_token_ids.");
    if (r->gen.cache_salt && r->gen.cache_salt[0] == 0)
        return reject_value(why, "cache_salt", "cache_salt must not be empty.");
    if (r->gen.sampling.max_tokens >= 0 && r->gen.sampling.min_tokens > r->gen.sampling.max_tokens)
        return reject_value(why, "min_tokens", "min_tokens is %lld, more than max_tokens, %lld.",
                            (long long)r->gen.sampling.min_tokens, (long long)r->gen.sampling.max_tokens);
    if (r->gen.allowed_ids && r->gen.grammar.param)
        return reject_unsupported(why, "allowed_token_ids", "allowed_token_ids and %s exclude each other.",
                                  r->gen.grammar.param);
    r->gen.whole = !r->stream;
    uint64_t choices = (uint64_t)r->gen.n * r->gen.prompt_count;
    bool texts = r->gen.output == GEN_VECTOR || r->gen.output == GEN_SCORE;
    uint32_t most = texts ? limits->texts_max : limits->choices_max;
    if (texts && choices > most)
        return reject_value(why, r->gen.prompt_name,
                            "The request has %llu texts; the limit is %u. Send several requests.",
                            (ull)choices, most);
    if (choices > most)
        return reject_value(
            why,
            r->gen.n > 1         ? "n"
            : r->gen.prompt_name ? r->gen.prompt_name
                                 : "prompt",
            "The request asks for %llu choices (prompts x n); the limit is %u. Send several requests.",
            (ull)choices, most);
    return true;
}

bool request_parse(const struct request_form *form, struct slice body, const struct request_limits *limits,
                   struct request_memory *memory, struct request *ret, struct reject *why)
{
    set_defaults(form, ret);
    return load(form, ret, body, limits, memory, why) && fields_read(form, limits, ret, why) &&
           (!form->check || form->check(ret, why)) && check_output(ret, limits, why) &&
           (!form->convert || form->convert(ret, limits, memory, why)) && tool_choice_check(ret, memory, why);
}

void request_done(struct request *r)
{
    json_decref(r->gen.media);
    json_decref(r->gen.template_kwargs);
    json_decref(r->gen.grammar.value);
    json_decref(r->gen.compaction.ask);
    tool_choice_drop(r);
    json_decref(r->customs);
    json_decref(r->toolsets);
    json_decref(r->echoed);
    responses_items_unref(r->previous);
    buf_done(&r->kept);
    json_decref(r->root);
    *r = (struct request){0};
}

void request_drop_all(struct request *r)
{
    request_drop_prompt(r);
    json_decref(r->gen.grammar.value);
    r->gen.grammar = (struct gen_grammar){0};
    tool_choice_drop(r);
    r->gen.tools = r->gen.logit_bias = r->gen.allowed_ids = NULL;
    r->model = r->gen.reasoning_effort = r->gen.cache_salt = NULL;
    r->gen.stop_count = 0;
    json_object_clear(r->root);
}

void request_drop_prompt(struct request *r)
{
    for (const struct field_group *const *g = r->form ? r->form->groups : NULL; g && *g; g++)
        for (size_t i = 0; i < (*g)->count; i++)
            if ((*g)->fields[i].prompt)
                json_object_del(r->root, (*g)->fields[i].name);
    json_decref(r->gen.template_kwargs);
    r->gen.messages = r->gen.prompt = r->tokens = r->gen.template_kwargs = NULL;
    if (r->form && field_find(r->form->groups, "text_2"))
        r->gen.queries = r->gen.documents = NULL;
}
