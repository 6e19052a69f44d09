/* chat_history.c - found for each template by chat_probe.c. */
#include "chat/chat_history.h"

#include "chat/chat_calls_text.h"
#include "chat/chat_syntax.h"

#include "base/check.h"
#include "base/json/json_write.h"
#include "template/chat_cuts.h"

#include <errno.h>

#define ARGUMENTS_BYTES_MAX ((size_t)64 << 20)

static json_t *text_of(const json_t *arguments)
{
    struct buf text;
    buf_init(&text, ARGUMENTS_BYTES_MAX, NULL);
    json_write_spaced(&text, arguments);
    json_t *ret = text.error ? NULL : json_stringn(text.ptr, text.len);
    buf_done(&text);
    return ret;
}

static int adapt_call(const struct chat_syntax *s, json_t *call)
{
    json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    if (!s->text_arguments || !json_is_object(arguments))
        return 0;
    json_t *text = text_of(arguments);
    return text && json_object_set_new(function, "arguments", text) == 0 ? 0 : -ENOMEM;
}

static bool is_empty(const json_t *content)
{
    return json_is_string(content) && json_string_length(content) == 0;
}

static int adapt_reasoning(const struct chat_syntax *s, json_t *message)
{
    json_t *reasoning = json_object_get(message, "reasoning_content");
    if (!s->reasoning_member || !reasoning)
        return 0;
    if (json_object_set(message, s->reasoning_member, reasoning) < 0)
        return -ENOMEM;
    json_object_del(message, "reasoning_content");
    return 0;
}

/* Reasoning between its markers, and `content` between those of text. A last message is one that the reply
 * continues: its text has no end. */
static json_t *text_with_reasoning(const struct chat_syntax *s, const json_t *reasoning,
                                   const json_t *content, bool last)
{
    const char *around[] = {s->marker[CHAT_TEXT_BEGIN], last ? NULL : s->marker[CHAT_TEXT_END]};
    bool says = json_string_length(content) > 0;
    struct buf text;
    buf_init(&text, ARGUMENTS_BYTES_MAX, NULL);
    buf_puts(&text, s->marker[CHAT_REASONING_OPEN]);
    buf_put(&text, json_string_value(reasoning), json_string_length(reasoning));
    buf_puts(&text, s->marker[CHAT_REASONING_CLOSE]);
    buf_puts(&text, says && around[0] ? around[0] : "");
    buf_put(&text, json_string_value(content), json_string_length(content));
    buf_puts(&text, says && around[1] ? around[1] : "");
    json_t *ret = text.error ? NULL : json_stringn(text.ptr, text.len);
    buf_done(&text);
    return ret;
}

/* The reasoning becomes a part of the content. */
static int write_reasoning(const struct chat_syntax *s, json_t *message, bool last)
{
    json_t *reasoning = json_object_get(message, "reasoning_content");
    json_t *content = json_object_get(message, "content");
    bool calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    if (!s->reasoning_in_content || (calls && !s->reasoning_in_calls) || json_is_array(content) ||
        json_string_length(reasoning) == 0)
        return 0;
    json_t *text = text_with_reasoning(s, reasoning, content, last);
    if (!text || json_object_set_new(message, "content", text) < 0)
        return -ENOMEM;
    json_object_del(message, "reasoning_content");
    return 0;
}

static bool is_text_only(const json_t *parts)
{
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part)
        if (!json_is_string(json_object_get(part, "text")))
            return false;
    return json_is_array(parts);
}

/* Several texts become one. */
static int join_texts(const struct chat_syntax *s, json_t *message)
{
    const json_t *content = json_object_get(message, "content"), *part;
    struct buf text;
    size_t i;
    if (!is_text_only(content))
        return 0;
    buf_init(&text, ARGUMENTS_BYTES_MAX, NULL);
    json_array_foreach(content, i, part) {
        const json_t *own = json_object_get(part, "text");
        buf_puts(&text, i == 0 ? "" : s->between_parts ? s->between_parts : "\n");
        buf_put(&text, json_string_value(own), json_string_length(own));
    }
    json_t *joined = text.error ? NULL : json_stringn(text.ptr ? text.ptr : "", text.len);
    buf_done(&text);
    return joined && json_object_set_new(message, "content", joined) == 0 ? 0 : -ENOMEM;
}

/* The text of the calls, after `content`. */
static json_t *text_with_calls(const struct chat_syntax *s, struct slice content, const json_t *calls)
{
    struct buf text;
    buf_init(&text, ARGUMENTS_BYTES_MAX, NULL);
    buf_put_slice(&text, content);
    chat_calls_text_write(s, calls, &text);
    struct slice all = buf_slice(&text);
    if (s->generic && content.len == 0)
        all = slice_trim(all, "\n"); /* a reply that begins with a call has no line feeds before it */
    json_t *ret = text.error ? NULL : json_stringn(all.ptr, all.len);
    buf_done(&text);
    return ret;
}

/* The calls become a part of the content. */
static int write_calls(const struct chat_syntax *s, json_t *message)
{
    json_t *content = json_object_get(message, "content"), *text;
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!s->calls_in_content || json_array_size(calls) == 0)
        return 0;
    struct slice before = {json_string_value(content), json_string_length(content)};
    text = text_with_calls(s, before, calls);
    if (!text)
        return -ENOMEM;
    int r = json_is_array(content)
                ? json_array_append_new(content, json_pack("{s:s, s:O}", "type", "text", "text", text))
                : json_object_set(message, "content", text);
    json_decref(text);
    if (r < 0)
        return -ENOMEM;
    json_object_del(message, "tool_calls");
    return 0;
}

