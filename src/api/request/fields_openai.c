/* fields_openai.c - what OpenAI's completions and chats share, and the conversation of its chats.
 *
 * Other servers of this API support the refused fields. */
#include "api/request/field.h"
#include "api/request/request.h"
#include "api/request/tool_choice.h"

#include "base/check.h"
#include "gen/reject.h"
#include "sample/sampler_params.h"

#include <stdio.h>

/* ---- completions and chats ---- */

static bool read_n(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!field_integer_of(v, &x) || x < 1 || x > 4096)
        return reject_value(why, f->name, "n must be a positive integer.");
    r->gen.n = (uint32_t)x;
    return true;
}

static bool read_best_of(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x, n = 1;
    json_t *given = json_object_get(r->root, "n");
    if (given && !json_is_null(given) && !field_integer_of(given, &n))
        n = 1;
    if (field_integer_of(v, &x) && x == n)
        return true;
    return field_refuse(r, f, v, why);
}

/* Other options concern the delivery alone. */
static void note_option(struct request *r, const char *key)
{
    char name[64];
    snprintf(name, sizeof(name), "stream_options.%.40s", key);
    field_note_ignored(r, name);
}

static bool read_stream_options(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return reject_value(why, f->name, "stream_options must be an object.");
    r->stream_options = true;
    json_object_foreach(v, key, value) {
        bool usage = strcmp(key, "include_usage") == 0, stats = strcmp(key, "continuous_usage_stats") == 0;
        if (json_is_null(value))
            continue;
        if ((usage || stats) && !json_is_boolean(value))
            return reject_value(why, f->name, "stream_options.%.40s must be true or false.", key);
        if (usage)
            r->include_usage = json_is_true(value);
        else if (stats)
            r->continuous_usage = json_is_true(value);
        else if (!json_is_false(value))
            note_option(r, key);
    }
    return true;
}

static bool read_allowed_ids(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    size_t i;
    json_t *each;
    if (!json_is_array(v) || json_array_size(v) > SAMPLER_BIAS_MAX)
        return reject_value(why, f->name, "allowed_token_ids must be a list of at most %d token ids.",
                            SAMPLER_BIAS_MAX);
    json_array_foreach(v, i, each)
        if (!json_is_integer(each) || json_integer_value(each) < 0)
            return reject_value(why, f->name, "allowed_token_ids[%zu] must be a token id.", i);
    r->gen.allowed_ids = json_array_size(v) ? v : NULL;
    return true;
}

bool fields_openai_check(struct request *r, struct reject *why)
{
    if (!r->stream && r->stream_options)
        return reject_value(why, "stream_options", "stream_options is allowed only when stream is true.");
    /* Times and diagnostics are parts of the usage. */
    r->include_usage |= r->stream && (r->include_timings || r->include_diagnostics) && !r->stream_options;
    return true;
}

static const struct field shared[] = {
    {"n", read_n},
    {"best_of", read_best_of, .say = "must equal n; all choices are returned."},
    {"max_completion_tokens", field_max_tokens},
    {"stop", field_stop},
    {"stream_options", read_stream_options},
    {"timings_per_token", field_bool, FIELD_AT(timings_per_token)},
    FIELD_ADD_SPECIAL_TOKENS,
    /* Labels for the client's accounting. */
    {"user", field_accept_string},
    {"safety_identifier", field_accept_string},
    {"prompt_cache_key", field_cache_key},
    {"prompt_cache_retention", field_cache_retention},
    {"prompt_cache_options", field_cache_options},
    {"metadata", field_accept_object},
    /* Known; accepted only with values that request the default behaviour. */
    {"service_tier", field_service_tier},
    {"store", field_ignore_unless_off},
    {"use_beam_search", field_refuse_unless_off, .say = "beam search is not supported."},
    {"length_penalty", field_refuse_unless_off, .min = 1, .say = "beam search is not supported."},
    {"early_stopping", field_refuse_unless_off, .say = "beam search is not supported."},
    {"spaces_between_special_tokens", field_refuse_unless_true, .say = "only true is supported."},
    {"return_tokens_as_token_ids", field_refuse_unless_off, .say = "not supported; use return_token_ids."},
    {"truncate_prompt_tokens", field_truncation},
    {"truncation_side", field_truncation_side},
    {"allowed_token_ids", read_allowed_ids},
    {"bad_words", field_refuse_unless_off, .say = "not supported; use logit_bias."},
    {"logits_processors", field_refuse_unless_off, .say = "custom logits processors are not supported."},
    {"mm_processor_kwargs", field_refuse_unless_off,
     .say = "options of the image processor are not supported; the model's own are used."},
    {"request_id", field_ignore_unless_off}, /* the server draws them: the header x-request-id */
    {"kv_transfer_params", field_refuse, .say = "KV transfer is not supported."},
    {"lora_path", field_refuse, .say = "LoRA adapters are not supported."},
};

