/* responses_tools.c - the tools of Responses, as functions that templates expect.
 *
 * A custom tool becomes a function with one string: custom_tool.h.
 * The functions of a namespace get names with the namespace before them. Tools that OpenAI's servers run are
 * ignored and listed in x-ignored-fields (known_types.c): agents offer them whenever their configuration has
 * them. */
#include "api/request/custom_tool.h"
#include "api/request/field.h"
#include "api/request/known_types.h"
#include "api/request/tool_choice.h"
#include "api/request/tool_set.h"
#include "api/wire/responses.h"

#include "gen/reject.h"

#include <stdio.h>

static bool is_type(const json_t *v, const char *type)
{
    return strcmp(field_string_in(v, "type"), type) == 0;
}

/* ---- names ---- */

bool responses_flat_name(const char *space, const char *name, char ret[RESPONSES_NAME_BYTES])
{
    size_t len = space ? strlen(space) : 0;
    const char *between = len == 0 || space[len - 1] == '_' ? "" : "__";
    int n = snprintf(ret, RESPONSES_NAME_BYTES, "%s%s%s", space ? space : "", between, name);
    return n > 0 && n < RESPONSES_NAME_BYTES;
}

static const json_t *find_in(const json_t *tools, const char *space, struct slice flat)
{
    char name[RESPONSES_NAME_BYTES];
    size_t i;
    const json_t *tool;
    json_array_foreach(tools, i, tool)
        if ((is_type(tool, "function") || is_type(tool, "custom")) &&
            responses_flat_name(space, field_string_in(tool, "name"), name) && slice_eq(slice_of(name), flat))
            return tool;
    return NULL;
}

static const json_t *find_among(const json_t *tools, struct slice flat, const char **space)
{
    const json_t *tool, *found = find_in(tools, NULL, flat);
    size_t i;
    *space = NULL;
    json_array_foreach(tools, i, tool) {
        if (found || !is_type(tool, "namespace"))
            continue;
        *space = field_string_in(tool, "name");
        found = find_in(json_object_get(tool, "tools"), *space, flat);
    }
    if (!found)
        *space = NULL;
    return found;
}

/* List `i` of tools: the body's, which may be absent, then those that items brought. False: it is one too
 * many. */
static bool tools_at(const struct request *r, size_t i, const json_t **ret)
{
    const json_t *brought = json_object_get(r->root, RESPONSES_BROUGHT);
    *ret = i == 0 ? json_object_get(r->root, "tools") : json_array_get(brought, i - 1);
    return i == 0 || *ret;
}

const json_t *responses_find_tool(const struct request *r, struct slice flat, const char **space)
{
    const json_t *tools, *found = NULL;
    for (size_t i = 0; !found && tools_at(r, i, &tools); i++)
        found = find_among(tools, flat, space);
    return found;
}

static bool is_client_search(const json_t *tool)
{
    return is_type(tool, RESPONSES_SEARCH) && strcmp(field_string_in(tool, "execution"), "client") == 0;
}

static bool searches(const json_t *tools)
{
    size_t i;
    const json_t *tool;
    json_array_foreach(tools, i, tool)
        if (is_client_search(tool))
            return true;
    return false;
}

bool responses_is_search(const struct request *r, struct slice flat)
{
    const json_t *tools;
    bool found = false;
    for (size_t i = 0; !found && tools_at(r, i, &tools); i++)
        found = searches(tools);
    return found && slice_eq(flat, SLICE(RESPONSES_SEARCH));
}

/* ---- conversion ---- */

static struct custom_format format_of(const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format");
    if (!json_is_object(format) || is_type(format, "text"))
        return (struct custom_format){0};
    return (struct custom_format){.syntax =
                                      is_type(format, "grammar") ? field_string_in(format, "syntax") : "",
                                  .definition = json_object_get(format, "definition"),
                                  .param = "tools.format"};
}

/* A new reference; NULL: refused, or no memory. */
static json_t *schema_of(const struct responses_conversion *c, const json_t *tool, const char *name)
{
    json_t *given = json_object_get(tool, "parameters"), *schema;
    struct custom_format format = format_of(tool);
    if (is_type(tool, "custom"))
        schema = custom_tool_schema(c->request, c->memory, name, &format);
    else if (given && !json_is_null(given) && !json_is_object(given))
        return reject_value(c->why, c->at, "%s.parameters must be a JSON schema, an object.", c->at), NULL;
    else if (json_is_object(given))
        return json_incref(given);
    else
        schema = json_pack("{sss{}}", "type", "object", "properties");
    if (!schema)
        responses_no_memory(c);
    return schema;
}

/* Adds a tool to the request's tools, or to an item's. */
static bool offer(struct responses_conversion *c, const json_t *given, json_t *tool)
{
    bool deferred = c->defers && json_is_true(json_object_get(given, "defer_loading"));
    return (tool && (c->parts ? tool_set_bring(&c->set, tool, c->lead, c->parts)
                              : tool_set_declare(&c->set, tool, deferred))) ||
           responses_no_memory(c);
}

