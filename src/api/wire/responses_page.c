/* responses_page.c - the items are JSON of this server, written compactly: no line break stands within one,
 * and ids are found without a parser. */
#include "api/wire/responses_page.h"

#include "api/responses_store.h"

#include "base/json/json_out.h"

#include <errno.h>

/* Takes the first or the last item off the list. */
static struct slice take_item(struct slice *list, bool last)
{
    const struct slice between = SLICE(RESPONSES_BETWEEN);
    struct slice item = *list;
    if (!last) {
        size_t end = slice_find(*list, between, 0);
        item = slice_sub(*list, 0, end);
        *list = end == SIZE_MAX ? (struct slice){0} : slice_sub(*list, end + between.len, list->len);
        return item;
    }
    size_t from = list->len;
    while (from > 0 && list->ptr[from - 1] != '\n')
        from--;
    item = slice_sub(*list, from, list->len);
    list->len = from > between.len ? from - between.len : 0;
    return item;
}

/* The end of the JSON value at `at`. */
static size_t value_end(struct slice s, size_t at)
{
    size_t depth = 0;
    bool in_string = false;
    for (; at < s.len; at++) {
        char c = s.ptr[at];
        if (in_string) {
            at += c == '\\';
            in_string = c != '"';
        } else if (depth == 0 && (c == ',' || c == ':' || c == '}' || c == ']')) {
            return at;
        } else {
            in_string = c == '"';
            depth += c == '{' || c == '[';
            depth -= c == '}' || c == ']';
        }
    }
    return s.len;
}

/* The item's id with its quotes. */
static struct slice id_of(struct slice item)
{
    for (size_t at = 1; at < item.len; at++) {
        size_t key = value_end(item, at), end = value_end(item, key + 1);
        if (slice_eq(slice_sub(item, at, key - at), SLICE("\"id\"")))
            return slice_sub(item, key + 1, end - key - 1);
        at = end;
    }
    return SLICE("null");
}

/* 0, -ENOENT, -ECANCELED, -ETIME. */
static int skip_to(struct slice *rest, const struct responses_page *page)
{
    struct buf after;
    int r = page->after.len == 0 ? 0 : -ENOENT;
    buf_init(&after, SIZE_MAX / 4, NULL);
    struct json_out j = json_out(&after);
    json_put_text(&j, NULL, page->after);
    while (r == -ENOENT && rest->len) {
        int stopped = wanted_check(page->wanted);
        if (stopped < 0)
            r = stopped;
        else if (slice_eq(id_of(take_item(rest, page->newest_first)), buf_slice(&after)))
            r = 0;
    }
    buf_done(&after);
    return r;
}

int responses_page_write(struct slice items, const struct responses_page *page, struct buf *ret)
{
    struct slice rest = items, first = SLICE("null"), last = first;
    int r = skip_to(&rest, page);
    if (r < 0)
        return r;
    struct json_out j = json_out_object(ret);
    json_put_string(&j, "object", "list");
    json_open_array(&j, "data");
    for (uint64_t count = 0; rest.len && (page->limit == 0 || count < page->limit); count++) {
        if ((r = wanted_check(page->wanted)) < 0)
            return r;
        struct slice item = take_item(&rest, page->newest_first);
        last = id_of(item);
        if (count == 0)
            first = last;
        else
            buf_puts(ret, RESPONSES_BETWEEN);
        buf_put_slice(ret, item);
    }
    json_close(&j);
    json_put_raw(&j, "first_id", first);
    json_put_raw(&j, "last_id", last);
    json_put_bool(&j, "has_more", rest.len > 0);
    json_end(&j);
    return 0;
}
