/* responses_tools.c - the tools of Responses, as functions that templates expect.
 *
 * A custom tool becomes a function with one string, `input`, which follows the tool's regular expression or
 * Lark grammar.
 * The functions of a namespace get names with the namespace before them. Tools that OpenAI's servers run are
 * ignored and listed in x-ignored-fields: agents offer them whenever their configuration has them. */
#include "api/field.h"
#include "api/responses.h"
#include "api/tool_choice.h"

#include "base/check.h"
#include "base/clock.h"
#include "grammar/choice.h"
#include "grammar/lark.h"

#include <stdio.h>

static const char *string_of(const json_t *v, const char *name)
{
    const char *s = json_string_value(json_object_get(v, name));
    return s ? s : "";
}

static bool is_type(const json_t *v, const char *type)
{
    return strcmp(string_of(v, "type"), type) == 0;
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
            responses_flat_name(space, string_of(tool, "name"), name) && slice_eq(slice_of(name), flat))
            return tool;
    return NULL;
}

const json_t *responses_find_tool(const struct request *r, struct slice flat, const char **space)
{
    const json_t *tools = json_object_get(r->root, "tools"), *tool, *found = find_in(tools, NULL, flat);
    size_t i;
    *space = NULL;
    json_array_foreach(tools, i, tool) {
        if (found || !is_type(tool, "namespace"))
            continue;
        *space = string_of(tool, "name");
        found = find_in(json_object_get(tool, "tools"), *space, flat);
    }
    if (!found)
        *space = NULL;
    return found;
}

/* ---- conversion ---- */

#define PATTERN_BYTES_MAX 4096

static bool is_pattern(const struct responses_place *p, const char *pattern)
{
    struct charge charge = request_memory_charge(p->memory);
    struct grammar_builder *b = NULL;
    struct err e = {{0}};
    sym_id sym;
    bool ok = grammar_builder_create(NULL, &charge, &b) == 0 &&
              choice_compile_regex(b, slice_of(pattern), &sym, &e) == 0;
    grammar_builder_free(b);
    return ok;
}

/* The input of a custom tool as a pattern of JSON Schema, a new reference; NULL: it has none, or one that is
 * not supported. */
static json_t *pattern_of(const struct responses_place *p, const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format");
    const char *text = string_of(format, "definition");
    if (!is_type(tool, "custom") || !is_type(format, "grammar") ||
        strcmp(string_of(format, "syntax"), "regex") != 0 || !text[0] || strlen(text) > PATTERN_BYTES_MAX)
        return NULL;
    json_t *pattern = json_sprintf("^(?:%s)$", text);
    if (pattern && is_pattern(p, json_string_value(pattern)))
        return pattern;
    json_decref(pattern);
    return NULL;
}

#define LARK_BYTES_MAX ((size_t)16 << 10)
#define LARK_CPU_NS    (50 * NS_PER_MS)

static bool is_lark(const struct responses_place *p, struct slice text)
{
    struct charge charge = request_memory_charge(p->memory);
    const struct wanted wanted = {.cpu_deadline_ns = clock_thread_ns() + LARK_CPU_NS};
    struct grammar_builder *b = NULL;
    struct grammar *g = NULL;
    struct err e = {{0}};
    sym_id sym;
    bool ok = grammar_builder_create(NULL, &charge, &b) == 0;
    if (ok)
        grammar_builder_bound(b, &wanted, &charge);
    ok = ok && lark_compile(b, text, &charge, &sym, &e) == 0 && grammar_finish(b, sym, &g, &e) == 0;
    grammar_free(g);
    grammar_builder_free(b);
    return ok;
}

/* The Lark grammar of a custom tool; NULL: it has none, or one that is not supported. */
static json_t *lark_of(const struct responses_place *p, const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format");
    json_t *text = json_object_get(format, "definition");
    size_t len = json_string_length(text);
    if (!is_type(tool, "custom") || !is_type(format, "grammar") ||
        strcmp(string_of(format, "syntax"), "lark") != 0 || len == 0 || len > LARK_BYTES_MAX)
        return NULL;
    return is_lark(p, (struct slice){json_string_value(text), len}) ? text : NULL;
}

/* A model that is to write a text of the grammar reads it in the parameter's description. */
static bool describe_lark(json_t *schema, const json_t *lark)
{
    json_t *input = json_object_get(json_object_get(schema, "properties"), "input");
    json_t *text = json_sprintf("A text of this Lark grammar:\n%s", json_string_value(lark));
    return json_object_set_new(input, "description", text) == 0;
}

static json_t *custom_schema(const struct responses_place *p, const json_t *tool)
{
    json_t *pattern = pattern_of(p, tool);
    json_t *schema = json_pack("{sss{s{ss}}s[s]}", "type", "object", "properties", "input", "type", "string",
                               "required", "input");
    json_t *input = json_object_get(json_object_get(schema, "properties"), "input");
    if (pattern && input && json_object_set(input, "pattern", pattern) < 0) {
        json_decref(schema);
        schema = NULL;
    }
    json_decref(pattern);
    return schema;
}

