/* JSON as written to clients and as read from them. Invariants: a value parses to the same value and is
 * written twice as the same text. What jansson takes, json_source_load() takes as the same value. A string of
 * valid UTF-8 parses to its bytes. Normalisation form C is a fixed point. */
#include "base/check.h"
#include "base/json/json_source_load.h"
#include "base/json/json_write.h"
#include "unicode/unicode_normal.h"
#include "unicode/utf8.h"

#include <jansson.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FLAGS (JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)

static void check_source(struct slice text, const json_t *value)
{
    json_error_t e;
    json_t *read = json_source_load(text, FLAGS, &e);
    ASSERT(value ? json_equal(value, read) : !read || memmem(text.ptr, text.len, "\\u", 2) || text.len >= 19);
    json_decref(read);
}

static void check_value(struct slice text)
{
    json_t *value = json_loadb(text.ptr, text.len, FLAGS, NULL);
    check_source(text, value);
    if (!value)
        return;
    struct buf once, twice;
    buf_init(&once, (size_t)64 << 20, NULL);
    buf_init(&twice, (size_t)64 << 20, NULL);
    json_write_value(&once, value);
    if (!once.error) { /* not a value that is nested too deeply */
        json_t *again = json_loadb(once.ptr, once.len, FLAGS, NULL);
        ASSERT(again && json_equal(value, again));
        json_write_value(&twice, again);
        ASSERT(slice_eq(buf_slice(&once), buf_slice(&twice)));
        json_decref(again);
    }
    buf_done(&once);
    buf_done(&twice);
    json_decref(value);
}

static void check_string(struct slice text)
{
    struct buf b;
    buf_init(&b, (size_t)64 << 20, NULL);
    json_write_string(&b, text);
    ASSERT(!b.error && !memchr(b.ptr, '\n', b.len));
    json_t *again = json_loadb(b.ptr, b.len, FLAGS, NULL);
    ASSERT(json_is_string(again));
    ASSERT(slice_eq(text, (struct slice){json_string_value(again), json_string_length(again)}));
    json_decref(again);
    buf_done(&b);
}

static void check_normal(struct slice text)
{
    struct arena *a = NULL;
    struct arena_opts opts = {.bytes_max = (size_t)64 << 20};
    struct slice once, twice;
    if (arena_create(&opts, &a) < 0)
        return;
    if (unicode_normal(a, text, UNICODE_NFC, NULL, &once) == 0) {
        ASSERT(once.len <= 3 * text.len && utf8_valid(once));
        ASSERT(unicode_normal(a, once, UNICODE_NFC, NULL, &twice) == 0 && slice_eq(once, twice));
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = {(const char *)data, size};
    if (size == 0)
        return 0;
    check_value(text);
    if (utf8_valid(text)) {
        check_string(text);
        check_normal(text);
    }
    return 0;
}
