/* request_tools.c - the tools of OpenAI's chats.
 *
 * Their form is checked with the field, before the request's memory is known; custom tools become functions
 * when the messages are converted. */
#include "api/request/custom_tool.h"
#include "api/request/field.h"
#include "api/request/request.h"
#include "api/request/tool_choice.h"

#include "gen/reject.h"
#include "gen/request_memory.h"

static bool is_type(const json_t *v, const char *type)
{
    return strcmp(field_string_in(v, "type"), type) == 0;
}

static bool is_null(const json_t *v)
{
    return !v || json_is_null(v);
}

/* ---- functions ---- */

static bool is_strict(const json_t *tool)
{
    return json_is_true(json_object_get(json_object_get(tool, "function"), "strict")) ||
           json_is_true(json_object_get(tool, "strict"));
}

static bool check_function(const json_t *tool, const char *at, struct reject *why)
{
    const json_t *function = json_object_get(tool, "function");
    const json_t *parameters = json_object_get(function, "parameters");
    if (field_string_in(function, "name")[0] == 0)
        return reject_value(why, at, "%s.function needs a name.", at);
    if (!is_null(parameters) && !json_is_object(parameters))
        return reject_value(why, at, "%s.function.parameters must be a JSON schema, an object.", at);
    if (!field_is_flag(json_object_get(function, "strict")) ||
        !field_is_flag(json_object_get(tool, "strict")))
        return reject_value(why, at, "%s.function.strict must be true or false.", at);
    return true;
}

/* ---- custom tools ---- */

/* {"type": "text"}, or {"type": "grammar", "grammar": {"syntax", "definition"}}. */
static bool check_format(const json_t *format, const char *at, struct reject *why)
{
    const json_t *grammar = json_object_get(format, "grammar");
    if (is_null(format) || is_type(format, "text"))
        return true;
    if (!is_type(format, "grammar"))
        return reject_value(why, at, "%s.custom.format must be of type \"text\" or \"grammar\".", at);
    bool known = strcmp(field_string_in(grammar, "syntax"), "lark") == 0 ||
                 strcmp(field_string_in(grammar, "syntax"), "regex") == 0;
    if (!known || field_string_in(grammar, "definition")[0] == 0)
        return reject_value(why, at,
                            "%s.custom.format.grammar needs a definition, and \"lark\" or \"regex\" as its "
                            "syntax.",
                            at);
    return true;
}

static bool check_custom(const json_t *tool, const char *at, struct reject *why)
{
    const json_t *custom = json_object_get(tool, "custom");
    if (field_string_in(custom, "name")[0] == 0)
        return reject_value(why, at, "%s.custom needs a name.", at);
    return check_format(json_object_get(custom, "format"), at, why);
}

static struct custom_format format_of(const json_t *custom)
{
    const json_t *format = json_object_get(custom, "format"), *grammar = json_object_get(format, "grammar");
    if (!is_type(format, "grammar"))
        return (struct custom_format){0};
    return (struct custom_format){.syntax = field_string_in(grammar, "syntax"),
                                  .definition = json_object_get(grammar, "definition"),
                                  .param = "tools.custom.format"};
}

/* The function that stands for it, a new reference; NULL: no memory. */
static json_t *function_of(struct request *r, struct request_memory *memory, const json_t *custom)
{
    json_t *name = json_object_get(custom, "name"), *description = json_object_get(custom, "description");
    struct custom_format format = format_of(custom);
    json_t *function = json_pack("{sO}", "name", name), *ret = NULL;
    json_t *schema = custom_tool_schema(r, memory, json_string_value(name), &format);
    bool ok = function && schema &&
              (!json_is_string(description) || json_object_set(function, "description", description) == 0) &&
              json_object_set(function, "parameters", schema) == 0;
    if (ok)
        ret = json_pack("{sssO}", "type", "function", "function", function);
    json_decref(schema);
    json_decref(function);
    return ret;
}

/* An object by the names of all tools: whether several have the name. NULL: no memory. */
static json_t *count_names(const json_t *tools)
{
    size_t i;
    const json_t *tool;
    json_t *ret = json_object();
    json_array_foreach(tools, i, tool) {
        const char *name = field_string_in(json_object_get(tool, field_string_in(tool, "type")), "name");
        if (json_object_set_new(ret, name, json_boolean(json_object_get(ret, name))) == 0)
            continue;
        json_decref(ret);
        return NULL;
    }
    return ret;
}

static bool note_custom(struct request *r, const char *name)
{
    if (!r->customs)
        r->customs = json_object();
    return r->customs && json_object_set_new(r->customs, name, json_true()) == 0;
}

static bool convert_custom(struct request *r, struct request_memory *memory, json_t *tools, size_t index,
                           const json_t *names, struct reject *why)
{
    const json_t *custom = json_object_get(json_array_get(tools, index), "custom");
    const char *name = field_string_in(custom, "name");
    if (json_is_true(json_object_get(names, name)))
        return reject_value(why, "tools", "tools[%zu]: another tool is called \"%.64s\", too.", index, name);
    json_t *function = note_custom(r, name) ? function_of(r, memory, custom) : NULL;
    return json_array_set_new(tools, index, function) == 0 || request_memory_reject(memory, why);
}

bool request_convert_tools(struct request *r, struct request_memory *memory, struct reject *why)
{
    json_t *tools = json_object_get(r->root, "tools"), *tool;
    json_t *names = count_names(tools);
    size_t i;
    bool ok = names || request_memory_reject(memory, why);
    json_array_foreach(tools, i, tool)
        ok = ok && (!is_type(tool, "custom") || convert_custom(r, memory, tools, i, names, why));
    json_decref(names);
    return ok;
}

bool request_is_custom(const struct request *r, struct slice name)
{
    return json_object_getn(r->customs, name.ptr, name.len) != NULL;
}

/* ---- the field ---- */

static bool check_tool(const json_t *tool, size_t index, struct reject *why)
{
    char at[64];
    snprintf(at, sizeof(at), "tools[%zu]", index);
    if (is_type(tool, "custom"))
        return check_custom(tool, at, why);
    if (!is_type(tool, "function"))
        return reject_value(why, at, "%s.type must be \"function\" or \"custom\".", at);
    return check_function(tool, at, why);
}

bool request_check_tools(struct request *r, const json_t *tools, struct reject *why)
{
    size_t i;
    json_t *tool;
    if (!json_is_array(tools))
        return reject_value(why, "tools", "tools must be a list.");
    if (json_array_size(tools) > REQUEST_TOOLS_MAX)
        return reject_value(why, "tools", "tools has %zu entries; the limit is %d.", json_array_size(tools),
                            REQUEST_TOOLS_MAX);
    json_array_foreach(tools, i, tool) {
        if (!check_tool(tool, i, why))
            return false;
        if (is_strict(tool))
            tool_choice_strict(r, field_string_in(json_object_get(tool, "function"), "name"));
    }
    return true;
}
