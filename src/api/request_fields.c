/* request_fields.c - one row per field: name, routes, reader, bounds, member of struct request.
 *
 * The rows of REFUSED and its kind are fields that other servers support. Ignoring one would answer another
 * question than the client's, so each is refused with a reason, unless its value requests the default
 * behaviour. */
#include "api/request_fields.h"

#include "base/check.h"

#include <math.h>
#include <stdio.h>

enum {
    ON_CHAT = 1 << REQUEST_CHAT,
    ON_COMPLETION = 1 << REQUEST_COMPLETION,
    ON_TOKENIZE = 1 << REQUEST_TOKENIZE,
    ON_DETOKENIZE = 1 << REQUEST_DETOKENIZE,
    ON_TEMPLATE = 1 << REQUEST_TEMPLATE,
    ON_BOTH = ON_CHAT | ON_COMPLETION,
    ON_MESSAGES = ON_CHAT | ON_TOKENIZE | ON_TEMPLATE,
    ON_ALL = ON_BOTH | ON_TOKENIZE | ON_DETOKENIZE | ON_TEMPLATE,
};

struct field;
/* Fills *r, or refuses the value. `v` is not null. */
typedef bool read_fn(struct request *r, const struct field *f, json_t *v, struct reject *why);

struct field {
    const char *name;
    unsigned routes;
    read_fn *read;
    size_t at;       /* offset in struct request, for the plain readers */
    double min, max; /* of numbers */
    const char *say; /* reason of the refusal; or the only accepted string */
};

#define AT(member) offsetof(struct request, member)

static void *member_of(struct request *r, const struct field *f)
{
    return (char *)r + f->at;
}

/* ---- plain values ---- */

static bool read_bool(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_boolean(v))
        return reject_value(why, f->name, "%s must be true or false.", f->name);
    *(bool *)member_of(r, f) = json_is_true(v);
    return true;
}

/* -1, 0 or 1. */
static bool read_tristate(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_boolean(v))
        return reject_value(why, f->name, "%s must be true or false.", f->name);
    *(int *)member_of(r, f) = json_is_true(v);
    return true;
}

static bool read_real(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_number(v))
        return reject_value(why, f->name, "%s must be a number from %g to %g.", f->name, f->min, f->max);
    double x = json_number_value(v);
    if (!(x >= f->min && x <= f->max))
        return reject_value(why, f->name, "%s is %g; it must be from %g to %g.", f->name, x, f->min, f->max);
    *(double *)member_of(r, f) = x;
    return true;
}

/* An integer; 5.0 is one too, as some clients write it. */
static bool integer_of(const json_t *v, int64_t *ret)
{
    if (json_is_integer(v)) {
        *ret = json_integer_value(v);
        return true;
    }
    double x = json_is_real(v) ? json_real_value(v) : NAN;
    if (!(fabs(x) <= 9007199254740992.0) || x != floor(x))
        return false;
    *ret = (int64_t)x;
    return true;
}

static bool read_integer(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!integer_of(v, &x))
        return reject_value(why, f->name, "%s must be an integer from %.0f to %.0f.", f->name, f->min,
                            f->max);
    if ((double)x < f->min || (double)x > f->max)
        return reject_value(why, f->name, "%s is %lld; it must be from %.0f to %.0f.", f->name, (long long)x,
                            f->min, f->max);
    *(int64_t *)member_of(r, f) = x;
    return true;
}

static bool read_string(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_string(v))
        return reject_value(why, f->name, "%s must be a string.", f->name);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return reject_value(why, f->name, "%s must not hold a zero byte.", f->name);
    *(const char **)member_of(r, f) = json_string_value(v);
    return true;
}

/* A label without effect here: its type is checked, its value is dropped. */
static bool accept_string(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    return json_is_string(v) ? true : reject_value(why, f->name, "%s must be a string.", f->name);
}

