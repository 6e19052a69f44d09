/* messages_request.c - the fields of Anthropic's Messages.
 *
 * Unknown fields and fields without effect are listed in x-ignored-fields. The sampling fields of all
 * dialects are read too. */
#include "api/request/field.h"
#include "api/request/known_types.h"
#include "api/request/tool_choice.h"
#include "api/wire/messages.h"

#include "base/check.h"
#include "gen/reject.h"
#include "http/http_request.h"

#include <math.h>
#include <stdio.h>

#define BUDGET_TOKENS_MIN 1024
#define BETA_BYTES        64 /* bytes of a name of the header anthropic-beta that are read */

/* A string, or a list of blocks with text. */
static bool read_system(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    return json_is_string(v) || json_is_array(v) ||
           reject_value(why, f->name, "system must be a string or a list of text blocks.");
}

static bool read_tools(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    if (!json_is_array(v) || json_array_size(v) > REQUEST_TOOLS_MAX)
        return reject_value(why, f->name, "tools must be a list of at most %d tools.", REQUEST_TOOLS_MAX);
    return true;
}

static bool read_tool_choice(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const char *type = field_string_in(v, "type");
    const char *name = json_string_value(json_object_get(v, "name"));
    bool named = strcmp(type, "tool") == 0;
    r->gen.calls.required = strcmp(type, "any") == 0;
    if (named && (!name || !name[0]))
        return reject_value(why, f->name, "tool_choice of type \"tool\" needs a name.");
    if (named)
        tool_choice_require(r, name);
    else if (strcmp(type, "none") == 0)
        r->tools_off = true; /* not offered, so not called */
    else if (!r->gen.calls.required && strcmp(type, "auto") != 0)
        return reject_value(why, f->name,
                            "tool_choice must be an object of type \"auto\", \"any\", \"tool\" or \"none\".");
    if (!field_is_flag(json_object_get(v, "disable_parallel_tool_use")))
        return reject_value(why, f->name, "tool_choice.disable_parallel_tool_use must be true or false.");
    r->gen.parallel_tool_calls = !json_is_true(json_object_get(v, "disable_parallel_tool_use"));
    return true;
}

static bool read_budget(struct request *r, const json_t *thinking, struct reject *why)
{
    int64_t budget;
    const json_t *given = json_object_get(thinking, "budget_tokens");
    if (!given || !field_integer_of(given, &budget) || budget < BUDGET_TOKENS_MIN)
        return reject_value(why, "thinking",
                            "thinking.budget_tokens must be an integer of at least %d with type \"enabled\".",
                            BUDGET_TOKENS_MIN);
    r->gen.thinking_budget = budget;
    return true;
}

static bool read_thinking(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    static const char *const displays[] = {"summarized", "omitted", NULL};
    const char *type = field_string_in(v, "type"), *display;
    bool enabled = strcmp(type, "enabled") == 0;
    bool on = enabled || strcmp(type, "adaptive") == 0;
    if (!on && strcmp(type, "disabled") != 0 && strcmp(type, "between_tools") != 0)
        return reject_value(why, f->name,
                            "thinking must be an object of type \"enabled\", \"adaptive\" or \"disabled\".");
    r->gen.enable_thinking = on;
    if (!field_take_hint(r, "thinking.display", json_object_get(v, "display"), displays, &display, why))
        return false;
    r->thinking_omitted = display && strcmp(display, "omitted") == 0;
    return !enabled || read_budget(r, v, why);
}

static bool read_format(struct request *r, const char *param, const char *schema_param, const json_t *format,
                        struct reject *why)
{
    if (!format || json_is_null(format))
        return true;
    if (strcmp(field_string_in(format, "type"), "json_schema") != 0)
        return reject_unsupported(why, param, "%s must be of type \"json_schema\", with a \"schema\".",
                                  param);
    return field_named_schema(r, param, schema_param, format, why);
}

/* The older place of output_config.format. */
static bool read_output_format(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return read_format(r, f->name, "output_format.schema", v, why);
}

static bool read_output_config(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_object(v))
        return reject_value(why, f->name, "output_config must be an object.");
    return field_take_effort(r, "output_config.effort", json_object_get(v, "effort"), why) &&
           read_format(r, "output_config.format", "output_config.format.schema", json_object_get(v, "format"),
                       why);
}

/* {"previous_message_id": id or null} */
static bool read_diagnostics(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const json_t *id = json_object_get(v, "previous_message_id");
    if (!json_is_object(v) || (id && !json_is_null(id) && !json_is_string(id)))
        return reject_value(why, f->name,
                            "diagnostics must be an object whose previous_message_id is a string or null.");
    r->diagnoses = true;
    r->previous_message = json_string_value(id);
    return true;
}

