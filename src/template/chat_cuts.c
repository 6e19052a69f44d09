/* chat_cuts.c - cuts between messages, where the role changes.
 *
 * The messages of one agent step, such as several tool results, stay together in every later prompt: a cut
 * between them gains nothing. A first user message is cut where its text starts, since its head is the same
 * in other conversations, and some templates write the system's text into it. Where an image precedes that
 * text, there is a cut before the image too: for other images after the same system text, and for other
 * questions about the same image. */
#include "template/chat_cuts.h"

#include "template/tmpl_trace.h"

#include "base/check.h"

#include <string.h>

#define HEAD_BYTES 64 /* bytes of a message's head, which finds it in the text */

static void add(struct chat_cuts *c, size_t at, size_t len)
{
    ASSERT(c->count <= CHAT_CUTS_MAX);
    uint32_t i = c->count;
    while (i > 0 && c->bytes[i - 1] > at)
        i--;
    if (at == 0 || at > len || c->count == CHAT_CUTS_MAX || (i > 0 && c->bytes[i - 1] == at))
        return;
    memmove(c->bytes + i + 1, c->bytes + i, (c->count - i) * sizeof(c->bytes[0]));
    c->bytes[i] = at;
    c->count++;
}

static const char *role_of(const json_t *messages, uint32_t index)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, index), "role"));
    return role ? role : "";
}

static bool is_role(const json_t *messages, uint32_t index, const char *role)
{
    return strcmp(role_of(messages, index), role) == 0;
}

static bool is_written(const struct tmpl_trace *t, uint32_t index)
{
    ASSERT(index < t->count);
    return t->spans[index].to > t->spans[index].from;
}

/* The text of a message, or its first piece of text. */
static struct slice content_of(const json_t *message)
{
    const json_t *content = json_object_get(message, "content"), *part;
    size_t i;
    json_array_foreach(content, i, part)
        if (json_object_get(part, "text")) {
            content = json_object_get(part, "text");
            break;
        }
    return (struct slice){json_string_value(content), json_string_length(content)};
}

static bool begins_with_words(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    return !json_is_array(content) || json_object_get(json_array_get(content, 0), "text");
}

/* Where the message's own text starts between these bytes; templates may trim it. SIZE_MAX: not found. */
static size_t words_begin(struct slice content, struct slice text, size_t from, size_t to)
{
    size_t skip = 0;
    while (skip < content.len && strchr(" \t\r\n", content.ptr[skip]))
        skip++;
    struct slice head = slice_sub(content, skip, HEAD_BYTES);
    return head.len ? slice_find(slice_sub(text, 0, to), head, from) : SIZE_MAX;
}

/* Before the words of a message that follows the system's: in the message, which a template may also write
 * before its loop. */
static void add_system(const struct tmpl_trace *t, const json_t *messages, uint32_t first, struct slice text,
                       struct chat_cuts *ret)
{
    ASSERT(first < t->count);
    uint32_t next = first;
    while (next < t->count && !is_written(t, next))
        next++;
    bool in_loop = next == first;
    size_t from = in_loop ? t->spans[first].from : 0, to = text.len;
    if (in_loop)
        to = t->spans[first].to;
    else if (next < t->count)
        to = t->spans[next].from;
    const json_t *message = json_array_get(messages, first);
    size_t at = words_begin(content_of(message), text, from, to);
    add(ret, at == SIZE_MAX ? from : at, text.len);
    if (in_loop && !begins_with_words(message))
        add(ret, from, text.len);
}

/* The end of the text before a mark: within one string, or one piece of text. */
static struct slice tail_of(const json_t *message, size_t bytes)
{
    const json_t *content = json_object_get(message, "content"), *part;
    struct slice piece = {json_string_value(content), json_string_length(content)};
    size_t i, len = MIN_OF(bytes, piece.len);
    json_array_foreach(content, i, part) {
        const json_t *text = json_object_get(part, "text");
        piece = (struct slice){json_string_value(text), json_string_length(text)};
        len = MIN_OF(bytes, piece.len);
        if (bytes <= piece.len)
            break;
        bytes -= piece.len;
    }
    size_t kept = MIN_OF(len, (size_t)HEAD_BYTES);
    return slice_sub(piece, len - kept, kept);
}