static bool accept_object(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    return json_is_object(v) ? true : reject_value(why, f->name, "%s must be an object.", f->name);
}

/* ---- refused ---- */

static bool refuse(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r, (void)v;
    return reject_unsupported(why, f->name, "%s: %s", f->name, f->say);
}

/* Refused unless its value switches the feature off: false, empty, or the number f->min. */
static bool refuse_unless_off(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    bool off = json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
               (json_is_number(v) && json_number_value(v) == f->min) ||
               (json_is_array(v) && json_array_size(v) == 0) ||
               (json_is_object(v) && json_object_size(v) == 0);
    return off || refuse(r, f, v, why);
}

static bool refuse_unless_true(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return json_is_true(v) || refuse(r, f, v, why);
}

static bool refuse_unless_word(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    if (json_is_string(v) && strcmp(json_string_value(v), f->say) == 0)
        return true;
    return reject_unsupported(why, f->name, "%s: only \"%s\" is supported.", f->name, f->say);
}

static bool read_service_tier(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    if (strcmp(s, "auto") == 0 || strcmp(s, "default") == 0)
        return true;
    return reject_unsupported(why, f->name, "service_tier must be \"auto\" or \"default\".");
}

static bool read_modalities(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    const char *s = json_array_size(v) == 1 ? json_string_value(json_array_get(v, 0)) : NULL;
    if (s && strcmp(s, "text") == 0)
        return true;
    return reject_unsupported(why, f->name, "modalities must be [\"text\"]: other output is not supported.");
}

static bool read_response_format(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type)
        return reject_value(why, f->name, "response_format must be an object with a \"type\".");
    if (strcmp(type, "text") == 0)
        return true;
    return reject_unsupported(why, "response_format.type",
                              "response_format of type \"%.32s\" is not supported; only \"text\" is. Ask for "
                              "JSON in the prompt, or leave the field out.",
                              type);
}

static bool read_best_of(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x, n = 1;
    json_t *given = json_object_get(r->root, "n");
    if (given && !json_is_null(given) && !integer_of(given, &n))
        n = 1;
    if (integer_of(v, &x) && x == n)
        return true;
    return refuse(r, f, v, why);
}

/* ---- lists and objects ---- */

static bool read_stop_string(struct request *r, const json_t *v, struct reject *why)
{
    size_t len = json_string_length(v);
    if (!json_is_string(v))
        return reject_value(why, "stop", "stop must be a string or a list of strings.");
    if (len == 0 || len > REQUEST_STOP_BYTES_MAX)
        return reject_value(why, "stop", "A stop string has %zu bytes; it must have 1 to %d.", len,
                            REQUEST_STOP_BYTES_MAX);
    if (r->gen.stop_count == GEN_STOPS_MAX)
        return reject_value(why, "stop", "There are more than %d stop strings.", GEN_STOPS_MAX);
    r->gen.stops[r->gen.stop_count++] = (struct slice){json_string_value(v), len};
    return true;
}

static bool read_stop(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)f;
    if (!json_is_array(v))
        return read_stop_string(r, v, why);
    size_t i;
    json_t *each;
    json_array_foreach(v, i, each)
        if (!read_stop_string(r, each, why))
            return false;
    return true;
}

static bool read_stop_ids(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_array(v))
        return reject_value(why, f->name, "%s must be a list of token ids.", f->name);
    size_t i;
    json_t *each;
    json_array_foreach(v, i, each) {
        int64_t id;
        if (!integer_of(each, &id) || id < 0 || id > UINT32_MAX)
            return reject_value(why, f->name, "%s[%zu] must be a token id.", f->name, i);
        if (r->gen.stop_id_count == SAMPLER_STOP_MAX)
            return reject_value(why, f->name, "%s has more than %d ids.", f->name, SAMPLER_STOP_MAX);
        r->gen.stop_ids[r->gen.stop_id_count++] = (uint32_t)id;
    }
    return true;
}