static bool read_cache_control(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!field_accept_object(r, f, v, why))
        return false;
    messages_keep(r, v, false);
    return true;
}

/* ---- beta features ---- */

static void note_beta(struct request *r, struct slice name)
{
    char text[BETA_BYTES];
    snprintf(text, sizeof(text), "%.*s", (int)MIN_OF(name.len, sizeof(text) - 1), name.ptr);
    if (text[0] && known_type_find(&messages_beta_types, text)->fate == TYPE_IGNORED)
        known_type_note(r, &messages_beta_types, text);
}

void messages_note_betas(struct request *r, const struct http_request *http)
{
    struct slice list;
    if (!http_request_header(http, "anthropic-beta", &list))
        return;
    while (list.len > 0) {
        size_t len = MIN_OF(slice_find(list, SLICE(","), 0), list.len);
        note_beta(r, slice_trim(slice_sub(list, 0, len), " \t"));
        list = slice_sub(list, MIN_OF(len + 1, list.len), list.len);
    }
}

static bool read_betas(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    size_t i;
    const json_t *each;
    (void)f, (void)why;
    json_array_foreach(v, i, each)
        if (json_is_string(each))
            note_beta(r, (struct slice){json_string_value(each), json_string_length(each)});
    return true;
}

static bool read_metadata(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    const struct field user = {.name = "metadata.user_id"};
    json_t *id = json_is_object(v) ? json_object_get(v, "user_id") : NULL;
    return field_accept_object(r, f, v, why) && (!json_is_string(id) || field_cache_key(r, &user, id, why));
}

/* ---- the fields ---- */

static const struct field fields[] = {
    {"messages", field_messages, .prompt = true},
    {"system", read_system, .prompt = true},
    {"tools", read_tools},
    {"tool_choice", read_tool_choice},
    {"thinking", read_thinking},
    {"output_config", read_output_config},
    {"stop_sequences", field_stop},
    {"metadata", read_metadata},
    {"service_tier", field_service_tier},
    {"betas", read_betas},
    {"diagnostics", read_diagnostics},
    {"cache_control", read_cache_control}, /* mark of the whole prompt, whose end is always a cut */
    {"context_management", messages_read_edits, .prompt = true},
    {"compaction", messages_read_compaction, .prompt = true},
    {"container", field_ignore_unless_off},
    {"output_format", read_output_format},
    {"structured_outputs", field_structured_outputs},
    {"mcp_servers", field_refuse_unless_off, .say = "the server calls no MCP servers."},
};

static const struct field_group own_fields = {fields, COUNT_OF(fields)};
const struct field_group *const messages_groups[] = {&own_fields, &fields_generation, NULL};

static bool check_count(struct request *r, struct reject *why)
{
    if (!r->gen.messages)
        return reject_value(why, "messages", "messages is missing.");
    /* Thinking is off unless it is requested, as in Anthropic's API. */
    if (r->gen.enable_thinking < 0)
        r->gen.enable_thinking = 0;
    r->gen.clamps = r->gen.tells_length = true;
    return true;
}

bool messages_check(struct request *r, struct reject *why)
{
    int64_t most = r->gen.sampling.max_tokens;
    if (most < 0 && !r->gen.prompt_only)
        return reject_value(why, "max_tokens",
                            "max_tokens is missing; it must be an integer. 0 computes the prompt alone.");
    if (!r->gen.prompt_only && r->gen.thinking_budget >= most && json_object_get(r->root, "thinking"))
        return reject_value(why, "thinking",
                            "thinking.budget_tokens is %lld; it must be less than max_tokens, %lld.",
                            (long long)r->gen.thinking_budget, (long long)most);
    return check_count(r, why);
}

bool messages_convert(struct request *r, const struct request_limits *limits, struct request_memory *memory,
                      struct reject *why)
{
    struct messages_conversion c = {.request = r, .memory = memory, .why = why};
    (void)limits;
    request_memory_enter(memory);
    c.names = json_object();
    bool ok = ((tool_set_init(&c.set) && c.names) || messages_no_memory(&c)) && messages_convert_tools(&c) &&
              messages_convert_blocks(&c) && messages_ask_summary(&c) &&
              (tool_set_finish(&c.set, r) || messages_no_memory(&c));
    tool_set_done(&c.set);
    json_decref(c.names);
    request_memory_enter(NULL);
    return ok;
}

const struct request_form messages_count_form = {.groups = messages_groups,
                                                 .output = GEN_IDS,
                                                 .parses = true,
                                                 .check = check_count,
                                                 .convert = messages_convert};
