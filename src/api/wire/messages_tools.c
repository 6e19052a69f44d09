/* messages_tools.c - Anthropic's tools, as functions that templates expect.
 *
 * Tools with a type of Anthropic's have no schema in the request. A tool that the client runs gets here the
 * schema that the client expects; known_types.c says which are refused. A toolset is one entry that stands
 * for a tool of each member. */
#include "api/request/field.h"
#include "api/request/known_types.h"
#include "api/request/tool_choice.h"
#include "api/wire/messages.h"

#include "base/check.h"
#include "gen/reject.h"

#include <stdio.h>

struct member {
    const char *name, *type;
    const char *words; /* the accepted strings, each followed by a space; NULL: any */
    bool required;
};

#define MEMBERS_MAX 12

struct own_tool {
    const char *prefix; /* begin of the type, before a date; the name of a member of a toolset */
    const char *description;
    struct member members[MEMBERS_MAX]; /* up to one without a name */
};

static const struct own_tool own_tools[] = {
    {"bash_",
     "Runs a command in a persistent bash session and returns its output.",
     {{"command", "string", NULL, true}, {"restart", "boolean"}}},
    {"text_editor_",
     "Views, creates and edits text files.",
     {{"command", "string", "view create str_replace insert undo_edit ", true},
      {"path", "string", NULL, true},
      {"file_text", "string"},
      {"old_str", "string"},
      {"new_str", "string"},
      {"insert_line", "integer"},
      {"insert_text", "string"},
      {"view_range", "array"}}},
    {"computer_",
     "Uses the mouse, keyboard and screen of a computer, and takes screenshots.",
     {{"action", "string",
       "key type mouse_move left_click left_click_drag right_click middle_click double_click triple_click "
       "left_mouse_down left_mouse_up scroll hold_key wait screenshot cursor_position zoom ",
       true},
      {"coordinate", "array"},
      {"start_coordinate", "array"},
      {"region", "array"},
      {"text", "string"},
      {"scroll_direction", "string", "up down left right "},
      {"scroll_amount", "integer"},
      {"duration", "number"}}},
    {"memory_",
     "Reads and writes files below /memories, which outlast the conversation.",
     {{"command", "string", "view create str_replace insert delete rename ", true},
      {"path", "string"},
      {"file_text", "string"},
      {"old_str", "string"},
      {"new_str", "string"},
      {"insert_line", "integer"},
      {"insert_text", "string"},
      {"view_range", "array"},
      {"old_path", "string"},
      {"new_path", "string"}}},
};

/* The tools of computer_toolset_20260801, each under its name. */
#define TOOLSET "computer"
#define POINT                                                                                                \
    {                                                                                                        \
        "coordinate", "array"                                                                                \
    }
#define HELD_KEYS                                                                                            \
    {                                                                                                        \
        "text", "string"                                                                                     \
    }