static bool read_logit_bias(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_object(v))
        return reject_value(why, f->name, "logit_bias must be an object of token id to bias.");
    if (json_object_size(v) > SAMPLER_BIAS_MAX)
        return reject_value(why, f->name, "logit_bias has %zu entries; the limit is %d.", json_object_size(v),
                            SAMPLER_BIAS_MAX);
    const char *key;
    json_t *bias;
    json_object_foreach(v, key, bias) {
        uint64_t id;
        if (!slice_u64(slice_of(key), UINT32_MAX, &id))
            return reject_value(why, f->name, "logit_bias has the key \"%.40s\", which is not a token id.",
                                key);
        double x = json_is_number(bias) ? json_number_value(bias) : NAN;
        if (!(x >= -100 && x <= 100))
            return reject_value(why, f->name, "logit_bias of token %s must be a number from -100 to 100.",
                                key);
    }
    r->gen.logit_bias = json_object_size(v) ? v : NULL;
    return true;
}

static bool read_stream_options(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return reject_value(why, f->name, "stream_options must be an object.");
    json_object_foreach(v, key, value) {
        if (json_is_null(value))
            continue;
        if (!json_is_boolean(value))
            return reject_value(why, f->name, "stream_options.%.40s must be true or false.", key);
        if (strcmp(key, "include_usage") == 0)
            r->include_usage = json_is_true(value);
        else if (strcmp(key, "continuous_usage_stats") == 0)
            r->continuous_usage = json_is_true(value);
        else if (json_is_true(value))
            return reject_unsupported(why, f->name,
                                      "stream_options.%.40s is not supported; include_usage and "
                                      "continuous_usage_stats are.",
                                      key);
    }
    return true;
}

/* Whether to return logprobs: top_logprobs has the number of alternatives. */
static bool read_logprobs(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_boolean(v))
        return reject_value(why, f->name,
                            "logprobs must be true or false; top_logprobs is the number of alternatives.");
    r->gen.sampling.logprobs = json_is_true(v);
    return true;
}

/* How many alternatives to return. */
static bool read_logprob_count(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (json_is_false(v))
        return true;
    if (!integer_of(v, &x) || x < 0 || x > SAMPLER_TOP_MAX)
        return reject_value(why, f->name, "logprobs must be an integer from 0 to %d.", SAMPLER_TOP_MAX);
    r->gen.sampling.logprobs = true;
    r->gen.sampling.top_logprobs = x;
    return true;
}

static bool read_top_k(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!integer_of(v, &x) || x < -1 || x > REQUEST_TOKENS_MAX)
        return reject_value(why, f->name, "top_k must be an integer from 1; 0 or -1 switch it off.");
    r->gen.sampling.top_k = x < 0 ? 0 : x;
    return true;
}

static bool read_seed(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!integer_of(v, &r->gen.sampling.seed))
        return reject_value(why, f->name, "seed must be an integer of 64 bits.");
    r->gen.sampling.has_seed = true;
    return true;
}

static bool read_priority(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!integer_of(v, &x) || x < -1000 || x > 1000)
        return reject_value(why, f->name, "priority must be an integer from -1000 (first) to 1000.");
    r->gen.priority = (int32_t)x;
    return true;
}

static bool read_n(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!integer_of(v, &x) || x < 1 || x > 4096)
        return reject_value(why, f->name, "n must be a positive integer.");
    r->gen.n = (uint32_t)x;
    return true;
}

static bool read_max_tokens(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!integer_of(v, &x) || x < 1)
        return reject_value(why, f->name, "%s must be an integer of at least 1.", f->name);
    x = MIN_OF(x, REQUEST_TOKENS_MAX);
    if (r->gen.sampling.max_tokens >= 0 && r->gen.sampling.max_tokens != x)
        return reject_value(
            why, f->name,
            "max_tokens and max_completion_tokens are names of the same limit; their values differ.");
    r->gen.sampling.max_tokens = x;
    return true;
}

