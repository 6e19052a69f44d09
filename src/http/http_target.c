/* http_target.c - the target is split first and decoded then, so an escaped '&' or '?' separates nothing. */
#include "http/http_target.h"

#include "base/check.h"

/* A zero byte would end the text early for some readers only, so it counts as malformed. */
static bool decode(char *text, size_t len, bool plus_is_blank, size_t *ret)
{
    size_t to = 0;
    for (size_t at = 0; at < len; at++) {
        if (text[at] != '%') {
            text[to++] = plus_is_blank && text[at] == '+' ? ' ' : text[at];
            continue;
        }
        int high = at + 2 < len ? slice_hex(text[at + 1]) : -1;
        int low = high < 0 ? -1 : slice_hex(text[at + 2]);
        if (low < 0 || (high | low) == 0)
            return false;
        text[to++] = (char)(high << 4 | low);
        at += 2;
    }
    *ret = to;
    return true;
}

/* One NAME or NAME=VALUE of `len` bytes at `at` of the head's text. */
static bool read_argument(struct http_head *h, uint32_t at, size_t len)
{
    struct slice text = {h->text + at, len};
    size_t equals = MIN_OF(slice_find(text, SLICE("="), 0), len);
    size_t value_at = MIN_OF(equals + 1, len), name_bytes, value_bytes;
    if (!decode(h->text + at, equals, true, &name_bytes) ||
        !decode(h->text + at + value_at, len - value_at, true, &value_bytes))
        return false;
    uint32_t index = h->header_count + h->argument_count++;
    ASSERT(index < h->fields_max);
    h->fields[index] = (struct http_field){.name = at,
                                           .name_bytes = (uint32_t)name_bytes,
                                           .value = at + (uint32_t)value_at,
                                           .value_bytes = (uint32_t)value_bytes};
    return true;
}

static bool read_query(struct http_head *h, uint32_t at, uint32_t end)
{
    while (at < end) {
        struct slice rest = {h->text + at, end - at};
        size_t len = MIN_OF(slice_find(rest, SLICE("&"), 0), rest.len);
        if (len > 0 && !read_argument(h, at, len))
            return false;
        at += (uint32_t)len + 1;
    }
    return true;
}

/* A proxy's form of the target, http://name/path, means the path; its name has to be the same as in Host. */
static void split(struct slice target, struct slice *path, struct slice *authority)
{
    *path = target;
    if (!slice_starts(target, SLICE("http://")))
        return;
    size_t slash = MIN_OF(slice_find(target, SLICE("/"), 7), target.len);
    *authority = slice_sub(target, 7, slash - 7);
    *path = slash == target.len ? SLICE("/") : slice_sub(target, slash, target.len);
}

bool http_target_read(struct http_head *h, struct slice *path, struct slice *authority)
{
    struct slice target = {h->text + h->method_bytes, h->target_bytes};
    size_t mark = MIN_OF(slice_find(target, SLICE("?"), 0), target.len), path_bytes;
    uint32_t at = h->method_bytes, end = at + h->target_bytes;
    *path = *authority = (struct slice){0};
    if (!decode(h->text + at, mark, false, &path_bytes))
        return false;
    split((struct slice){h->text + at, path_bytes}, path, authority);
    return read_query(h, at + (uint32_t)mark + 1, end);
}

bool http_head_find(const struct http_head *h, bool argument, struct slice name, struct slice *ret)
{
    const struct http_field *f = h->fields + (argument ? h->header_count : 0);
    for (const struct http_field *end = f + (argument ? h->argument_count : h->header_count); f < end; f++) {
        if (!slice_eq_any_case((struct slice){h->text + f->name, f->name_bytes}, name))
            continue;
        *ret = (struct slice){h->text + f->value, f->value_bytes};
        return true;
    }
    return false;
}
