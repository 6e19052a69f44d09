/* Bytes from a client, against the judge of raw bytes alone.
 *
 * The first byte selects how the rest is split. Every split gives the same whole requests and the same fault.
 * The bytes passed on have neither a zero byte nor a bare CR outside of bodies: headers are searched for both
 * here again. */
#include "base/check.h"
#include "http/http_raw.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_raw whole, cut;
    if (size < 2)
        return 0;
    const char *bytes = (const char *)data + 1;
    size_t len = size - 1, piece = data[0] ? data[0] : 1;
    feed_all(&whole, bytes, len, len);
    size_t passed = feed_all(&cut, bytes, len, piece);
    ASSERT(whole.fault == cut.fault && whole.headers == cut.headers && whole.requests == cut.requests);
    ASSERT(whole.headers >= whole.requests && whole.headers <= whole.requests + 1);
    ASSERT(whole.fault || passed == len);
    if (whole.headers > 0 && *bytes != '\r')
        check_header(bytes, len);
    return 0;
}