int chat_history_adapt(const struct chat_syntax *s, json_t *messages)
{
    size_t i, k;
    json_t *message, *call;
    json_array_foreach(messages, i, message) {
        int r = join_texts(s, message);
        if (r == 0)
            r = adapt_reasoning(s, message);
        if (r == 0)
            r = write_reasoning(s, message, i + 1 == json_array_size(messages));
        if (r == 0)
            r = write_calls(s, message);
        const json_t *calls = json_object_get(message, "tool_calls");
        json_array_foreach(calls, k, call)
            r = r < 0 ? r : adapt_call(s, call);
        if (r < 0)
            return r;
        if (s->null_content && json_array_size(calls) > 0 && is_empty(json_object_get(message, "content")) &&
            json_object_set_new(message, "content", json_null()) < 0)
            return -ENOMEM;
    }
    return 0;
}

bool chat_history_wrap(json_t *messages)
{
    size_t i, k;
    json_t *message, *call;
    bool some = false;
    json_array_foreach(messages, i, message) {
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) {
            json_t *function = json_object_get(call, "function");
            json_t *arguments = json_object_get(function, "arguments");
            json_t *object = json_is_string(arguments) ? json_pack("{s:O}", "arguments", arguments) : NULL;
            if (object && json_object_set_new(function, "arguments", object) == 0)
                some = true;
        }
    }
    return some;
}

/* ---- messages of the system ---- */

bool chat_history_has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

static json_t *text_part(const char *text)
{
    return json_pack("{s:s, s:s}", "type", "text", "text", text);
}

/* A list of parts, as a new reference. */
static json_t *parts_of(json_t *content)
{
    if (json_is_array(content))
        return json_copy(content);
    return json_is_string(content) ? json_pack("[{s:s, s:O}]", "type", "text", "text", content)
                                   : json_array();
}

/* NULL: no text. */
static const char *text_at(const json_t *parts, size_t at)
{
    return json_string_value(json_object_get(json_array_get(parts, at), "text"));
}

/* Takes `text`, where NULL means that there is no memory. */
static bool set_text(json_t *parts, size_t at, json_t *text)
{
    bool ok =
        text && json_array_set_new(parts, at, json_pack("{s:s, s:O}", "type", "text", "text", text)) == 0;
    json_decref(text);
    return ok;
}

json_t *chat_history_between(json_t *content, const char *before, const char *after)
{
    if (json_is_string(content))
        return json_sprintf("%s%s%s", before, json_string_value(content), after);
    json_t *parts = parts_of(content);
    const char *text = text_at(parts, 0);
    bool ok = parts && (text ? set_text(parts, 0, json_sprintf("%s%s", before, text))
                             : json_array_insert_new(parts, 0, text_part(before)) == 0);
    size_t last = json_array_size(parts) - 1;
    text = text_at(parts, last);
    ok = ok && (text ? set_text(parts, last, json_sprintf("%s%s", text, after))
                     : json_array_append_new(parts, text_part(after)) == 0);
    if (!ok)
        json_decref(parts);
    return ok ? parts : NULL;
}

/* An empty line between the last part of one list and the first of the other, which become one where both
 * are texts. */
static bool join_ends(json_t *all, json_t *more)
{
    size_t last = json_array_size(all) - 1;
    const char *end = text_at(all, last), *start = text_at(more, 0);
    if (!end || !start)
        return json_array_append_new(all, text_part("\n\n")) == 0;
    return set_text(all, last, json_sprintf("%s\n\n%s", end, start)) && json_array_remove(more, 0) == 0;
}

json_t *chat_history_joined(json_t *a, json_t *b)
{
    if (json_is_string(a) && json_is_string(b))
        return json_sprintf("%s\n\n%s", json_string_value(a), json_string_value(b));
    json_t *all = parts_of(a), *more = parts_of(b);
    bool ok = all && more && join_ends(all, more) && json_array_extend(all, more) == 0;
    json_decref(more);
    if (!ok)
        json_decref(all);
    return ok ? all : NULL;
}

/* The message at `i` becomes a part of the one before it. */
static int join_before(json_t *messages, size_t i, struct chat_mark *marks, uint32_t count)
{
    ASSERT(i > 0 && i < json_array_size(messages));
    json_t *before = json_array_get(messages, i - 1), *message = json_array_get(messages, i);
    json_t *content =
        chat_history_joined(json_object_get(before, "content"), json_object_get(message, "content"));
    if (!content || json_object_set_new(before, "content", content) < 0)
        return -ENOMEM;
    json_array_remove(messages, i);
    for (uint32_t k = 0; k < count; k++)
        marks[k].message -= marks[k].message >= i;
    return 0;
}

int chat_history_join_system(json_t *messages, struct chat_mark *marks, uint32_t count, bool *ret)
{
    size_t i = 0;
    bool before = false, some = false; /* before: the message before this one was the system's */
    while (chat_history_has_role(json_array_get(messages, i), "system"))
        i++;
    while (i < json_array_size(messages)) {
        json_t *message = json_array_get(messages, i);
        bool own = chat_history_has_role(message, "system"),
             user = own || chat_history_has_role(message, "user");
        if (own && json_object_set_new(message, "role", json_string("user")) < 0)
            return -ENOMEM;
        some |= own;
        if (user && (own || before) && i > 0 &&
            chat_history_has_role(json_array_get(messages, i - 1), "user")) {
            if (join_before(messages, i, marks, count) < 0)
                return -ENOMEM;
            before |= own;
            continue;
        }
        before = own;
        i++;
    }
    *ret = some;
    return 0;
}