static bool read_messages(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_array(v) || json_array_size(v) == 0)
        return reject_value(why, f->name, "messages must be a list of at least one message.");
    r->gen.messages = v;
    return true;
}

static bool read_tools(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)f;
    if (!request_check_tools(v, why))
        return false;
    r->gen.tools = json_array_size(v) ? v : NULL;
    return true;
}

static bool read_tool_choice(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *s = json_is_string(v) ? json_string_value(v) : NULL;
    if (s && (strcmp(s, "auto") == 0 || strcmp(s, "none") == 0))
        return true; /* "none" is applied when all fields are known. */
    if ((s && strcmp(s, "required") == 0) || json_is_object(v))
        return reject_unsupported(
            why, f->name,
            "tool_choice may be \"auto\" or \"none\"; \"required\" and named functions are not supported.");
    (void)r;
    return reject_value(why, f->name, "tool_choice must be \"auto\" or \"none\".");
}

static bool read_template_kwargs(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_object(v))
        return reject_value(why, f->name, "chat_template_kwargs must be an object.");
    r->gen.template_kwargs = json_incref(v);
    return true;
}

static bool read_tokens(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    size_t i;
    json_t *each;
    if (!json_is_array(v))
        return reject_value(why, f->name, "tokens must be a list of token ids.");
    json_array_foreach(v, i, each)
        if (!json_is_integer(each) || json_integer_value(each) < 0)
            return reject_value(why, f->name, "tokens[%zu] must be a token id.", i);
    r->tokens = v;
    return true;
}

static bool read_prompt(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (r->gen.prompt)
        return reject_value(why, f->name,
                            "prompt and content are names of the same field; send one of them.");
    r->gen.prompt = v; /* its form is checked when all fields are known */
    return true;
}

/* ---- the table ---- */

#define GRAMMAR_SAY      "structured outputs (grammars, JSON schemas) are not supported"
#define SAMPLING(member) AT(gen.sampling.member)

