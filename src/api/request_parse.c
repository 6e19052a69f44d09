/* request_parse.c - the body as a whole: JSON, then the table of fields, then what several fields say
 * together. */
#include "gen/json_depth.h"
#include "api/request_fields.h"
#include "api/wire.h"

#include "base/check.h"

#include <math.h>

const char *request_route(enum request_kind kind)
{
    static const char *const routes[REQUEST_KIND_COUNT] = {[REQUEST_CLEAR] = "/api/hot-cache/clear",
                                                           [REQUEST_CLEAR_SSD] = "/api/ssd-cache/clear",
                                                           [REQUEST_TRIM] = "/api/trim",
                                                           [REQUEST_TOKENIZE] = "/tokenize",
                                                           [REQUEST_DETOKENIZE] = "/detokenize",
                                                           [REQUEST_TEMPLATE] = "/apply-template",
                                                           [REQUEST_LOAD] = "/v1/models/*/load",
                                                           [REQUEST_UNLOAD] = "/v1/models/*/unload"};
    return wire_of(kind) ? wire_of(kind)->route : routes[kind];
}

static bool load(struct request *r, struct slice body, const struct request_limits *limits,
                 struct request_memory *memory, struct reject *why)
{
    json_error_t e;
    if (body.len == 0 && r->kind >= REQUEST_CLEAR)
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

static enum gen_output output_of(enum request_kind kind)
{
    if (wire_of(kind))
        return GEN_TOKENS;
    return kind == REQUEST_TEMPLATE ? GEN_TEXT : GEN_IDS;
}

static void set_defaults(struct request *r, enum request_kind kind)
{
    const struct wire *wire = wire_of(kind);
    *r = (struct request){
        .kind = kind,
        .gen = {.output = output_of(kind),
                .parses = wire && wire->parses,
                .n = 1,
                .prompt_count = 1,
                .enable_thinking = -1,
                .add_special_tokens = -1,
                .add_generation_prompt = true,
                .parallel_tool_calls = true,
                .skip_special_tokens = true,
                .speculative = true,
                .sampling = {.temperature = NAN,
                             .top_p = NAN,
                             .min_p = NAN,
                             .repetition_penalty = NAN,
                             .top_k = -1,
                             .max_tokens = -1,
                             .prompt_logprobs = -1}},
    };
}

static bool check_input(struct request *r, struct reject *why)
{
    const struct wire *wire = wire_of(r->kind);
    if (wire)
        return wire->read(r, why);
    switch (r->kind) {
    case REQUEST_TEMPLATE:
        return r->gen.messages || reject_value(why, "messages", "messages is missing.");
    case REQUEST_TOKENIZE:
        if (r->gen.messages && r->gen.prompt)
            return reject_value(why, "prompt", "Send either messages or prompt, not both.");
        if (!r->gen.messages && !json_is_string(r->gen.prompt))
            return reject_value(why, "prompt", "messages, or prompt as a string, is missing.");
        return true;
    case REQUEST_DETOKENIZE:
        return r->tokens || reject_value(why, "tokens", "tokens is missing.");
    default:
        break;
    }
    return true;
}

/* ---- what fields say together ---- */

static bool check_output(struct request *r, const struct request_limits *limits, struct reject *why)
{
    const json_t *choice = json_object_get(r->root, "tool_choice");
    if (json_is_string(choice) && strcmp(json_string_value(choice), "none") == 0)
        r->gen.tools = NULL; /* Not offered, so not called: what OpenAI promises for "none". */
    if (!r->stream && r->gen.output == GEN_TOKENS &&
        json_is_object(json_object_get(r->root, "stream_options")))
        return reject_value(why, "stream_options", "stream_options is allowed only when stream is true.");
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
    r->gen.whole = !r->stream;
    uint64_t choices = (uint64_t)r->gen.n * r->gen.prompt_count;
    if (choices > limits->choices_max)
        return reject_value(
            why, r->gen.n > 1 ? "n" : "prompt",
            "The request asks for %llu choices (prompts x n); the limit is %u. Send several requests.",
            (unsigned long long)choices, limits->choices_max);
    return true;
}

static bool check_effort(const struct request *r, struct reject *why)
{
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    if (!r->gen.reasoning_effort)
        return true;
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (strcmp(r->gen.reasoning_effort, known[i]) == 0)
            return true;
    return reject_value(why, "reasoning_effort",
                        "reasoning_effort must be \"none\", \"minimal\", \"low\", \"medium\" or \"high\".");
}

bool request_parse(enum request_kind kind, struct slice body, const struct request_limits *limits,
                   struct request_memory *memory, struct request *ret, struct reject *why)
{
    set_defaults(ret, kind);
    if (!load(ret, body, limits, memory, why))
        return false;
    if (!request_fields_read(ret, why) || !check_input(ret, why) || !check_output(ret, limits, why) ||
        !check_effort(ret, why))
        return false;
    return !ret->gen.messages ||
           request_normalise_messages(ret->gen.messages, limits, memory, &ret->gen.media, why);
}

void request_done(struct request *r)
{
    json_decref(r->gen.media);
    json_decref(r->gen.template_kwargs);
    json_decref(r->root);
    *r = (struct request){0};
}

void request_drop_all(struct request *r)
{
    request_drop_prompt(r);
    r->gen.tools = r->gen.logit_bias = NULL;
    r->model = r->gen.reasoning_effort = r->gen.cache_salt = NULL;
    r->gen.stop_count = 0;
    json_object_clear(r->root);
}

void request_drop_prompt(struct request *r)
{
    static const char *const names[] = {"messages", "prompt", "content", "tokens", "chat_template_kwargs"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        json_object_del(r->root, names[i]);
    json_decref(r->gen.template_kwargs);
    r->gen.messages = r->gen.prompt = r->tokens = r->gen.template_kwargs = NULL;
}