static const struct own_tool computer_members[] = {
    {"key",
     "Presses a key or a combination, such as ctrl+s.",
     {{"text", "string", NULL, true}, {"repeat", "integer"}}},
    {"hold_key",
     "Holds a key or a combination for a time in seconds.",
     {{"text", "string", NULL, true}, {"duration", "integer", NULL, true}}},
    {"type", "Types a text.", {{"text", "string", NULL, true}}},
    {"cursor_position", "Returns the position of the cursor.", {{0}}},
    {"mouse_move", "Moves the cursor to [x, y] without a click.", {{"coordinate", "array", NULL, true}}},
    {"left_mouse_down", "Presses the left button and holds it.", {{0}}},
    {"left_mouse_up", "Releases the left button.", {{0}}},
    {"left_click",
     "Clicks at [x, y], or at the cursor; text is a combination of keys to hold.",
     {POINT, HELD_KEYS}},
    {"left_click_drag",
     "Drags from start_coordinate to coordinate, each [x, y]; text is a combination of keys to hold.",
     {{"start_coordinate", "array", NULL, true}, {"coordinate", "array", NULL, true}, HELD_KEYS}},
    {"right_click",
     "Clicks the right button at [x, y], or at the cursor; text is a combination of keys to hold.",
     {POINT, HELD_KEYS}},
    {"middle_click",
     "Clicks the middle button at [x, y], or at the cursor; text is a combination of keys to hold.",
     {POINT, HELD_KEYS}},
    {"double_click",
     "Clicks twice at [x, y], or at the cursor; text is a combination of keys to hold.",
     {POINT, HELD_KEYS}},
    {"triple_click",
     "Clicks three times at [x, y], or at the cursor; text is a combination of keys to hold.",
     {POINT, HELD_KEYS}},
    {"scroll",
     "Scrolls at [x, y], or at the cursor; text is a combination of keys to hold.",
     {{"scroll_direction", "string", "up down left right ", true},
      {"scroll_amount", "integer", NULL, true},
      POINT,
      HELD_KEYS}},
    {"wait", "Waits for a time in seconds.", {{"duration", "integer", NULL, true}}},
    {"screenshot", "Takes a screenshot.", {{0}}},
    {"zoom", "Takes a screenshot of the region [x0, y0, x1, y1].", {{"region", "array", NULL, true}}},
};

/* The JSON schema of a member; arrays are of integers. NULL: no memory. */
static json_t *member_schema(const struct member *m)
{
    json_t *schema = json_pack("{ss}", "type", m->type);
    bool ok = schema;
    if (ok && strcmp(m->type, "array") == 0)
        ok = json_object_set_new(schema, "items", json_pack("{ss}", "type", "integer")) == 0;
    json_t *words = m->words ? json_array() : NULL;
    for (const char *at = m->words, *end; words && (end = strchr(at, ' ')); at = end + 1)
        ok = json_array_append_new(words, json_stringn(at, (size_t)(end - at))) == 0 && ok;
    if (m->words)
        ok = ok && json_object_set(schema, "enum", words) == 0;
    json_decref(words);
    if (ok)
        return schema;
    json_decref(schema);
    return NULL;
}

static json_t *own_schema(const struct own_tool *own)
{
    json_t *properties = json_object(), *required = json_array();
    bool ok = properties && required;
    for (const struct member *m = own->members; ok && m->name; m++)
        ok = json_object_set_new(properties, m->name, member_schema(m)) == 0 &&
             (!m->required || json_array_append_new(required, json_string(m->name)) == 0);
    json_t *schema =
        ok ? json_pack("{sssOsO}", "type", "object", "properties", properties, "required", required) : NULL;
    json_decref(properties);
    json_decref(required);
    return schema;
}

static const struct own_tool *find_own(const char *type)
{
    size_t i = 0;
    while (i + 1 < COUNT_OF(own_tools) && !slice_starts(slice_of(type), slice_of(own_tools[i].prefix)))
        i++;
    ASSERT(slice_starts(slice_of(type), slice_of(own_tools[i].prefix))); /* known_types.c has the same */
    return &own_tools[i];
}

/* New references; NULL: refused, or no memory. */
static json_t *schema_of(const struct messages_conversion *c, const json_t *tool, const struct own_tool *own)
{
    json_t *given = json_object_get(tool, "input_schema"), *schema;
    if (own)
        schema = own_schema(own);
    else if (given && !json_is_null(given) && !json_is_object(given))
        return reject_value(c->why, c->at, "%s.input_schema must be a JSON schema, an object.", c->at), NULL;
    else if (json_is_object(given))
        return json_incref(given);
    else
        schema = json_pack("{sss{}}", "type", "object", "properties");
    if (!schema)
        messages_no_memory(c);
    return schema;
}

static json_t *description_of(const json_t *tool, const struct own_tool *own)
{
    json_t *given = json_object_get(tool, "description");
    if (json_is_string(given))
        return json_incref(given);
    return own ? json_string(own->description) : NULL;
}

