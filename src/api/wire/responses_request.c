/* responses_request.c - the fields of OpenAI's Responses.
 *
 * Unknown fields and fields without effect are listed in x-ignored-fields. The sampling fields of all
 * dialects are read too. */
#include "api/request/field.h"
#include "api/request/tool_choice.h"
#include "api/request/tool_set.h"
#include "api/wire/responses.h"

#include "base/check.h"
#include "gen/reject.h"

#include <stdio.h>

static const char *word_of(const json_t *v)
{
    return json_is_string(v) ? json_string_value(v) : "";
}

/* ---- the conversation ---- */

static bool read_input(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    return (json_is_string(v) && json_string_length(v) > 0) || json_array_size(v) > 0 ||
           reject_value(why, f->name, "input must be a text or a list of at least one item.");
}

static bool read_tools(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    if (!json_is_array(v) || json_array_size(v) > REQUEST_TOOLS_MAX)
        return reject_value(why, f->name, "tools must be a list of at most %d tools.", REQUEST_TOOLS_MAX);
    return true;
}

/* The tools of allowed_tools are the only ones that are offered, see responses_tools.c. */
static bool read_allowed(struct request *r, const struct field *f, const json_t *v, struct reject *why)
{
    const char *mode = field_string_in(v, "mode");
    const json_t *tools = json_object_get(v, "tools");
    r->gen.calls.required = strcmp(mode, "required") == 0;
    return ((r->gen.calls.required || strcmp(mode, "auto") == 0) && json_is_array(tools) &&
            json_array_size(tools) <= REQUEST_TOOLS_MAX) ||
           reject_value(
               why, f->name,
               "tool_choice of type \"allowed_tools\" must have the mode \"auto\" or \"required\", and at "
               "most %d tools.",
               REQUEST_TOOLS_MAX);
}

static bool read_named(struct request *r, const struct field *f, const json_t *v, struct reject *why)
{
    char name[RESPONSES_NAME_BYTES];
    const char *type = field_string_in(v, "type"), *own = field_string_in(v, "name");
    const char *space = field_string_in(v, "namespace");
    if (strcmp(type, "function") != 0 && strcmp(type, "custom") != 0)
        return reject_unsupported(
            why, f->name,
            "tool_choice of type \"%.40s\" is not supported: the server runs no tools. Use "
            "\"function\", \"custom\" or \"allowed_tools\".",
            type);
    if (!own[0] || !responses_flat_name(space[0] ? space : NULL, own, name))
        return reject_value(why, f->name, "tool_choice of type \"%s\" needs the name of a tool.", type);
    tool_choice_require(r, name);
    return true;
}

static bool read_tool_choice(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *word = word_of(v), *type = field_string_in(v, "type");
    if (strcmp(type, "allowed_tools") == 0)
        return read_allowed(r, f, v, why);
    if (type[0])
        return read_named(r, f, v, why);
    r->gen.calls.required = strcmp(word, "required") == 0;
    if (strcmp(word, "none") == 0)
        r->tools_off = true; /* not offered, so not called */
    return r->gen.calls.required || r->tools_off || strcmp(word, "auto") == 0 ||
           reject_value(why, f->name,
                        "tool_choice must be \"auto\", \"none\", \"required\" or an object with a type.");
}

/* ---- the reply ---- */

/* Members of newer APIs advise too. */
static void note_members(struct request *r, const json_t *reasoning)
{
    char name[64];
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)reasoning, key, value) {
        snprintf(name, sizeof(name), "reasoning.%.40s", key);
        if (!json_is_null(value) && strcmp(key, "effort") != 0 && strcmp(key, "summary") != 0)
            field_note_ignored(r, name);
    }
}

/* The reply repeats the summary, of which clients know these three. */
static bool read_reasoning(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    static const char *const summaries[] = {"auto", "concise", "detailed", NULL};
    const char *word;
    if (!json_is_object(v))
        return reject_value(why, f->name, "reasoning must be an object.");
    if (!field_take_effort(r, "reasoning.effort", json_object_get(v, "effort"), why) ||
        !field_take_hint(r, "reasoning.summary", json_object_get(v, "summary"), summaries, &word, why))
        return false;
    if (!word)
        json_object_del(v, "summary");
    note_members(r, v);
    return true;
}

static bool read_format(struct request *r, json_t *format, struct reject *why)
{
    const char *type = field_string_in(format, "type");
    if (!format || json_is_null(format) || strcmp(type, "text") == 0)
        return true;
    if (strcmp(type, "json_object") == 0)
        return field_constrain(r, "text.format", GRAMMAR_JSON_OBJECT, NULL, why);
    if (strcmp(type, "json_schema") == 0)
        return field_named_schema(r, "text.format", "text.format.schema", format, why);
    return reject_unsupported(why, "text.format",
                              "text.format of type \"%.32s\" is not supported; \"text\", \"json_object\" and "
                              "\"json_schema\" are.",
                              type);
}