static const struct field fields[] = {
    {"model", ON_ALL, read_string, AT(model)},
    /* Input. */
    {"messages", ON_MESSAGES, read_messages},
    {"prompt", ON_COMPLETION | ON_TOKENIZE, read_prompt},
    {"content", ON_TOKENIZE, read_prompt}, /* llama.cpp's name */
    {"tokens", ON_DETOKENIZE, read_tokens},
    {"tools", ON_MESSAGES, read_tools},
    {"tool_choice", ON_MESSAGES, read_tool_choice},
    {"parallel_tool_calls", ON_MESSAGES, read_bool, AT(gen.parallel_tool_calls)},
    {"chat_template_kwargs", ON_MESSAGES, read_template_kwargs},
    {"enable_thinking", ON_MESSAGES, read_tristate, AT(gen.enable_thinking)},
    {"reasoning_effort", ON_MESSAGES, read_string, AT(gen.reasoning_effort)},
    {"add_generation_prompt", ON_MESSAGES, read_bool, AT(gen.add_generation_prompt)},
    {"add_special_tokens", ON_BOTH | ON_TOKENIZE, read_tristate, AT(gen.add_special_tokens)},
    {"add_special", ON_TOKENIZE, read_tristate, AT(gen.add_special_tokens)}, /* llama.cpp's name */
    {"return_token_strs", ON_TOKENIZE, read_bool, AT(return_token_strs)},
    {"with_pieces", ON_TOKENIZE, read_bool, AT(return_token_strs)}, /* llama.cpp's name */
    /* Sampling. */
    {"temperature", ON_BOTH, read_real, SAMPLING(temperature), 0, 2},
    {"top_p", ON_BOTH, read_real, SAMPLING(top_p), 1e-6, 1},
    {"top_k", ON_BOTH, read_top_k},
    {"min_p", ON_BOTH, read_real, SAMPLING(min_p), 0, 0.999999},
    {"repetition_penalty", ON_BOTH, read_real, SAMPLING(repetition_penalty), 0.01, 100},
    {"presence_penalty", ON_BOTH, read_real, SAMPLING(presence_penalty), -2, 2},
    {"frequency_penalty", ON_BOTH, read_real, SAMPLING(frequency_penalty), -2, 2},
    {"seed", ON_BOTH, read_seed},
    {"logit_bias", ON_BOTH, read_logit_bias},
    {"n", ON_BOTH, read_n},
    {"best_of", ON_BOTH, read_best_of, .say = "must equal n; all choices are returned."},
    /* Limits and stops. */
    {"max_tokens", ON_BOTH, read_max_tokens},
    {"max_completion_tokens", ON_BOTH, read_max_tokens},
    {"min_tokens", ON_BOTH, read_integer, SAMPLING(min_tokens), 0, (double)REQUEST_TOKENS_MAX},
    {"stop", ON_BOTH, read_stop},
    {"stop_token_ids", ON_BOTH, read_stop_ids},
    {"ignore_eos", ON_BOTH, read_bool, AT(gen.ignore_eos)},
    {"include_stop_str_in_output", ON_BOTH, read_bool, AT(gen.include_stop)},
    {"skip_special_tokens", ON_BOTH, read_bool, AT(gen.skip_special_tokens)},
    /* Output. */
    {"stream", ON_BOTH, read_bool, AT(stream)},
    {"stream_options", ON_BOTH, read_stream_options},
    {"logprobs", ON_CHAT, read_logprobs},
    {"logprobs", ON_COMPLETION, read_logprob_count},
    {"top_logprobs", ON_CHAT, read_integer, SAMPLING(top_logprobs), 0, SAMPLER_TOP_MAX},
    {"prompt_logprobs", ON_BOTH, read_integer, SAMPLING(prompt_logprobs), 0, SAMPLER_TOP_MAX},
    {"return_token_ids", ON_BOTH, read_bool, AT(return_token_ids)},
    {"priority", ON_BOTH, read_priority},
    {"speculative", ON_BOTH, read_bool, AT(gen.speculative)},
    {"cache_salt", ON_BOTH, read_string, AT(gen.cache_salt)},
    /* Labels for the client's accounting. */
    {"user", ON_BOTH, accept_string},
    {"safety_identifier", ON_BOTH, accept_string},
    {"prompt_cache_key", ON_BOTH, accept_string},
    {"metadata", ON_BOTH, accept_object},
    /* Known; accepted only with values that request the default behaviour. */
    {"response_format", ON_BOTH, read_response_format},
    {"service_tier", ON_BOTH, read_service_tier},
    {"modalities", ON_CHAT, read_modalities},
    {"verbosity", ON_CHAT, refuse_unless_word, .say = "medium"},
    {"echo", ON_BOTH, refuse_unless_off,
     .say = "not supported; prepend the prompt in the client, or use prompt_logprobs."},
    {"suffix", ON_COMPLETION, refuse_unless_off, .say = "fill-in-the-middle is not supported."},
    {"store", ON_BOTH, refuse_unless_off, .say = "stored completions are not supported."},
    {"continue_final_message", ON_MESSAGES, refuse_unless_off,
     .say = "not supported, the reply is a new message; use /v1/completions to continue a text."},
    {"use_beam_search", ON_BOTH, refuse_unless_off, .say = "beam search is not supported."},
    {"length_penalty", ON_BOTH, refuse_unless_off, .min = 1, .say = "beam search is not supported."},
    {"early_stopping", ON_BOTH, refuse_unless_off, .say = "beam search is not supported."},
    {"spaces_between_special_tokens", ON_BOTH, refuse_unless_true, .say = "only true is supported."},
    {"return_tokens_as_token_ids", ON_BOTH, refuse_unless_off, .say = "not supported; use return_token_ids."},
    {"truncate_prompt_tokens", ON_BOTH, refuse,
     .say = "prompt truncation is not supported; shorten the prompt."},
    {"allowed_token_ids", ON_BOTH, refuse_unless_off, .say = "not supported; use logit_bias."},
    {"bad_words", ON_BOTH, refuse_unless_off, .say = "not supported; use logit_bias."},
    {"logits_processors", ON_BOTH, refuse_unless_off, .say = "custom logits processors are not supported."},
    {"functions", ON_CHAT, refuse, .say = "not supported; use tools."},
    {"function_call", ON_CHAT, refuse, .say = "not supported; use tool_choice."},
    {"structured_outputs", ON_BOTH, refuse, .say = GRAMMAR_SAY "."},
    {"guided_json", ON_BOTH, refuse, .say = GRAMMAR_SAY "."},
    {"guided_regex", ON_BOTH, refuse, .say = GRAMMAR_SAY "."},
    {"guided_choice", ON_BOTH, refuse, .say = GRAMMAR_SAY "."},
    {"guided_grammar", ON_BOTH, refuse, .say = GRAMMAR_SAY "."},
    {"grammar", ON_BOTH, refuse_unless_off, .say = GRAMMAR_SAY "."},
    {"json_schema", ON_BOTH, refuse, .say = GRAMMAR_SAY "."},
    {"documents", ON_MESSAGES, refuse_unless_off, .say = "not supported; put the documents into a message."},
    {"chat_template", ON_MESSAGES, refuse, .say = "not supported; the model's own chat template is used."},
    {"audio", ON_CHAT, refuse, .say = "audio output is not supported."},
    {"prediction", ON_CHAT, refuse,
     .say = "predicted outputs are not supported; leave the field out, the reply is the same."},
    {"web_search_options", ON_CHAT, refuse, .say = "web search is not supported."},
    {"mm_processor_kwargs", ON_BOTH, refuse_unless_off,
     .say = "options of the image processor are not supported; the model's own are used."},
    {"prompt_embeds", ON_COMPLETION, refuse,
     .say = "prompt embeddings are not supported; send text or token ids."},
    {"request_id", ON_BOTH, refuse, .say = "the server assigns request ids; see the header x-request-id."},
    {"kv_transfer_params", ON_BOTH, refuse, .say = "KV transfer is not supported."},
    {"lora_path", ON_BOTH, refuse, .say = "LoRA adapters are not supported."},
    {"parse_special", ON_TOKENIZE, refuse_unless_true,
     .say = "only true is supported; special tokens in the text are always parsed."},
};

