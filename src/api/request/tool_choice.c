#include "api/request/tool_choice.h"

#include "api/request/field.h"
#include "api/request/request.h"

#include "gen/gen_request.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

static void add(struct request *r, json_t **set, const char *name, bool value)
{
    if (!*set)
        *set = json_object();
    if (!*set || json_object_set_new(*set, name, json_boolean(value)) < 0)
        r->gen.calls.failed = true;
}

void tool_choice_allow(struct request *r, const char *name)
{
    add(r, &r->gen.calls.names, name, true);
}

void tool_choice_require(struct request *r, const char *name)
{
    r->gen.calls.required = r->gen.calls.single = true;
    tool_choice_allow(r, name);
}

void tool_choice_strict(struct request *r, const char *name)
{
    add(r, &r->gen.calls.strict, name, true);
}

void tool_choice_hold(struct request *r, const char *name)
{
    if (!json_object_get(r->gen.calls.strict, name))
        add(r, &r->gen.calls.strict, name, false);
}

void tool_choice_lark(struct request *r, const char *name, json_t *grammar)
{
    if (!r->gen.calls.larks)
        r->gen.calls.larks = json_object();
    if (!r->gen.calls.larks || json_object_set(r->gen.calls.larks, name, grammar) < 0)
        r->gen.calls.failed = true;
    tool_choice_strict(r, name);
}

static bool is_offered(const struct request *r, const char *name)
{
    size_t i;
    const json_t *tool;
    json_array_foreach(r->gen.tools, i, tool)
        if (strcmp(field_string_in(json_object_get(tool, "function"), "name"), name) == 0)
            return true;
    return false;
}

bool tool_choice_check(struct request *r, struct request_memory *memory, struct reject *why)
{
    const char *name;
    json_t *value;
    if (r->gen.calls.failed)
        return request_memory_reject(memory, why);
    if (r->tools_off)
        return true;
    if (r->gen.calls.required && !r->gen.tools)
        return reject_value(why, "tool_choice",
                            "tool_choice requires a call, but the request offers no tools.");
    json_object_foreach(r->gen.calls.names, name, value)
        if (!is_offered(r, name))
            return reject_value(why, "tool_choice",
                                "tool_choice names the tool \"%.64s\", which is not in tools.", name);
    return true;
}

void tool_choice_drop(struct request *r)
{
    json_decref(r->gen.calls.names);
    json_decref(r->gen.calls.strict);
    json_decref(r->gen.calls.larks);
    r->gen.calls = (struct gen_calls){0};
}
