/* Accepted and faulty raw bytes, the names of faults, and that pieces change nothing. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "base/slice.h"
#include "http/http_raw.h"
#include "http/http_target.h"

struct slice;

static const struct http_raw_limits limits = {.header_bytes_max = 1024, .field_bytes_max = 1024};

struct verdict {
    enum http_fault fault;
    size_t good;
    uint64_t headers, requests;
};

/* Fed in pieces of up to `piece` bytes. */
static struct verdict judge_pieces(struct slice text, size_t piece, struct http_raw *w)
{
    http_raw_init(w, &limits);
    struct verdict v = {0};
    for (size_t at = 0; at < text.len && !w->fault; at += piece) {
        struct slice part = slice_sub(text, at, piece);
        size_t good = http_raw_feed(w, part.ptr, part.len);
        assert_true(good <= part.len && (w->fault || good == part.len));
    }
    v.fault = w->fault;
    v.headers = w->headers;
    v.requests = w->requests;
    return v;
}

static struct verdict judge(struct slice text)
{
    struct http_raw w;
    http_raw_init(&w, &limits);
    struct verdict v = {.good = http_raw_feed(&w, text.ptr, text.len)};
    v.fault = w.fault;
    v.headers = w.headers;
    v.requests = w.requests;
    for (size_t piece = 1; piece < 8; piece++) {
        struct verdict cut = judge_pieces(text, piece, &w);
        assert_true(cut.fault == v.fault && cut.headers == v.headers && cut.requests == v.requests);
    }
    return v;
}

struct shape {
    const char *text;
    size_t len;
    enum http_fault fault;
};
/* The text may hold zero bytes. */
#define SHAPE(text, fault)                                                                                   \
    {                                                                                                        \
        text, sizeof(text) - 1, HTTP_FAULT_##fault                                                           \
    }
#define HEADER(lines, fault) SHAPE("POST /x HTTP/1.1\r\nHost: a\r\n" lines "\r\n", fault)
#define CHUNKED(body, fault)                                                                                 \
    SHAPE("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" body, fault)

static void check_shapes(const struct shape *shapes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct verdict v = judge((struct slice){shapes[i].text, shapes[i].len});
        if (v.fault != shapes[i].fault)
            fail_msg("fault %d instead of %d: %s", v.fault, shapes[i].fault, shapes[i].text);
        if (v.fault == HTTP_FAULT_NONE && v.requests != 1)
            fail_msg("%llu requests: %s", (unsigned long long)v.requests, shapes[i].text);
    }
}

TEST(what_is_right_passes)
{
    static const struct shape shapes[] = {
        SHAPE("GET / HTTP/1.0\r\n\r\n", NONE),
        SHAPE("\r\n\r\nGET / HTTP/1.1\r\nHost:\r\n\r\n", NONE),
        SHAPE("OPTIONS * HTTP/1.9\r\nHost: [::1]:80\t\r\n\r\n", NONE),
        SHAPE("M-SEARCH /\xff?a&b HTTP/1.1\r\nhOST:a\r\nX-Y: \xe4\tb \r\nEmpty:\r\n\r\n", NONE),
        HEADER("Content-Length: 0\r\n", NONE),
        HEADER("content-length:\t007\r\n", NONE),
        HEADER("Transfer-Encoding: ChUnKeD\r\n", NONE),
        HEADER("Cookie: a=b; c=d\r\nCookie: e=f\r\nX: a, b\r\nX: c\r\n", NONE),
        CHUNKED("0\r\n\r\n", NONE),
        CHUNKED("5\r\nhello\r\n000000000000000A;x=\"y z\"\r\n0123456789\r\n0;end\r\nT: t\r\n\r\n", NONE),
    };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct verdict v = judge((struct slice){shapes[i].text, shapes[i].len});
        if (v.fault || v.headers != 1)
            fail_msg("fault %d: %s", v.fault, shapes[i].text);
    }
}

