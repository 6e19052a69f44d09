/* chat_generic.c - the words of Qwen2.5's template, which many models have seen in training.
 *
 * A list of its own for each rendering, because a conversation that is shortened is rendered again, with
 * other first messages. */
#include "chat/chat_generic.h"

#include "chat/chat_history.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/json/json_write.h"
#include "template/chat_cuts.h"

#include <errno.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20)

static const char before_tools[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
static const char behind_tools[] =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
#define RESULT_BEGIN "<tool_response>\n"
#define RESULT_END   "\n</tool_response>"

static json_t *message_of(const char *role, json_t *content)
{
    return content ? json_pack("{s:s, s:o}", "role", role, "content", content) : NULL;
}

static json_t *text_of_tools(const json_t *tools)
{
    struct buf text;
    size_t i;
    json_t *tool;
    buf_init(&text, TEXT_BYTES_MAX, NULL);
    buf_puts(&text, before_tools);
    json_array_foreach((json_t *)tools, i, tool) {
        buf_putc(&text, '\n');
        json_write_spaced(&text, tool);
    }
    buf_puts(&text, behind_tools);
    json_t *ret = text.error ? NULL : json_stringn(text.ptr, text.len);
    buf_done(&text);
    return ret;
}

/* Appends the tools to the text of the system. */
static int add_tools(json_t *list, const json_t *tools, struct chat_mark *marks, uint32_t count)
{
    ASSERT(json_array_size(tools) > 0);
    json_t *first = json_array_get(list, 0), *text = text_of_tools(tools);
    bool has = chat_history_has_role(first, "system");
    json_t *content = text && has ? chat_history_joined(json_object_get(first, "content"), text) : text;
    if (has)
        json_decref(text);
    json_t *message = message_of("system", content);
    int r = !message ? -1
            : has    ? json_array_set_new(list, 0, message)
                     : json_array_insert_new(list, 0, message);
    for (uint32_t i = 0; i < count; i++)
        marks[i].message += !has;
    return r < 0 ? -ENOMEM : 0;
}

/* `message` becomes a part of the one before it in the list, which is of the user. */
static int join(json_t *list, json_t *content, struct chat_mark *marks, uint32_t count)
{
    ASSERT(json_array_size(list) > 0);
    size_t last = json_array_size(list) - 1;
    json_t *all = chat_history_joined(json_object_get(json_array_get(list, last), "content"), content);
    json_t *message = message_of("user", all);
    for (uint32_t i = 0; i < count; i++) {
        if (marks[i].message > last)
            marks[i] = (struct chat_mark){marks[i].message - 1,
                                          marks[i].message == last + 1 ? SIZE_MAX : marks[i].bytes};
    }
    return message && json_array_set_new(list, last, message) == 0 ? 0 : -ENOMEM;
}

/* Appends the message. Results begin a turn of the user, and so does the system's text where the template
 * refuses that role. The user's next message joins that turn: some templates want roles in turns. */
static int put(json_t *list, json_t *message, bool *open, const struct chat_generic_opts *o)
{
    bool result = chat_history_has_role(message, "tool");
    bool system = o->without_system && chat_history_has_role(message, "system") && json_array_size(list) == 0;
    bool user = chat_history_has_role(message, "user");
    json_t *content = json_object_get(message, "content");
    content = result ? chat_history_between(content, RESULT_BEGIN, RESULT_END) : json_incref(content);
    int r = 0;
    if (*open && (result || user)) {
        r = join(list, content, o->marks, o->mark_count);
    } else if (result || system) {
        json_t *turn = message_of("user", json_incref(content));
        r = turn && json_array_append_new(list, turn) == 0 ? 0 : -ENOMEM;
    } else {
        r = json_array_append(list, message) == 0 ? 0 : -ENOMEM;
    }
    json_decref(content);
    *open = result || system || (*open && user);
    return r;
}

int chat_generic_messages(json_t *messages, const struct chat_generic_opts *opts, json_t **ret)
{
    json_t *all = json_array(), *list = json_array(), *message;
    bool open = false;
    size_t i;
    int r = all && list && json_array_extend(all, messages) == 0 ? 0 : -ENOMEM;
    if (r == 0 && json_array_size(opts->tools) > 0)
        r = add_tools(all, opts->tools, opts->marks, opts->mark_count);
    json_array_foreach(all, i, message)
        r = r < 0 ? r : put(list, message, &open, opts);
    json_decref(all);
    if (r < 0)
        json_decref(list);
    else
        *ret = list;
    return r;
}