static bool add_tool(struct messages_conversion *c, json_t *list, const json_t *tool, json_t *name,
                     const struct own_tool *own)
{
    json_t *schema = NULL;
    if (++c->tools > REQUEST_TOOLS_MAX)
        return reject_value(c->why, "tools", "tools has more than %d tools.", REQUEST_TOOLS_MAX);
    if (!(schema = schema_of(c, tool, own)))
        return false;
    json_t *description = description_of(tool, own);
    json_t *function = json_pack("{sO}", "name", name);
    bool ok = function && (!description || json_object_set(function, "description", description) == 0) &&
              json_object_set(function, "parameters", schema) == 0 &&
              json_array_append_new(list, json_pack("{sssO}", "type", "function", "function", function)) == 0;
    json_decref(function);
    json_decref(description);
    json_decref(schema);
    return ok || messages_no_memory(c);
}

/* ---- toolsets ---- */

static bool add_member(struct messages_conversion *c, json_t *list, const struct own_tool *member)
{
    struct request *r = c->request;
    json_t *name = json_string(member->prefix);
    if (!r->toolsets)
        r->toolsets = json_object();
    bool ok = (r->toolsets && json_object_set_new(r->toolsets, member->prefix, json_string(TOOLSET)) == 0) ||
              messages_no_memory(c);
    ok = ok && add_tool(c, list, NULL, name, member);
    json_decref(name);
    return ok;
}

static bool is_enabled(const json_t *config)
{
    const json_t *enabled = json_object_get(config, "enabled");
    return !json_is_false(enabled);
}

static bool convert_toolset(struct messages_conversion *c, json_t *list, const json_t *tool)
{
    const json_t *configs = json_object_get(tool, "configs");
    if (configs && !json_is_null(configs) && !json_is_object(configs))
        return reject_value(c->why, c->at, "%s.configs must be an object.", c->at);
    if (c->request->toolsets)
        return reject_value(c->why, c->at, "%s: tools has a second toolset of this kind.", c->at);
    messages_mark(c->request, tool, 0, 0);
    for (size_t i = 0; i < COUNT_OF(computer_members); i++)
        if (is_enabled(json_object_get(configs, computer_members[i].prefix)) &&
            !add_member(c, list, &computer_members[i]))
            return false;
    return true;
}

const char *messages_toolset_of(const struct request *r, struct slice name)
{
    return json_string_value(json_object_getn(r->toolsets, name.ptr, name.len));
}

/* ---- tools ---- */

static bool convert_function(struct messages_conversion *c, json_t *list, const json_t *tool,
                             const struct own_tool *own)
{
    json_t *name = json_object_get(tool, "name");
    if (json_string_length(name) == 0)
        return reject_value(c->why, c->at, "%s needs a name.", c->at);
    if (!field_is_flag(json_object_get(tool, "strict")))
        return reject_value(c->why, c->at, "%s.strict must be true or false.", c->at);
    if (json_is_true(json_object_get(tool, "strict")))
        tool_choice_strict(c->request, json_string_value(name));
    messages_mark(c->request, tool, 0, 0);
    return add_tool(c, list, tool, name, own);
}

/* Appends one definition to `list`: several tools of a toolset. */
static bool convert_tool(struct messages_conversion *c, json_t *list, const json_t *tool)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (!type)
        return convert_function(c, list, tool, NULL);
    const struct known_type *row = known_type_find(&messages_tool_types, type);
    if (row->fate == TYPE_REFUSED)
        return known_type_refuse(row, c->at, type, c->why);
    if (row->kind == TYPE_TOOLSET)
        return convert_toolset(c, list, tool);
    if (row->kind == TYPE_CLIENT_TOOL)
        return convert_function(c, list, tool, find_own(type));
    if (row->kind == TYPE_FUNCTION || json_is_object(json_object_get(tool, "input_schema")))
        return convert_function(c, list, tool, NULL);
    known_type_note(c->request, &messages_tool_types, type);
    return true;
}

/* ---- tools of the request ---- */

