/* warm_file.c - objects are found by their braces outside of strings; the dialect judges the rest. */
#include "api/warm_file.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/files/regular_file.h"

#include <errno.h>

static int read_all(const struct regular_file *f, struct buf *ret, struct err *e)
{
    char *bytes = buf_extend(ret, (size_t)f->bytes);
    if (!bytes)
        return err_set(e, -ENOMEM, "no memory for its %llu bytes", (ull)f->bytes);
    return regular_file_read(f, 0, bytes, (size_t)f->bytes, e);
}

int warm_file_read(const char *path, struct buf *ret, struct err *e)
{
    struct regular_file f = REGULAR_FILE_NONE;
    int r = regular_file_open(path, &f, e);
    if (r < 0)
        return r;
    if (f.bytes > WARM_FILE_BYTES_MAX)
        r = err_set(e, -EFBIG, "it has %llu bytes, and the most is %zu", (ull)f.bytes, WARM_FILE_BYTES_MAX);
    if (r == 0)
        r = read_all(&f, ret, e);
    regular_file_close(&f);
    return r < 0 ? err_prefix(e, r, "%s", path) : 0;
}

/* ---- requests ---- */

/* The byte after the string that begins at `i`; text.len: it has no end. */
static size_t string_end(struct slice text, size_t i)
{
    for (i++; i < text.len && text.ptr[i] != '"'; i++)
        i += text.ptr[i] == '\\';
    return MIN_OF(i + 1, text.len);
}

/* The byte after the object that begins at `i`; 0: it has no end. */
static size_t object_end(struct slice text, size_t i)
{
    size_t depth = 0;
    while (i < text.len) {
        char c = text.ptr[i];
        if (c == '"') {
            i = string_end(text, i);
            continue;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        i++;
        if (depth == 0)
            return i;
    }
    return 0;
}

static uint32_t count_breaks(struct slice text)
{
    uint32_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += text.ptr[i] == '\n';
    return count;
}

int warm_file_next(struct slice text, struct warm_file_at *at, struct warm_request *ret, struct err *e)
{
    size_t i = at->byte;
    for (; i < text.len && slice_is_blank(text.ptr[i]); i++)
        at->line_breaks += text.ptr[i] == '\n';
    at->byte = i;
    if (i == text.len)
        return 0;
    uint32_t line = at->line_breaks + 1;
    if (text.ptr[i] != '{')
        return err_set(e, -EINVAL, "line %u: a request is a JSON object, which begins with {", line);
    size_t end = object_end(text, i);
    if (end == 0)
        return err_set(e, -EINVAL, "line %u: the JSON object that begins here has no end", line);
    struct slice body = slice_sub(text, i, end - i);
    at->byte = end;
    at->line_breaks += count_breaks(body);
    *ret = (struct warm_request){body, line};
    return 1;
}

/* ---- dialects ---- */

static bool has(const json_t *o, const char *name)
{
    return json_object_get(o, name) != NULL;
}

static bool is_messages(struct slice body, const json_t *parsed)
{
    const json_t *tool = json_array_get(json_object_get(parsed, "tools"), 0);
    return has(parsed, "system") || has(tool, "input_schema") ||
           slice_find(body, SLICE("\"cache_control\""), 0) != SIZE_MAX;
}

enum warm_dialect warm_file_dialect(struct slice body, const json_t *parsed)
{
    if (has(parsed, "input"))
        return WARM_RESPONSES;
    if (has(parsed, "prompt"))
        return WARM_COMPLETION;
    if (has(parsed, "ttl") || has(parsed, "follow"))
        return WARM_SESSION;
    return is_messages(body, parsed) ? WARM_MESSAGES : WARM_CHAT;
}