static bool add_function(struct responses_conversion *c, const json_t *tool, const char *name)
{
    json_t *schema = schema_of(c, tool, name), *description = json_object_get(tool, "description");
    if (!schema)
        return false;
    if (is_type(tool, "function") && json_is_true(json_object_get(tool, "strict")))
        tool_choice_strict(c->request, name);
    json_t *function = json_pack("{ss}", "name", name);
    bool ok = function &&
              (!json_is_string(description) || json_object_set(function, "description", description) == 0) &&
              json_object_set(function, "parameters", schema) == 0;
    json_t *converted = ok ? json_pack("{sssO}", "type", "function", "function", function) : NULL;
    ok = offer(c, tool, converted);
    json_decref(converted);
    json_decref(function);
    json_decref(schema);
    return ok;
}

/* Whether tool_choice leaves it: without allowed_tools it leaves all. */
static bool is_allowed(const struct request *r, const char *space, const json_t *tool)
{
    const json_t *choice = json_object_get(r->root, "tool_choice"), *each;
    size_t i;
    if (!is_type(choice, "allowed_tools"))
        return true;
    json_array_foreach(json_object_get(choice, "tools"), i, each) {
        bool named = strcmp(field_string_in(each, "name"), field_string_in(tool, "name")) == 0;
        bool whole = space && is_type(each, "namespace") && strcmp(field_string_in(each, "name"), space) == 0;
        if (whole || (named && !is_type(each, "namespace")))
            return true;
    }
    return false;
}

static bool convert_tool(struct responses_conversion *c, const json_t *tool, const char *space)
{
    char name[RESPONSES_NAME_BYTES];
    const char *type = field_string_in(tool, "type"), *own = field_string_in(tool, "name");
    bool search = !space && is_client_search(tool);
    if (++c->tools > REQUEST_TOOLS_MAX)
        return reject_value(c->why, "tools", "tools has more than %d functions.", REQUEST_TOOLS_MAX);
    if (type[0] == 0)
        return reject_value(c->why, c->at, "%s must be an object with a type.", c->at);
    const struct known_type *row = known_type_find(&responses_tool_types, type);
    if (!search && row->kind != TYPE_FUNCTION &&
        row->kind != TYPE_CUSTOM) { /* a namespace has none within it */
        known_type_note(c->request, &responses_tool_types, type);
        return true;
    }
    if (!search && own[0] == 0)
        return reject_value(c->why, c->at, "%s needs a name.", c->at);
    if (!responses_flat_name(space, search ? RESPONSES_SEARCH : own, name))
        return reject_value(c->why, c->at, "%s: its name is longer than %d bytes.", c->at,
                            RESPONSES_NAME_BYTES - 1);
    if (!is_allowed(c->request, space, tool))
        return true;
    if (!field_is_flag(json_object_get(tool, "strict")))
        return reject_value(c->why, c->at, "%s.strict must be true or false.", c->at);
    return add_function(c, tool, name);
}

static bool convert_namespace(struct responses_conversion *c, const json_t *space)
{
    const json_t *tool, *tools = json_object_get(space, "tools");
    size_t i;
    if (field_string_in(space, "name")[0] == 0 || !json_is_array(tools))
        return reject_value(c->why, c->at, "%s: a namespace needs a name and a list of tools.", c->at);
    json_array_foreach(tools, i, tool)
        if (!convert_tool(c, tool, field_string_in(space, "name")))
            return false;
    return true;
}

static bool convert_any(struct responses_conversion *c, const json_t *tool)
{
    return is_type(tool, "namespace") ? convert_namespace(c, tool) : convert_tool(c, tool, NULL);
}

/* Without a search of the client nothing would ever bring a deferred tool. */
bool responses_convert_tools(struct responses_conversion *c)
{
    const json_t *given = json_object_get(c->request->root, "tools"), *tool;
    size_t i;
    if (json_object_set_new(c->request->root, RESPONSES_BROUGHT, json_array()) < 0)
        return responses_no_memory(c);
    c->defers = searches(given);
    json_array_foreach(given, i, tool) {
        snprintf(c->at, sizeof(c->at), "tools[%zu]", i);
        if (!convert_any(c, tool))
            return false;
    }
    return true;
}

bool responses_bring_tools(struct responses_conversion *c, json_t *parts, json_t *tools, const char *lead)
{
    const json_t *tool;
    size_t i;
    if (!json_is_array(tools))
        return reject_value(c->why, c->at, "%s must have a list of tools.", c->at);
    json_t *brought = json_object_get(c->request->root, RESPONSES_BROUGHT);
    bool ok = json_array_append(brought, tools) == 0 || responses_no_memory(c);
    c->parts = parts;
    c->lead = lead;
    json_array_foreach(tools, i, tool) {
        ok = ok && convert_any(c, tool);
        if (!ok)
            break;
    }
    c->parts = NULL;
    return ok;
}