static bool read_text(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *word;
    if (!json_is_object(v))
        return reject_value(why, f->name, "text must be an object.");
    if (!field_take_verbosity(r, "text.verbosity", json_object_get(v, "verbosity"), &word, why))
        return false;
    if (!word) /* the reply repeats it */
        json_object_del(v, "verbosity");
    return read_format(r, json_object_get(v, "format"), why);
}

static bool read_include(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    size_t i;
    const json_t *each;
    if (!json_is_array(v))
        return reject_value(why, f->name, "include must be a list of strings.");
    json_array_foreach(v, i, each) {
        if (!json_is_string(each))
            return reject_value(why, f->name, "include must be a list of strings.");
        if (strcmp(word_of(each), "reasoning.encrypted_content") == 0)
            r->seals_reasoning = true;
        else if (strcmp(word_of(each), "message.output_text.logprobs") == 0)
            r->gen.sampling.logprobs = true;
        else
            field_note_ignored(r, "include");
    }
    return true;
}

static bool read_truncation(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    static const char *const known[] = {"auto", "disabled", NULL};
    const char *word;
    bool ok = field_take_hint(r, f->name, v, known, &word, why);
    r->gen.drops_turns = ok && word && strcmp(word, "auto") == 0;
    return ok;
}

static bool read_top_logprobs(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    bool ok = field_integer(r, f, v, why);
    r->gen.sampling.logprobs |= r->gen.sampling.top_logprobs > 0;
    return ok;
}

static bool read_store(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    return json_is_boolean(v) || reject_value(why, f->name, "store must be true or false.");
}

static const struct field fields[] = {
    {"input", read_input, .prompt = true},
    {"instructions", field_accept_string},
    {"tools", read_tools},
    {"tool_choice", read_tool_choice},
    {"parallel_tool_calls", field_bool, FIELD_AT(gen.parallel_tool_calls)},
    {"max_output_tokens", field_max_tokens},
    {"max_tool_calls", field_ignore_unless_off},
    {"reasoning", read_reasoning},
    {"text", read_text},
    {"structured_outputs", field_structured_outputs},
    {"include", read_include},
    {"truncation", read_truncation},
    {"stop", field_stop},
    {"top_logprobs", read_top_logprobs, FIELD_SAMPLING(top_logprobs), 0, SAMPLER_TOP_MAX},
    {"store", read_store},
    {"previous_response_id", field_accept_string},
    {"enable_thinking", field_tristate, FIELD_AT(gen.enable_thinking)},
    /* Labels for the client's accounting. */
    {"metadata", field_accept_object},
    {"client_metadata", field_accept_object},
    {"user", field_accept_string},
    {"safety_identifier", field_accept_string},
    {"prompt_cache_key", field_cache_key},
    {"prompt_cache_retention", field_cache_retention},
    {"prompt_cache_options", field_cache_options},
    {"service_tier", field_service_tier},
    {"stream_options", field_accept_object},
    /* Known; accepted only with values that request the default behaviour. */
    {"background", field_refuse_unless_off, .say = "background responses are not supported; use stream."},
    {"conversation", field_refuse_unless_off,
     .say = "conversations are not supported; send all items of the conversation as input."},
    {"prompt", field_refuse_unless_off, .say = "prompt templates are not supported; use instructions."},
    {"messages", field_refuse, .say = "not a field of this route; use input.", .prompt = true},
    {"response_format", field_refuse, .say = "not a field of this route; use text.format."},
    {"n", field_refuse_unless_off, .min = 1, .say = "a response has one choice."},
};

static const struct field_group own_fields = {fields, COUNT_OF(fields)};
const struct field_group *const responses_groups[] = {&own_fields, &fields_generation, NULL};

bool responses_check(struct request *r, struct reject *why)
{
    if (!json_object_get(r->root, "input"))
        return reject_value(why, "input", "input is missing.");
    r->gen.clamps = true;
    r->gen.messages_name = "input";
    r->stores = !json_is_false(json_object_get(r->root, "store"));
    return true;
}

bool responses_convert(struct request *r, const struct request_limits *limits, struct request_memory *memory,
                       struct reject *why)
{
    struct responses_conversion c = {.request = r, .limits = limits, .memory = memory, .why = why};
    request_memory_enter(memory);
    c.names = json_object();
    bool ok = ((tool_set_init(&c.set) && c.names) || responses_no_memory(&c)) &&
              responses_convert_tools(&c) && responses_resolve(&c) && responses_keep_input(&c) &&
              responses_convert_items(&c) && (tool_set_finish(&c.set, r) || responses_no_memory(&c));
    tool_set_done(&c.set);
    json_decref(c.names);
    json_decref(c.stored);
    request_memory_enter(NULL);
    return ok;
}

static bool check_count(struct request *r, struct reject *why)
{
    bool ok = responses_check(r, why);
    r->stores = false;
    return ok;
}

bool responses_check_compact(struct request *r, struct reject *why)
{
    if (r->stream)
        field_note_ignored(r, "stream");
    r->stream = false;
    return check_count(r, why);
}

const struct request_form responses_count_form = {.groups = responses_groups,
                                                  .output = GEN_IDS,
                                                  .parses = true,
                                                  .check = check_count,
                                                  .convert = responses_convert};