/* True if the tool is deferred; each member of a toolset says so. */
static bool is_deferred(const json_t *tool)
{
    const json_t *configs = json_object_get(tool, "configs"), *config;
    const char *name;
    json_object_foreach((json_t *)configs, name, config)
        if (json_is_true(json_object_get(config, "defer_loading")))
            return true;
    return json_is_true(json_object_get(tool, "defer_loading"));
}

/* Anthropic's servers search tools for the model; here none would ever be found. */
static bool searches_on_server(const json_t *tools)
{
    size_t i;
    const json_t *tool;
    json_array_foreach(tools, i, tool)
        if (slice_starts(slice_of(field_string_in(tool, "type")), SLICE("tool_search_tool_")))
            return true;
    return false;
}

static bool declare(struct messages_conversion *c, const json_t *tool)
{
    json_t *list = json_array(), *each;
    bool deferred = c->defers && is_deferred(tool);
    bool ok = list ? convert_tool(c, list, tool) : messages_no_memory(c);
    size_t i;
    json_array_foreach(list, i, each)
        ok = ok && (tool_set_declare(&c->set, each, deferred) || messages_no_memory(c));
    json_decref(list);
    return ok;
}

bool messages_convert_tools(struct messages_conversion *c)
{
    json_t *given = json_incref(json_object_get(c->request->root, "tools")), *tool;
    bool ok = true;
    size_t i;
    c->defers = !searches_on_server(given);
    json_array_foreach(given, i, tool) {
        snprintf(c->at, sizeof(c->at), "tools[%zu]", i);
        ok = ok && declare(c, tool);
        if (!ok)
            break;
    }
    json_decref(given);
    json_object_del(c->request->root, "tools");
    return ok;
}

/* ---- tools of messages ---- */

/* Before definitions that the system adds. */
#define ADDED "More tools are available from here on:\n"

static json_t *find_named(const struct messages_conversion *c, const json_t *name)
{
    json_t *tool = json_is_string(name) ? tool_set_find(&c->set, json_string_value(name)) : NULL;
    if (!json_is_string(name))
        reject_value(c->why, c->at, "%s must name a tool.", c->at);
    else if (!tool)
        reject_value(c->why, c->at, "%s refers to the tool \"%.64s\", which is not in tools.", c->at,
                     json_string_value(name));
    return tool;
}

bool messages_refer_to_tool(struct messages_conversion *c, json_t *parts, const json_t *block)
{
    json_t *name = json_object_get(block, "tool_name"), *tool = find_named(c, name);
    if (!tool)
        return false;
    if (json_object_get(c->set.force, json_string_value(name)))
        return tool_set_name(parts, json_string_value(name)) || messages_no_memory(c);
    return tool_set_bring(&c->set, tool, NULL, parts) || messages_no_memory(c);
}

static bool define(struct messages_conversion *c, json_t *parts, const json_t *definition)
{
    json_t *list = json_array(), *tool;
    bool ok = list ? convert_tool(c, list, definition) : messages_no_memory(c);
    size_t i;
    json_array_foreach(list, i, tool)
        ok = ok && (tool_set_bring(&c->set, tool, ADDED, parts) || messages_no_memory(c));
    json_decref(list);
    return ok;
}

bool messages_change_tools(struct messages_conversion *c, json_t *parts, const json_t *block, bool adds)
{
    const json_t *change = json_object_get(block, "tool");
    const char *type = field_string_in(change, "type");
    if (adds && strcmp(type, "tool_definition") == 0)
        return define(c, parts, json_object_get(change, "definition"));
    if (strcmp(type, "tool_reference") != 0)
        return reject_unsupported(c->why, c->at,
                                  "%s.tool of type \"%.64s\" is not supported: a tool is given as a "
                                  "tool_reference or, where it is added, as a tool_definition.",
                                  c->at, type);
    json_t *tool = find_named(c, json_object_get(change, "name"));
    if (!tool)
        return false;
    return (adds ? tool_set_bring(&c->set, tool, ADDED, parts)
                 : tool_set_take(&c->set, field_string_in(change, "name"), parts)) ||
           messages_no_memory(c);
}