static const struct field *field_find(const char *name, unsigned route)
{
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        if (fields[i].routes & route && strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

/* True when the name is a field of another route. A tokenize request may have the body of a chat with all its
 * reply fields, so only the generating routes use this. */
static bool field_is_elsewhere(const struct request *r, const char *name)
{
    return r->gen.output == GEN_TOKENS && field_find(name, ON_ALL);
}

/* Names go into a header: only characters of identifiers are copied. */
static void note_ignored(struct request *r, const char *name)
{
    size_t at = strlen(r->ignored), len = strlen(name);
    if (at + len + 3 > sizeof(r->ignored) || len == 0)
        return;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] <= ' ' || (unsigned char)name[i] > '~' || name[i] == ',')
            return;
    snprintf(r->ignored + at, sizeof(r->ignored) - at, "%s%s", at ? ", " : "", name);
}

bool request_fields_read(struct request *r, struct reject *why)
{
    const char *name;
    json_t *value;
    json_object_foreach(r->root, name, value) {
        const struct field *f = field_find(name, 1u << r->kind);
        if (json_is_null(value))
            continue;
        if (!f && field_is_elsewhere(r, name))
            return reject_unsupported(why, name, "%.40s is not a field of this route.", name);
        if (!f)
            note_ignored(r, name);
        else if (!f->read(r, f, value, why))
            return false;
    }
    return true;
}