/* Templates write a message's text as it is, but for white space at its ends: then the mark has the same
 * distance from its first word. Else the last bytes before the mark are looked for. SIZE_MAX: not found. */
static size_t find_mark(const json_t *message, size_t bytes, struct slice text, size_t from)
{
    struct slice content = content_of(message);
    size_t at = words_begin(content, text, from, text.len), skip = 0;
    if (bytes == 0 || at == SIZE_MAX)
        return at;
    while (skip < content.len && strchr(" \t\r\n", content.ptr[skip]))
        skip++;
    size_t distance = bytes > skip ? bytes - skip : 0;
    struct slice tail = tail_of(message, bytes);
    tail = slice_sub(tail, tail.len - MIN_OF(tail.len, distance), tail.len);
    if (at + distance <= text.len && slice_ends(slice_sub(text, at, distance), tail))
        return at + distance;
    at = slice_find(text, tail, at);
    return at == SIZE_MAX ? at : at + tail.len;
}

static void add_mark(const struct tmpl_trace *t, const json_t *messages, const struct chat_mark *m,
                     struct slice text, struct chat_cuts *ret)
{
    size_t at = SIZE_MAX;
    if (m->message < t->count && m->bytes < SIZE_MAX)
        at = find_mark(json_array_get(messages, m->message), m->bytes, text,
                       is_written(t, m->message) ? t->spans[m->message].from : 0);
    else if (m->message < t->count && is_written(t, m->message))
        at = t->spans[m->message].to;
    if (at != SIZE_MAX)
        add(ret, at, text.len);
}

/* After the last message: the generation prompt may come in the loop over messages or after it. */
static size_t end_of_messages(const struct tmpl_trace *t, const struct tmpl_span *last)
{
    return t->asked_at > last->from && t->asked_at < last->to ? t->asked_at : last->to;
}

/* Returns where system and tools end; 0: nowhere. */
static size_t choose(const struct tmpl_trace *t, const json_t *messages, const struct chat_marks *marks,
                     struct slice text, struct chat_cuts *ret)
{
    uint32_t first = 0, last = t->count, user;
    size_t head = 0;
    while (first < t->count && (is_role(messages, first, "system") || is_role(messages, first, "developer")))
        first++;
    if (first < t->count)
        add_system(t, messages, first, text, ret);
    head = ret->count > 0 ? ret->bytes[ret->count - 1] : 0;
    /* A client that compacts writes its second system message anew. */
    if (first > 1)
        add_system(t, messages, 1, text, ret);
    for (uint32_t i = 0; i < marks->count; i++)
        add_mark(t, messages, &marks->list[i], text, ret);
    while (last > first && !is_written(t, last - 1))
        last--;
    if (last == first) {
        add(ret, t->asked_at, text.len);
        return head;
    }
    add(ret, end_of_messages(t, &t->spans[last - 1]), text.len);
    for (user = last - 1; user > first && !is_role(messages, user - 1, "user"); user--)
        ;
    if (user > first)
        add(ret, t->spans[user - 1].to, text.len);
    for (uint32_t i = last - 1; i > first; i--)
        if (is_written(t, i) && !is_role(messages, i, role_of(messages, i - 1)))
            add(ret, t->spans[i].from, text.len);
    return head;
}

void chat_cuts_choose(const struct tmpl_trace *t, const json_t *messages, const struct chat_marks *marks,
                      struct slice text, struct chat_cuts *ret)
{
    *ret = (struct chat_cuts){.count = 0};
    size_t head = choose(t, messages, marks, text, ret);
    for (uint32_t i = 0; i < ret->count && head > 0; i++)
        if (ret->bytes[i] == head)
            ret->head = i + 1;
}