const struct field_group fields_openai = {shared, COUNT_OF(shared)};

/* ---- conversations ---- */

static bool read_tools(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)f;
    if (!request_check_tools(r, v, why))
        return false;
    r->gen.tools = json_array_size(v) && !r->tools_off ? v : NULL;
    return true;
}

/* {"type": "function", "function": {"name": ...}}, or "custom" twice; newer clients have the name beside the
 * type. */
static bool take_tool(struct request *r, const json_t *v, void take(struct request *, const char *))
{
    const char *type = field_string_in(v, "type"), *inner = field_string_in(json_object_get(v, type), "name");
    const char *name = inner[0] ? inner : field_string_in(v, "name");
    if ((strcmp(type, "function") != 0 && strcmp(type, "custom") != 0) || !name[0])
        return false;
    take(r, name);
    return true;
}

static bool allow_list(struct request *r, const json_t *allowed)
{
    size_t i;
    const json_t *each, *tools = json_object_get(allowed, "tools");
    if (json_array_size(tools) == 0 || json_array_size(tools) > REQUEST_TOOLS_MAX)
        return false;
    json_array_foreach(tools, i, each)
        if (!take_tool(r, each, tool_choice_allow))
            return false;
    return true;
}

static bool read_named(struct request *r, const struct field *f, const json_t *v, struct reject *why)
{
    const json_t *inner = json_object_get(v, "allowed_tools"), *allowed = json_is_object(inner) ? inner : v;
    const char *mode = field_string_in(allowed, "mode");
    bool list = strcmp(field_string_in(v, "type"), "allowed_tools") == 0;
    r->gen.calls.required = strcmp(mode, "required") == 0;
    if (list && !r->gen.calls.required && strcmp(mode, "auto") != 0)
        return reject_value(why, f->name, "tool_choice.allowed_tools.mode must be \"auto\" or \"required\".");
    if (list ? allow_list(r, allowed) : take_tool(r, v, tool_choice_require))
        return true;
    return reject_value(
        why, f->name,
        "tool_choice names tools as {\"type\": \"function\", \"function\": {\"name\": \"...\"}}, or with "
        "\"custom\" in both places; "
        "allowed_tools has a mode and a list of these in \"tools\".");
}

static bool read_tool_choice(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *s = json_is_string(v) ? json_string_value(v) : NULL;
    if (s && strcmp(s, "none") == 0) {
        r->tools_off = true; /* Not offered, so not called: what OpenAI promises for "none". */
        r->gen.tools = NULL;
    }
    if (s && (strcmp(s, "auto") == 0 || strcmp(s, "none") == 0))
        return true;
    if (json_is_object(v))
        return read_named(r, f, v, why);
    r->gen.calls.required = s && strcmp(s, "required") == 0;
    return r->gen.calls.required ||
           reject_value(
               why, f->name,
               "tool_choice must be \"auto\", \"none\", \"required\", or an object of type \"function\", "
               "\"custom\" or \"allowed_tools\".");
}

static bool read_effort(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return field_take_effort(r, f->name, v, why);
}

static bool read_template_kwargs(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_object(v))
        return reject_value(why, f->name, "chat_template_kwargs must be an object.");
    r->gen.template_kwargs = json_incref(v);
    return true;
}

static const struct field conversation[] = {
    {"messages", field_messages, .prompt = true},
    {"tools", read_tools},
    {"tool_choice", read_tool_choice},
    {"parallel_tool_calls", field_bool, FIELD_AT(gen.parallel_tool_calls)},
    {"chat_template_kwargs", read_template_kwargs, .prompt = true},
    {"enable_thinking", field_tristate, FIELD_AT(gen.enable_thinking)},
    {"reasoning_effort", read_effort},
    {"add_generation_prompt", field_bool, FIELD_AT(gen.add_generation_prompt)},
    {"continue_final_message", field_bool, FIELD_AT(gen.continues)},
    {"documents", field_refuse_unless_off, .say = "not supported; put the documents into a message."},
    {"chat_template", field_refuse, .say = "not supported; the model's own chat template is used."},
};

const struct field_group fields_openai_conversation = {conversation, COUNT_OF(conversation)};
