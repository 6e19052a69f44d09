/* chat_tool_words.c - two renderings, and the text that only the longer one has.
 *
 * A short conversation is rendered with a sentinel tool, and with the tool after it. Where the second is the
 * first with a text inserted, that text is the tool's. An insertion between equal characters has several
 * places ("<tool>" before "</tools>" shares its "<"): the place is moved back to the end of a word, line or
 * bracket. Separators of a list, such as ", ", are not part of the words. */
#include "chat/chat_tool_words.h"

#include "base/check.h"
#include "base/json/json_write.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <string.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20)

/* ---- renderings ---- */

static json_t *conversation(void)
{
    return json_pack("[{s:s, s:s}]", "role", "user", "content", "zquser");
}

static json_t *sentinel(void)
{
    return json_pack("{s:s, s:{s:s, s:s, s:{s:s, s:{}}}}", "type", "function", "function", "name", "zqtool",
                     "description", "none", "parameters", "type", "object", "properties");
}

static int render(const struct chat_tool_words *w, struct arena *scratch, const json_t *tools,
                  struct buf *ret)
{
    struct chat_template_input in = w->input;
    struct err e = {{0}};
    json_t *messages = conversation();
    in.messages = messages;
    in.tools = tools;
    in.marks.count = 0;
    in.add_generation_prompt = false;
    buf_clear(ret);
    int r =
        messages ? chat_template_render_cuts(w->template, scratch, &in, &w->limits, ret, NULL, &e) : -ENOMEM;
    json_decref(messages);
    return r == -EINVAL || r == -E2BIG || r == -EMSGSIZE ? -ENOENT : r;
}

/* ---- the difference ---- */

static bool ends_word(char c)
{
    return memchr(" \n\t>}]);,.", c, 10) != NULL;
}

static bool separates(char c)
{
    return memchr(" \n\t\r,", c, 5) != NULL;
}

/* Finds the text that `longer` has and `text` has not. False: `longer` is not `text` with one insertion. */
static bool inserted(struct slice text, struct slice longer, struct slice *ret)
{
    size_t from = 0, tail;
    while (from < text.len && from < longer.len && text.ptr[from] == longer.ptr[from])
        from++;
    tail = text.len - from;
    if (longer.len < text.len || memcmp(text.ptr + from, longer.ptr + longer.len - tail, tail) != 0)
        return false;
    size_t to = longer.len - tail, back = 0;
    while (back < from && !ends_word(longer.ptr[from - back - 1]) &&
           longer.ptr[from - back - 1] == longer.ptr[to - back - 1])
        back++;
    if (back < from && ends_word(longer.ptr[from - back - 1]))
        from -= back, to -= back;
    while (from < to && separates(longer.ptr[from]))
        from++;
    while (from < to && separates(longer.ptr[to - 1]))
        to--;
    ASSERT(from <= to);
    *ret = slice_sub(longer, from, to - from);
    return true;
}

static bool names(struct slice words, const json_t *tool)
{
    const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
    struct slice text = {json_string_value(name), json_string_length(name)};
    return text.len > 0 && slice_find(words, text, 0) != SIZE_MAX;
}

/* ---- the words ---- */

static void put_line(struct slice line, struct buf *ret)
{
    if (ret->len > 0)
        buf_putc(ret, '\n');
    buf_put_slice(ret, line);
}

/* Appends the last of the tools, which the shorter rendering does not have. */
static int put_tool(const struct chat_tool_words *w, struct arena *scratch, const json_t *tools,
                    struct slice shorter, struct buf *longer, struct buf *ret)
{
    ASSERT(json_array_size(tools) > 0);
    struct slice words;
    int r = render(w, scratch, tools, longer);
    if (r < 0)
        return r;
    if (!inserted(shorter, buf_slice(longer), &words) || !utf8_valid(words) ||
        !names(words, json_array_get(tools, json_array_size(tools) - 1)))
        return -ENOENT;
    put_line(words, ret);
    return 0;
}

/* Appends the words of each tool, rendered after the sentinel. */
static int put_each(const struct chat_tool_words *w, struct arena *scratch, const json_t *tools,
                    struct buf *ret)
{
    struct buf shorter, longer;
    json_t *with = json_array();
    buf_init(&shorter, TEXT_BYTES_MAX, w->charge);
    buf_init(&longer, TEXT_BYTES_MAX, w->charge);
    int r = json_array_append_new(with, sentinel()) == 0 ? render(w, scratch, with, &shorter) : -ENOMEM;
    for (size_t i = 0; r == 0 && i < json_array_size(tools); i++) {
        r = json_array_append(with, json_array_get(tools, i)) == 0 ? 0 : -ENOMEM;
        if (r == 0)
            r = put_tool(w, scratch, with, buf_slice(&shorter), &longer, ret);
        json_array_remove(with, 1);
    }
    buf_done(&shorter);
    buf_done(&longer);
    json_decref(with);
    return r;
}

static void put_generic(const json_t *tools, struct buf *ret)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)tools, i, tool) {
        put_line(SLICE(""), ret);
        json_write_spaced(ret, tool);
    }
}

int chat_tool_words_write(const struct chat_tool_words *w, struct arena *scratch, const json_t *tools,
                          struct buf *ret)
{
    int r = 0;
    if (w->generic)
        put_generic(tools, ret);
    else
        r = put_each(w, scratch, tools, ret);
    return r == 0 && ret->error ? -ENOMEM : r;
}