TEST(request_lines_have_one_form)
{
    static const struct shape shapes[] = {
        SHAPE("\x16\x03\x01\x02\x00\x01", TLS),
        SHAPE(" GET / HTTP/1.1\r\n", REQUEST_LINE),
        SHAPE("G\0ET / HTTP/1.1\r\n", REQUEST_LINE),
        SHAPE("GET\t/ HTTP/1.1\r\n", REQUEST_LINE),
        SHAPE("nonsense\r\n", REQUEST_LINE),
        SHAPE("GETGETGETGETGETGETGET / HTTP/1.1\r\n", REQUEST_LINE),
        SHAPE("GET /\r\n", REQUEST_LINE),
        SHAPE("GET /\n", REQUEST_LINE),
        SHAPE("GET / \r\n", TARGET),
        SHAPE("GET  / HTTP/1.1\r\n", TARGET),
        SHAPE("GET /  HTTP/1.1\r\n", TARGET),
        SHAPE("GET /a b HTTP/1.1\r\n", TARGET),
        SHAPE("GET /a\tb HTTP/1.1\r\n", TARGET),
        SHAPE("GET /a\0b HTTP/1.1\r\n", TARGET),
        SHAPE("GET / http/1.1\r\n", TARGET),
        SHAPE("GET / HTTP/1.1 \r\n", REQUEST_LINE),
        SHAPE("GET / HTTP/1.10\r\n", REQUEST_LINE),
        SHAPE("GET / HTTP/11\r\n", REQUEST_LINE),
        SHAPE("GET / HTTP/0.9\r\n", VERSION),
        SHAPE("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", VERSION),
        SHAPE("GET / HTTP/1.1\n", REQUEST_LINE),
        SHAPE("GET / HTTP/1.1\rX", REQUEST_END),
        SHAPE("\n", LINE_END),
        SHAPE("\rGET / HTTP/1.1\r\n", LINE_END),
    };
    check_shapes(shapes, COUNT_OF(shapes));
}

TEST(header_lines_have_one_form)
{
    static const struct shape shapes[] = {
        HEADER("X: a\r\n b\r\n", FOLD),
        HEADER("Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n", ENCODING),
        HEADER("X:\r\n\tTransfer-Encoding: chunked\r\n", FOLD),
        SHAPE("GET / HTTP/1.1\r\n Host: a\r\n\r\n", FOLD),
        HEADER("X: a\rTransfer-Encoding: chunked\r\n", LINE_END),
        HEADER("X: a\nTransfer-Encoding: chunked\r\n", LINE_END),
        HEADER("X: a\r\r\n", LINE_END),
        SHAPE("GET / HTTP/1.1\r\nHost: a\r\n\n", LINE_END),
        SHAPE("GET / HTTP/1.1\r\nHost: a\r\n\r\r", LINE_END),
        HEADER("X: a\0b\r\n", CONTROL),
        HEADER("Authorization: Bearer K\0x\r\n", CONTROL),
        HEADER("X: \x0b\r\n", CONTROL),
        HEADER("X: \x7f\r\n", CONTROL),
        HEADER("X : a\r\n", NAME),
        HEADER("X\t: a\r\n", NAME),
        HEADER(": a\r\n", NAME),
        HEADER("abc\r\n", NAME),
        HEADER("Content-\0Length: 5\r\n", NAME),
        HEADER("X\xe4: a\r\n", NAME),
        HEADER("(X): a\r\n", NAME),
        HEADER("\0\r\n", NAME),
    };
    check_shapes(shapes, COUNT_OF(shapes));
}

