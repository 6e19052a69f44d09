#include "gen/tool_insert.h"

#include "gen/gen.h"
#include "gen/gen_request.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

#include "base/wide_integer.h"
#include "chat/chat_syntax.h"
#include "chat/chat_tool_words.h"
#include "registry/registry.h"

#include <errno.h>
#include <string.h>

#define WORDS_BYTES_MAX ((size_t)64 << 20)

static bool brings_tools(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && strcmp(type, TOOL_INSERT_TYPE) == 0;
}

static void put_name(const json_t *tool, struct buf *ret)
{
    const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
    buf_put(ret, json_string_value(name), json_string_length(name));
}

static void put_names(const json_t *tools, struct buf *ret)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)tools, i, tool) {
        buf_puts(ret, i > 0 ? ", " : "");
        put_name(tool, ret);
    }
}

/* The part's text, without its lead; `w` NULL: names. */
static int write_part(const struct chat_tool_words *w, struct arena *scratch, const struct charge *charge,
                      json_t *part)
{
    const json_t *tools = json_object_get(part, "tools");
    struct buf text;
    int r = 0;
    buf_init(&text, WORDS_BYTES_MAX, charge);
    if (w)
        r = chat_tool_words_write(w, scratch, tools, &text);
    else
        put_names(tools, &text);
    if (r == 0 && (text.error ||
                   json_object_set_new(part, "text", json_stringn(text.ptr ? text.ptr : "", text.len)) < 0))
        r = -ENOMEM;
    buf_done(&text);
    return r;
}

static int write_all(const struct chat_tool_words *w, struct arena *scratch, const struct charge *charge,
                     const json_t *messages)
{
    size_t i, k;
    json_t *message, *part;
    json_array_foreach((json_t *)messages, i, message) {
        json_array_foreach(json_object_get(message, "content"), k, part) {
            int r = brings_tools(part) ? write_part(w, scratch, charge, part) : 0;
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* A part with its text becomes one of type text. */
static bool end_part(json_t *part)
{
    const char *lead = json_string_value(json_object_get(part, "lead"));
    const char *text = json_string_value(json_object_get(part, "text"));
    bool ok = !lead || json_object_set_new(part, "text", json_sprintf("%s%s", lead, text)) == 0;
    json_object_del(part, "lead");
    json_object_del(part, "tools");
    return ok && json_object_set_new(part, "type", json_string("text")) == 0;
}

static bool end_all(const json_t *messages)
{
    size_t i, k;
    json_t *message, *part;
    json_array_foreach((json_t *)messages, i, message) {
        json_array_foreach(json_object_get(message, "content"), k, part) {
            json_object_del(part, TOOL_INSERT_LATER);
            if (brings_tools(part) && !end_part(part))
                return false;
        }
    }
    return true;
}

/* Parts of changes that the client's messages do not have. */
static void drop_later(const json_t *messages)
{
    size_t i;
    json_t *message;
    json_array_foreach((json_t *)messages, i, message) {
        json_t *content = json_object_get(message, "content");
        for (size_t k = json_array_size(content); k-- > 0;)
            if (json_object_get(json_array_get(content, k), TOOL_INSERT_LATER))
                json_array_remove(content, k);
    }
}

bool tool_insert(struct gen *g, struct arena *scratch, const struct chat_template_input *in,
                 const struct chat_template_limits *limits)
{
    struct gen_request *r = g->request;
    struct charge charge = request_memory_charge(&g->memory);
    struct chat_tool_words w = {.template = g->model->template,
                                .input = *in,
                                .limits = *limits,
                                .charge = &charge,
                                .generic = g->model->syntax->generic};
    bool whole = !r->head_tools || r->drops_turns;
    struct wide_integers *before = wide_integers_enter(&g->memory.wide);
    int n = whole ? -ENOENT : write_all(&w, scratch, &charge, r->messages);
    wide_integers_enter(before);
    if (n == -ENOENT) {
        r->head_tools = r->tools;
        drop_later(r->messages);
        n = write_all(NULL, scratch, &charge, r->messages);
    }
    if (n == -ECANCELED || n == -ETIME)
        return reject_unwanted(&g->reject, n);
    return (n == 0 && end_all(r->messages)) || gen_refuse_memory(g);
}
