#include "api/request/tool_set.h"

#include "api/request/field.h"
#include "api/request/request.h"

#include "gen/tool_insert.h"

#include <stdio.h>
#include <string.h>

static const char *name_of(const json_t *tool)
{
    return field_string_in(json_object_get(tool, "function"), "name");
}

bool tool_set_init(struct tool_set *s)
{
    *s = (struct tool_set){json_array(), json_object(), json_object(), json_object(), false};
    return s->head && s->declared && s->force && s->written;
}

void tool_set_done(struct tool_set *s)
{
    json_decref(s->head);
    json_decref(s->declared);
    json_decref(s->force);
    json_decref(s->written);
    *s = (struct tool_set){0};
}

/* At the head, in force and in the prompt. */
static bool place_at_head(struct tool_set *s, json_t *tool)
{
    return json_object_set(s->force, name_of(tool), tool) == 0 &&
           json_object_set(s->written, name_of(tool), tool) == 0;
}

bool tool_set_declare(struct tool_set *s, json_t *tool, bool deferred)
{
    if (!json_object_get(s->declared, name_of(tool)) && json_object_set(s->declared, name_of(tool), tool) < 0)
        return false;
    s->changed |= deferred;
    return deferred || (json_array_append(s->head, tool) == 0 && place_at_head(s, tool));
}

json_t *tool_set_find(const struct tool_set *s, const char *name)
{
    json_t *brought = json_object_get(s->written, name);
    return brought ? brought : json_object_get(s->declared, name);
}

/* Begins a line before a further part: texts of the system are joined without a separator. */
static const char *line_break(const json_t *parts)
{
    return json_array_size(parts) > 0 ? "\n" : "";
}

static bool add_line(json_t *parts, json_t *line)
{
    json_t *text = line ? json_sprintf("%s%s", line_break(parts), json_string_value(line)) : NULL;
    bool ok = text && json_array_append_new(parts, field_text_part(text)) == 0;
    json_decref(text);
    json_decref(line);
    return ok;
}

static bool add_sentence(json_t *parts, const char *name, const char *says)
{
    return add_line(parts, json_sprintf("The tool %s %s.", name, says));
}

/* The definition joins a part before it with the same lead, else it begins a line. */
static bool add_definition(json_t *parts, json_t *tool, const char *lead)
{
    json_t *last = json_array_get(parts, json_array_size(parts) - 1), *tools = json_object_get(last, "tools");
    const char *own = json_string_value(json_object_get(last, "lead"));
    const char *before = line_break(parts);
    own = own && *own == '\n' ? own + 1 : own;
    if (tools && strcmp(own ? own : "", lead ? lead : "") == 0)
        return json_array_append(tools, tool) == 0;
    json_t *part = json_pack("{sss[O]}", "type", TOOL_INSERT_TYPE, "tools", tool);
    if (part && (lead || *before) &&
        json_object_set_new(part, "lead", json_sprintf("%s%s", before, lead ? lead : "")) < 0) {
        json_decref(part);
        return false;
    }
    return json_array_append_new(parts, part) == 0;
}

bool tool_set_name(json_t *parts, const char *name)
{
    return add_line(parts, json_string(name));
}

bool tool_set_bring(struct tool_set *s, json_t *tool, const char *lead, json_t *parts)
{
    const char *name = name_of(tool);
    bool known = json_equal(json_object_get(s->written, name), tool) == 1;
    s->changed = true;
    return (known ? add_sentence(parts, name, "is available") : add_definition(parts, tool, lead)) &&
           place_at_head(s, tool);
}

bool tool_set_take(struct tool_set *s, const char *name, json_t *parts)
{
    s->changed = true;
    json_object_del(s->force, name);
    return add_sentence(parts, name, "is no longer available");
}

bool tool_set_take_all(struct tool_set *s, json_t *parts)
{
    s->changed = true;
    json_object_clear(s->force);
    return add_line(parts, json_string("No tool is available any longer."));
}

bool tool_set_restart(struct tool_set *s)
{
    size_t i;
    json_t *tool;
    bool ok = json_object_clear(s->force) == 0 && json_object_clear(s->written) == 0;
    json_array_foreach(s->head, i, tool)
        ok = ok && place_at_head(s, tool);
    return ok;
}

bool tool_set_carry(struct tool_set *s, const char *lead, json_t *parts)
{
    json_t *force = json_copy(s->force), *tool;
    const char *name;
    size_t i;
    bool ok = force && tool_set_restart(s);
    json_array_foreach(s->head, i, tool)
        ok = ok && (json_object_get(force, name_of(tool)) || tool_set_take(s, name_of(tool), parts));
    json_object_foreach(force, name, tool) {
        bool has = json_equal(json_object_get(s->force, name), tool) == 1;
        ok = ok && (has || tool_set_bring(s, tool, lead, parts));
    }
    json_decref(force);
    return ok;
}

static json_t *list_of(json_t *set)
{
    json_t *list = json_array(), *tool;
    const char *name;
    json_object_foreach(set, name, tool) {
        if (json_array_append(list, tool) == 0)
            continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

bool tool_set_finish(struct tool_set *s, struct request *r)
{
    json_t *all = s->changed ? list_of(s->force) : json_incref(s->head);
    if (json_object_set_new(r->root, TOOL_SET_TOOLS, all) < 0 ||
        json_object_set(r->root, TOOL_SET_HEAD, s->head) < 0)
        return false;
    r->gen.inserts_tools = s->changed;
    if (r->tools_off)
        return true;
    r->gen.tools = json_array_size(all) > 0 ? all : NULL;
    r->gen.head_tools = json_array_size(s->head) > 0 ? s->head : NULL;
    return true;
}