TEST(what_decides_stands_once)
{
    static const struct shape shapes[] = {
        HEADER("Host: a\r\n", DUPLICATE),
        HEADER("Content-Length: 0\r\nContent-Length: 42\r\n", DUPLICATE),
        HEADER("Content-Length: 42\r\nContent-Length: 0\r\n", DUPLICATE),
        HEADER("Content-Length: 2\r\nCONTENT-LENGTH: 2\r\n", DUPLICATE),
        HEADER("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", DUPLICATE),
        HEADER("Authorization: Bearer a\r\nX: b\r\nauthorization: Bearer b\r\n", DUPLICATE),
        HEADER("x-api-key: a\r\nX-API-Key: a\r\n", DUPLICATE),
        HEADER("Origin: a\r\nOrigin: a\r\n", DUPLICATE),
        SHAPE("GET / HTTP/1.1\r\nX: Host\r\n\r\n", HOST_MISSING),
        HEADER("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", TWO_LENGTHS),
        HEADER("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", TWO_LENGTHS),
        SHAPE("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", ENCODING_1_0),
        SHAPE("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", HOST),
        SHAPE("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HOST),
        SHAPE("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", HOST),
        SHAPE("GET / HTTP/1.1\r\nHost: a\0.b\r\n\r\n", CONTROL),
    };
    check_shapes(shapes, COUNT_OF(shapes));
}

TEST(lengths_and_encodings_have_one_form)
{
    static const struct shape shapes[] = {
        HEADER("Content-Length: abc\r\n", LENGTH),
        HEADER("Content-Length: -5\r\n", LENGTH),
        HEADER("Content-Length: +5\r\n", LENGTH),
        HEADER("Content-Length: 1.5\r\n", LENGTH),
        HEADER("Content-Length: 0x5\r\n", LENGTH),
        HEADER("Content-Length:\r\n", LENGTH),
        HEADER("Content-Length: \r\n", LENGTH),
        HEADER("Content-Length: 5, 5\r\n", LENGTH),
        HEADER("Content-Length: 5 \r\n", LENGTH),
        HEADER("Content-Length: 5 5\r\n", LENGTH),
        HEADER("Content-Length: 0\0\r\n", CONTROL),
        HEADER("Content-Length: \xd9\xa5\r\n", LENGTH),
        HEADER("Content-Length: 9999999999999999999999999999999999999999\r\n", LENGTH_HUGE),
        HEADER("Content-Length: 18446744073709551615\r\n", LENGTH_HUGE),
        HEADER("Content-Length: 18446744073709551616\r\n", LENGTH_HUGE),
        HEADER("Transfer-Encoding: identity\r\n", ENCODING),
        HEADER("Transfer-Encoding: chunked, identity\r\n", ENCODING),
        HEADER("Transfer-Encoding: gzip, chunked\r\n", ENCODING),
        HEADER("Transfer-Encoding: xchunked\r\n", ENCODING),
        HEADER("Transfer-Encoding: chunke\r\n", ENCODING),
        HEADER("Transfer-Encoding: \"chunked\"\r\n", ENCODING),
        HEADER("Transfer-Encoding: chunked \r\n", ENCODING),
        HEADER("Transfer-Encoding:\tchunked\x0b\r\n", CONTROL),
        HEADER("Transfer-Encoding:\r\n", ENCODING),
    };
    check_shapes(shapes, COUNT_OF(shapes));
}

TEST(chunks_have_one_form)
{
    static const struct shape shapes[] = {
        CHUNKED("0x5\r\nhello\r\n0\r\n\r\n", CHUNK),
        CHUNKED("+5\r\n", CHUNK),
        CHUNKED("-1\r\n", CHUNK),
        CHUNKED(" 5\r\n", CHUNK),
        CHUNKED("5 \r\n", CHUNK),
        CHUNKED("5 ;x\r\n", CHUNK),
        CHUNKED("\r\n", CHUNK),
        CHUNKED(";x\r\n", CHUNK),
        CHUNKED("5\nhello\r\n", CHUNK),
        CHUNKED("5\rhello\r\n", CHUNK),
        CHUNKED("5;a\nhello\r\n", CHUNK),
        CHUNKED("5;a\0\r\nhello\r\n", CHUNK),
        CHUNKED("5\r\nhello0\r\n\r\n", CHUNK),
        CHUNKED("5\r\nhello\n0\r\n\r\n", CHUNK),
        CHUNKED("5\r\nab\r\n0\r\n\r\n", CHUNK),
        CHUNKED("10000000000000000\r\n", CHUNK),
        CHUNKED("00000000000000005\r\n", CHUNK),
        CHUNKED("0\r\nContent-Length: 5\r\n\r\n", TRAILER),
        CHUNKED("0\r\nAuthorization: x\r\n\r\n", TRAILER),
        CHUNKED("0\r\n x\r\n\r\n", FOLD),
        CHUNKED("0\r\nX\r\n\r\n", NAME),
        CHUNKED("0\r\nX: a\n\r\n", LINE_END),
        CHUNKED("0\n\n", CHUNK),
    };
    check_shapes(shapes, COUNT_OF(shapes));
}

/* A request with `count` times `line` after the Host. */
static enum http_fault fault_of(const char *line, int count, const char *rest)
{
    char text[8192] = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (int i = 0; i < count; i++)
        strcat(text, line);
    strcat(text, rest);
    return judge(slice_of(text)).fault;
}

TEST(headers_have_limits)
{
    assert_int_equal(fault_of("X: 0123456789\r\n", 10, "\r\n"), HTTP_FAULT_NONE);
    assert_int_equal(
        fault_of("X: 0123456789012345678901234567890123456789012345678901234567890123456789\r\n", 14, ""),
        HTTP_FAULT_HEADER_LONG);
    assert_int_equal(fault_of("a:\r\n", 15, "\r\n"), HTTP_FAULT_NONE);
    assert_int_equal(fault_of("a:\r\n", 16, "\r\n"), HTTP_FAULT_FIELDS);
    assert_int_equal(fault_of("Cookie: a;b;c;d;e;f;g;h;i;j;k;l;m;n;o\r\n", 1, ""), HTTP_FAULT_FIELDS);
    char text[4096] = "GET /?a";
    for (int i = 0; i < 17; i++)
        strcat(text, "&b");
    assert_int_equal(judge(slice_of(text)).fault, HTTP_FAULT_FIELDS);
    memset(text + 5, 'a', 2000);
    text[2005] = 0;
    assert_int_equal(judge(slice_of(text)).fault, HTTP_FAULT_TARGET_LONG);
    memset(text, '\r', 2000);
    for (int i = 1; i < 2000; i += 2)
        text[i] = '\n';
    assert_int_equal(judge(slice_of(text)).fault, HTTP_FAULT_TARGET_LONG);
}

TEST(trailers_share_the_limits_of_their_header)
{
    char text[4096] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    for (int i = 0; i < 20; i++)
        strcat(text, "a:\r\n");
    assert_int_equal(judge(slice_of(text)).fault, HTTP_FAULT_FIELDS);
    char extension[512] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;";
    memset(extension + strlen(extension), 'x', 300);
    assert_int_equal(judge(slice_of(extension)).fault, HTTP_FAULT_CHUNK);
}

TEST(what_ends_before_the_fault_is_good)
{
    static const char first[] =
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
        "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nG\r\n\0"
        "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\n\n\r\n0\r\n\r\n";
    static const char rest[] = "GET /d HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n";
    char text[512];
    memcpy(text, first, sizeof(first) - 1);
    memcpy(text + sizeof(first) - 1, rest, sizeof(rest) - 1);
    struct verdict v = judge((struct slice){text, sizeof(first) + sizeof(rest) - 2});
    assert_int_equal(v.fault, HTTP_FAULT_NAME);
    assert_int_equal(v.requests, 3);
    assert_int_equal(v.headers, 3);
    assert_int_equal(v.good, sizeof(first) - 1);
}

/* ---- kept heads ---- */

static char kept_text[1024];
static struct http_field kept_fields[16];

static struct slice kept_slice(const struct http_head *h, uint32_t at, uint32_t bytes)
{
    return (struct slice){h->text + at, bytes};
}

static void check_field(const struct http_head *h, uint32_t index, const char *name, const char *value)
{
    const struct http_field *f = &h->fields[index];
    if (!slice_eq(kept_slice(h, f->name, f->name_bytes), slice_of(name)) ||
        !slice_eq(kept_slice(h, f->value, f->value_bytes), slice_of(value)))
        fail_msg("field %u is not %s: %s", index, name, value);
}

TEST(the_kept_head_is_what_came)
{
    static const char text[] = "GET /a?b HTTP/1.0\r\nHost: x\r\nX-Y:\t v w \t\r\nEmpty: \r\n\r\n"
                               "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "2\r\nab\r\n0\r\nTrailer: t\r\n\r\n";
    static const size_t get_bytes =
        sizeof("GET /a?b HTTP/1.0\r\nHost: x\r\nX-Y:\t v w \t\r\nEmpty: \r\n\r\n") - 1;
    struct http_head h = {.text = kept_text, .fields = kept_fields, .fields_max = COUNT_OF(kept_fields)};
    struct http_raw w;
    http_raw_init(&w, &limits);
    http_raw_keep(&w, &h);
    size_t at = http_raw_feed(&w, text, sizeof(text) - 1);
    assert_int_equal(at, get_bytes);
    assert_int_equal(w.events, HTTP_RAW_HEAD | HTTP_RAW_END);
    assert_true(slice_eq(kept_slice(&h, 0, h.method_bytes), SLICE("GET")));
    assert_true(slice_eq(kept_slice(&h, h.method_bytes, h.target_bytes), SLICE("/a?b")));
    assert_int_equal(h.header_count, 3);
    check_field(&h, 0, "Host", "x");
    check_field(&h, 1, "X-Y", "v w");
    check_field(&h, 2, "Empty", "");
    assert_true(h.http_1_0 && !h.chunked && h.length == 0 && h.bytes == get_bytes);
    at += http_raw_feed(&w, text + at, sizeof(text) - 1 - at);
    assert_int_equal(w.events, HTTP_RAW_HEAD);
    assert_true(!h.http_1_0 && h.chunked && h.header_count == 2);
    at += http_raw_feed(&w, text + at, sizeof(text) - 1 - at);
    assert_int_equal(w.events, HTTP_RAW_BODY);
    assert_int_equal(w.payload_bytes, 2);
    assert_memory_equal(text + at - 2, "ab", 2);
    /* A trailer is judged, and not kept. */
    at += http_raw_feed(&w, text + at, sizeof(text) - 1 - at);
    assert_int_equal(w.events, HTTP_RAW_END);
    assert_int_equal(at, sizeof(text) - 1);
    assert_int_equal(h.header_count, 2);
    check_field(&h, 1, "Transfer-Encoding", "chunked");
}

TEST(a_head_as_large_as_may_be_is_kept)
{
    struct http_head h = {.text = kept_text, .fields = kept_fields, .fields_max = COUNT_OF(kept_fields)};
    struct http_raw w;
    char text[1200] = "GET /?a HTTP/1.1\r\nHost: a\r\n";
    for (int i = 0; i < 14; i++)
        strcat(text, i < 13 ? "x: y\r\n" : "long: ");
    size_t bytes = strlen(text);
    memset(text + bytes, 'v', 1024 - 4 - bytes);
    strcat(text, "\r\n\r\n");
    assert_int_equal(strlen(text), 1024);
    http_raw_init(&w, &limits);
    http_raw_keep(&w, &h);
    assert_int_equal(http_raw_feed(&w, text, strlen(text)), 1024);
    assert_int_equal(w.events, HTTP_RAW_HEAD | HTTP_RAW_END);
    assert_int_equal(h.header_count, 15);
    struct slice path, authority;
    assert_true(http_target_read(&h, &path, &authority));
    assert_int_equal(h.argument_count, 1);
}

static struct http_head head_of(const char *target)
{
    struct http_head h = {.text = kept_text, .fields = kept_fields, .fields_max = COUNT_OF(kept_fields)};
    struct http_raw w;
    char text[512];
    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a\r\nA: header\r\n\r\n", target);
    http_raw_init(&w, &limits);
    http_raw_keep(&w, &h);
    http_raw_feed(&w, text, strlen(text));
    assert_int_equal(w.events, HTTP_RAW_HEAD | HTTP_RAW_END);
    return h;
}

TEST(a_target_is_split_and_then_decoded)
{
    struct slice path, authority;
    struct slice value;
    struct http_head h = head_of("/x%3fy%2B+?a=1+2%263&empty&b%3d=c=d&&=e");
    assert_true(http_target_read(&h, &path, &authority));
    assert_true(slice_eq(path, SLICE("/x?y++")) && authority.len == 0);
    assert_true(http_head_find(&h, true, SLICE("A"), &value) && slice_eq(value, SLICE("1 2&3")));
    assert_true(http_head_find(&h, false, SLICE("a"), &value) && slice_eq(value, SLICE("header")));
    assert_true(http_head_find(&h, true, SLICE("empty"), &value) && value.len == 0);
    assert_true(http_head_find(&h, true, SLICE("b="), &value) && slice_eq(value, SLICE("c=d")));
    assert_false(http_head_find(&h, true, SLICE("host"), &value));
    assert_false(http_head_find(&h, false, SLICE("empty"), &value));
    h = head_of("http://name:1/path?q");
    assert_true(http_target_read(&h, &path, &authority));
    assert_true(slice_eq(authority, SLICE("name:1")) && slice_eq(path, SLICE("/path")));
    h = head_of("http://name");
    assert_true(http_target_read(&h, &path, &authority));
    assert_true(slice_eq(authority, SLICE("name")) && slice_eq(path, SLICE("/")));
    static const char *const bad[] = {"/%", "/%4", "/%zz", "/%00", "/?a=%", "/?%00", "/?a%4=1", "/?a=%4&1"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        h = head_of(bad[i]);
        if (http_target_read(&h, &path, &authority))
            fail_msg("taken: %s", bad[i]);
    }
}

TEST(it_rests_between_requests_only)
{
    struct http_raw w;
    http_raw_init(&w, &limits);
    const char *text = "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb";
    assert_true(http_raw_rests(&w));
    for (const char *c = text; *c; c++) {
        http_raw_feed(&w, c, 1);
        assert_int_equal(http_raw_rests(&w), c[1] == 0);
    }
}

PROPERTY(pieces_change_nothing, seed)
{
    static const char *const parts[] = {"GET / HTTP/1.1\r\n",
                                        "Host: a\r\n",
                                        "\r\n",
                                        "Content-Length: 3\r\n",
                                        "abc",
                                        "Transfer-Encoding: chunked\r\n",
                                        "3\r\nabc\r\n",
                                        "0\r\n",
                                        "X: y\r\n",
                                        "\n"};
    struct rng rng = {.seed = seed};
    char text[1024] = "";
    for (int i = 0; i < 12; i++)
        strcat(text, parts[rng_below(&rng, i < 3 ? 3 : COUNT_OF(parts))]);
    judge(slice_of(text));
}

TEST_MAIN()
