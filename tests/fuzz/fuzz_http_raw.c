/* Bytes from a client, against the judge of raw bytes alone.
 *
 * The first byte selects how the rest is split. Every split gives the same whole requests and the same fault.
 * The bytes passed on have neither a zero byte nor a bare CR outside of bodies: headers are searched for both
 * here again. Each kept head equals the one that a plain reading of the same lines finds, and its target is
 * decoded. */
#include "base/check.h"
#include "base/slice.h"
#include "http/http_raw.h"
#include "http/http_target.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http_raw_limits limits = {.header_bytes_max = 2048, .field_bytes_max = 2048};

static size_t feed_all(struct http_raw *w, const char *bytes, size_t len, size_t piece)
{
    size_t at = 0, passed = 0;
    http_raw_init(w, &limits);
    while (at < len && !w->fault) {
        size_t n = piece < len - at ? piece : len - at;
        size_t good = http_raw_feed(w, bytes + at, n);
        ASSERT(good <= n && (good == n || w->fault));
        passed += good;
        at += n;
    }
    return passed;
}

/* An accepted header obeys the rules, by another reading of them. */
static void check_header(const char *bytes, size_t len)
{
    const char *end = memmem(bytes, len, "\r\n\r\n", 4);
    ASSERT(end);
    for (const char *c = bytes; c < end + 4; c++) {
        ASSERT(*c != 0 && (*c != '\r' || (c < end + 3 && c[1] == '\n')));
        if (*c == '\n')
            ASSERT(c > bytes && c[-1] == '\r' && (c == end + 3 || (c[1] != ' ' && c[1] != '\t')));
    }
}

/* ---- kept heads ---- */

static char kept_text[2048];
static struct http_field kept_fields[2048 / HTTP_RAW_FIELD_BYTES];

static struct slice line_of(struct slice *rest)
{
    size_t end = slice_find(*rest, SLICE("\r\n"), 0);
    ASSERT(end != SIZE_MAX);
    struct slice line = slice_sub(*rest, 0, end);
    *rest = slice_sub(*rest, end + 2, rest->len);
    return line;
}

static struct slice cut_at(struct slice *rest, struct slice mark)
{
    size_t at = slice_find(*rest, mark, 0);
    ASSERT(at != SIZE_MAX);
    struct slice first = slice_sub(*rest, 0, at);
    *rest = slice_sub(*rest, at + mark.len, rest->len);
    return first;
}

static void expect_kept(const struct http_head *h, uint32_t at, uint32_t bytes, struct slice wanted)
{
    ASSERT(at + bytes <= h->text_bytes);
    ASSERT(slice_eq((struct slice){h->text + at, bytes}, wanted));
}

/* `text` ends with the head that has just become whole. */
static void compare_head(const struct http_head *h, struct slice text)
{
    ASSERT(h->bytes <= text.len);
    struct slice rest = slice_sub(text, text.len - h->bytes, text.len), line = line_of(&rest);
    while (line.len == 0)
        line = line_of(&rest);
    expect_kept(h, 0, h->method_bytes, cut_at(&line, SLICE(" ")));
    expect_kept(h, h->method_bytes, h->target_bytes, cut_at(&line, SLICE(" ")));
    ASSERT(h->http_1_0 == slice_eq(line, SLICE("HTTP/1.0")));
    uint32_t count = 0;
    for (line = line_of(&rest); line.len > 0; line = line_of(&rest)) {
        ASSERT(count < h->header_count);
        const struct http_field *f = &h->fields[count++];
        expect_kept(h, f->name, f->name_bytes, cut_at(&line, SLICE(":")));
        expect_kept(h, f->value, f->value_bytes, slice_trim(line, " \t"));
    }
    ASSERT(count == h->header_count && rest.len == 0);
}

static void check_target(struct http_head *h)
{
    struct slice path, authority;
    if (!http_target_read(h, &path, &authority))
        return;
    ASSERT(path.len == 0 || !memchr(path.ptr, 0, path.len));
    ASSERT(h->header_count + h->argument_count <= h->fields_max);
}

/* The requests whose heads were kept. The fault is that of a judge that keeps nothing. */
static uint64_t keep_all(struct http_raw *w, const char *bytes, size_t len, size_t piece)
{
    struct http_head h = {.text = kept_text, .fields = kept_fields, .fields_max = COUNT_OF(kept_fields)};
    size_t at = 0;
    uint64_t heads = 0;
    http_raw_init(w, &limits);
    http_raw_keep(w, &h);
    while (at < len && !w->fault) {
        at += http_raw_feed(w, bytes + at, piece < len - at ? piece : len - at);
        ASSERT(w->fault || w->payload_bytes <= at);
        if (w->fault || !(w->events & HTTP_RAW_HEAD))
            continue;
        heads++;
        compare_head(&h, (struct slice){bytes, at});
        check_target(&h);
    }
    return heads;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_raw whole, cut, kept;
    if (size < 2)
        return 0;
    const char *bytes = (const char *)data + 1;
    size_t len = size - 1, piece = data[0] ? data[0] : 1;
    feed_all(&whole, bytes, len, len);
    size_t passed = feed_all(&cut, bytes, len, piece);
    ASSERT(whole.fault == cut.fault && whole.headers == cut.headers && whole.requests == cut.requests);
    ASSERT(whole.headers >= whole.requests && whole.headers <= whole.requests + 1);
    ASSERT(whole.fault || passed == len);
    uint64_t heads = keep_all(&kept, bytes, len, piece);
    ASSERT(heads == whole.headers && kept.fault == whole.fault && kept.requests == whole.requests);
    if (whole.headers > 0 && *bytes != '\r')
        check_header(bytes, len);
    return 0;
}