/* A new reference; NULL: refused, or no memory. */
static json_t *schema_of(const struct responses_place *p, const json_t *tool)
{
    json_t *given = json_object_get(tool, "parameters"), *schema;
    if (is_type(tool, "custom"))
        schema = custom_schema(p, tool);
    else if (given && !json_is_null(given) && !json_is_object(given))
        return reject_value(p->why, p->at, "%s.parameters must be a JSON schema, an object.", p->at), NULL;
    else if (json_is_object(given))
        return json_incref(given);
    else
        schema = json_pack("{sss{}}", "type", "object", "properties");
    if (!schema)
        responses_no_memory(p);
    return schema;
}

/* Whether arguments are held to the schema: of a strict function, and of a custom tool with a pattern. A
 * format that is not held is listed. */
static bool is_strict(const struct responses_place *p, const json_t *tool, const json_t *schema)
{
    const json_t *format = json_object_get(tool, "format");
    const json_t *input = json_object_get(json_object_get(schema, "properties"), "input");
    bool custom = is_type(tool, "custom"), held = custom && json_object_get(input, "pattern");
    if (json_is_object(format) && !is_type(format, "text") && !held)
        field_note_ignored(p->request, "tools.format");
    return custom ? held : json_is_true(json_object_get(tool, "strict"));
}

static bool add_function(const struct responses_place *p, json_t *list, const json_t *tool, const char *name)
{
    json_t *schema = schema_of(p, tool), *description = json_object_get(tool, "description");
    if (!schema)
        return false;
    json_t *lark = lark_of(p, tool);
    if (lark && !describe_lark(schema, lark)) {
        json_decref(schema);
        return responses_no_memory(p);
    }
    if (lark)
        tool_choice_lark(p->request, name, lark);
    else if (is_strict(p, tool, schema))
        tool_choice_strict(p->request, name);
    json_t *function = json_pack("{ss}", "name", name);
    bool ok = function &&
              (!json_is_string(description) || json_object_set(function, "description", description) == 0) &&
              json_object_set(function, "parameters", schema) == 0 &&
              json_array_append_new(list, json_pack("{sssO}", "type", "function", "function", function)) == 0;
    json_decref(function);
    json_decref(schema);
    return ok || responses_no_memory(p);
}

/* Whether tool_choice leaves it: without allowed_tools it leaves all. */
static bool is_allowed(const struct request *r, const char *space, const json_t *tool)
{
    const json_t *choice = json_object_get(r->root, "tool_choice"), *each;
    size_t i;
    if (!is_type(choice, "allowed_tools"))
        return true;
    json_array_foreach(json_object_get(choice, "tools"), i, each) {
        bool named = strcmp(string_of(each, "name"), string_of(tool, "name")) == 0;
        bool whole = space && is_type(each, "namespace") && strcmp(string_of(each, "name"), space) == 0;
        if (whole || (named && !is_type(each, "namespace")))
            return true;
    }
    return false;
}

static bool convert_tool(const struct responses_place *p, json_t *list, const json_t *tool, const char *space)
{
    char name[RESPONSES_NAME_BYTES], note[RESPONSES_NAME_BYTES];
    if (string_of(tool, "type")[0] == 0)
        return reject_value(p->why, p->at, "%s must be an object with a type.", p->at);
    if (!is_type(tool, "function") && !is_type(tool, "custom")) {
        snprintf(note, sizeof(note), "tools.%.64s", string_of(tool, "type"));
        field_note_ignored(p->request, note);
        return true;
    }
    if (string_of(tool, "name")[0] == 0)
        return reject_value(p->why, p->at, "%s needs a name.", p->at);
    if (!responses_flat_name(space, string_of(tool, "name"), name))
        return reject_value(p->why, p->at, "%s: its name is longer than %d bytes.", p->at,
                            RESPONSES_NAME_BYTES - 1);
    if (!is_allowed(p->request, space, tool))
        return true;
    if (!field_is_flag(json_object_get(tool, "strict")))
        return reject_value(p->why, p->at, "%s.strict must be true or false.", p->at);
    if (json_array_size(list) == REQUEST_TOOLS_MAX)
        return reject_value(p->why, "tools", "tools has more than %d functions.", REQUEST_TOOLS_MAX);
    return add_function(p, list, tool, name);
}

static bool convert_namespace(struct responses_place *p, json_t *list, const json_t *space)
{
    const json_t *tool, *tools = json_object_get(space, "tools");
    size_t i;
    if (string_of(space, "name")[0] == 0 || !json_is_array(tools))
        return reject_value(p->why, p->at, "%s: a namespace needs a name and a list of tools.", p->at);
    json_array_foreach(tools, i, tool)
        if (!convert_tool(p, list, tool, string_of(space, "name")))
            return false;
    return true;
}

bool responses_convert_tools(struct responses_place *p)
{
    struct request *r = p->request;
    const json_t *given = json_object_get(r->root, "tools"), *tool;
    json_t *list = json_array();
    size_t i;
    bool ok = list || responses_no_memory(p);
    json_array_foreach(given, i, tool) {
        snprintf(p->at, sizeof(p->at), "tools[%zu]", i);
        ok = ok && (is_type(tool, "namespace") ? convert_namespace(p, list, tool)
                                               : convert_tool(p, list, tool, NULL));
        if (!ok)
            break;
    }
    ok = ok && (json_object_set(r->root, RESPONSES_TOOLS, list) == 0 || responses_no_memory(p));
    if (ok && !r->tools_off && json_array_size(list) > 0)
        r->gen.tools = json_object_get(r->root, RESPONSES_TOOLS);
    json_decref(list);
    return ok;
}
