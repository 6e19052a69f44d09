/* Bytes that two readers could take for different requests get one answer, in the envelope, and no later byte
 * is read. */
#include "test_http_app.h"

#define NEXT    "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
#define POST    "POST /echo HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

struct bytes {
    char text[65536];
    size_t len;
};

/* All that comes until the server closes. */
static void read_to_the_end(int fd, struct bytes *ret)
{
    ssize_t n;
    ret->len = 0;
    while ((n = client_read(fd, ret->text + ret->len, sizeof(ret->text) - 1 - ret->len)) > 0)
        ret->len += (size_t)n;
    assert_int_equal(n, 0);
    ret->text[ret->len] = 0;
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* One answer of this status and code, whose length is right, and the end of the connection. */
static void check_one_answer(const char *text, int status, const char *code)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "HTTP/1.1 %d ", status);
    const char *body = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
    int heads = count(text, "HTTP/1.1 2") + count(text, "HTTP/1.1 4") + count(text, "HTTP/1.1 5");
    if (heads != 1 || strncmp(text, wanted, strlen(wanted)) != 0 || !body || !length)
        fail_msg("wanted one %d, got: %s", status, text);
    assert_int_equal(strtoul(length + 16, NULL, 10), strlen(body + 4));
    snprintf(wanted, sizeof(wanted), "\"code\":\"%s\"", code);
    if (!strstr(body, wanted) || strncmp(body + 4, "{\"error\":{\"message\":", 20) != 0)
        fail_msg("wanted %s, got: %s", code, text);
    assert_non_null(strstr(text, "Connection: close\r\n"));
    assert_non_null(strstr(text, "x-request-id: "));
}

/* In one piece, in two, and byte by byte; after another request too. */
static void expect_fault_of(const char *request, size_t len, int status, const char *code)
{
    struct bytes got;
    for (size_t piece = 0; piece < 3; piece++) {
        int fd = client_open();
        size_t first = piece == 1 ? len / 2 : piece == 2 ? 1 : len;
        for (size_t at = 0; at < len; at += first)
            client_send_bytes(fd, request + at, MIN_OF(first, len - at));
        client_send(fd, NEXT);
        read_to_the_end(fd, &got);
        check_one_answer(got.text, status, code);
        close(fd);
    }
    int fd = client_open();
    char both[8192] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nfirst";
    size_t before = strlen(both);
    memcpy(both + before, request, len);
    memcpy(both + before + len, NEXT, sizeof(NEXT));
    client_send_bytes(fd, both, before + len + sizeof(NEXT) - 1);
    read_to_the_end(fd, &got);
    const char *second = strstr(got.text, "first");
    assert_non_null(second);
    check_one_answer(second + 5, status, code);
    close(fd);
}

#define expect_fault(request, status, code) expect_fault_of(request, sizeof(request) - 1, status, code)

TEST(two_lengths_are_no_length)
{
    app_start((struct http_server_opts){0});
    expect_fault(POST "Content-Length: 0\r\nContent-Length: 42\r\n\r\n", 400, "duplicate_header");
    expect_fault(POST "Content-Length: 42\r\nContent-Length: 0\r\n\r\n", 400, "duplicate_header");
    expect_fault(POST "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400, "duplicate_header");
    expect_fault(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
                 "ambiguous_length");
    expect_fault(POST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400,
                 "ambiguous_length");
    expect_fault("POST /echo HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: "
                 "keep-alive\r\n\r\n0\r\n\r\n",
                 400, "transfer_encoding");
    expect_fault(POST "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 501,
                 "transfer_encoding");
    expect_fault(POST "X: a\r\n Content-Length: 35\r\n\r\n", 400, "folded_header");
    expect_fault(POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501, "transfer_encoding");
    app_stop();
    assert_int_equal(app.begun, app.completed);
}

TEST(hidden_bytes_are_seen)
{
    app_start((struct http_server_opts){0});
    expect_fault(POST "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400, "bad_line_end");
    expect_fault(POST "X: a\nTransfer-Encoding: chunked\r\n\r\n", 400, "bad_line_end");
    expect_fault(POST "Content-Length: 0\0\r\n\r\n", 400, "bad_header");
    expect_fault(POST "Authorization: Bearer K\0x\r\n\r\n", 400, "bad_header");
    expect_fault("GET /echo HTTP/1.1\r\nHost: localhost\0.evil\r\n\r\n", 400, "bad_header");
    expect_fault(POST "Content-\0Length: 5\r\n\r\n", 400, "bad_header");
    expect_fault(POST "\0\r\n\r\n", 400, "bad_header");
    expect_fault("GET /ec\0ho HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target");
    app_stop();
    assert_int_equal(app.begun, app.completed);
}

TEST(lengths_that_are_none_have_one_answer)
{
    app_start((struct http_server_opts){0});
    expect_fault(POST "Content-Length: abc\r\n\r\n{}", 400, "bad_length");
    expect_fault(POST "Content-Length: -5\r\n\r\n{}", 400, "bad_length");
    expect_fault(POST "Content-Length: +5\r\n\r\n{}", 400, "bad_length");
    expect_fault(POST "Content-Length: 1.5\r\n\r\n{}", 400, "bad_length");
    expect_fault(POST "Content-Length: \r\n\r\n", 400, "bad_length");
    expect_fault(POST "Content-Length: 5, 5\r\n\r\nhello", 400, "bad_length");
    expect_fault(POST "Content-Length: 9999999999999999999999999999999999999999\r\n\r\n{}", 413,
                 "body_too_large");
    expect_fault(POST "Content-Length: 18446744073709551615\r\n\r\n{}", 413, "body_too_large");
    app_stop();
}

TEST(credentials_stand_once)
{
    app_start((struct http_server_opts){0});
    expect_fault(POST "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400, "duplicate_header");
    expect_fault(POST "X-API-Key: a\r\nContent-Length: 0\r\nx-api-key: a\r\n\r\n", 400, "duplicate_header");
    app_stop();
}

TEST(what_is_no_request_is_answered_in_words)
{
    app_start((struct http_server_opts){.header_bytes_max = 2048});
    expect_fault("nonsense\r\n\r\n", 400, "bad_request_line");
    expect_fault("GET /echo\r\n\r\n", 400, "bad_request_line");
    expect_fault("GET /echo HTTP/1.1\n\n", 400, "bad_request_line");
    expect_fault("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version");
    expect_fault("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "not_http");
    expect_fault(POST "abc\r\n\r\n", 400, "bad_header");
    expect_fault(POST "Content-Length : 5\r\n\r\nhello", 400, "bad_header");
    expect_fault("GET /echo HTTP/1.1\r\n\r\n", 400, "host_missing");
    app_stop();
}

TEST(a_request_line_without_end_is_not_answered)
{
    struct bytes got;
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(fd, "GET /echo HTTP/1.1\rHost: a\r\r" NEXT);
    read_to_the_end(fd, &got);
    assert_int_equal(got.len, 0);
    close(fd);
    app_stop();
}

TEST(broken_chunks_end_the_connection)
{
    app_start((struct http_server_opts){0});
    expect_fault(CHUNKED "0x5\r\nhello\r\n0\r\n\r\n", 400, "bad_chunk");
    expect_fault(CHUNKED "5\nhello\n0\n\n", 400, "bad_chunk");
    expect_fault(CHUNKED "5\r\nhello\r\n5 \r\nhello\r\n0\r\n\r\n", 400, "bad_chunk");
    expect_fault(CHUNKED "2\r\nabc\r\n0\r\n\r\n", 400, "bad_chunk");
    expect_fault(CHUNKED "10000000000000000\r\nx", 400, "bad_chunk");
    expect_fault(CHUNKED "0\r\nContent-Length: 5\r\n\r\n", 400, "bad_trailer");
    app_stop();
    assert_int_equal(app.begun, app.completed + app.broken);
}

TEST(a_head_is_refused_without_a_body)
{
    struct bytes got;
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(fd, "HEAD /echo HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n");
    read_to_the_end(fd, &got);
    assert_int_equal(count(got.text, "HTTP/1.1 400 "), 1);
    assert_int_equal(strcmp(got.text + got.len - 4, "\r\n\r\n"), 0);
    close(fd);
    app_stop();
}

TEST(a_fault_waits_for_the_answers_before_it)
{
    struct bytes got;
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(
        fd, "GET /later HTTP/1.1\r\nHost: a\r\n\r\nGET /stream?count=3&bytes=5 HTTP/1.1\r\nHost: a\r\n\r\n"
            "GET /echo HTTP/1.1\r\nHost: a\r\n x\r\n\r\n" NEXT);
    read_to_the_end(fd, &got);
    const char *now = strstr(got.text, "now"), *last = strstr(got.text, "HTTP/1.1 400");
    assert_true(now && last && last > now && strstr(now, "abcde") && strstr(last, "folded_header"));
    assert_int_equal(count(got.text, "HTTP/1.1 "), 3);
    close(fd);
    /* After an answer that closes, later bytes get no answer. */
    fd = client_open();
    client_send(fd, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /echo HTTP/1.1\r\n x\r\n");
    read_to_the_end(fd, &got);
    assert_int_equal(count(got.text, "HTTP/1.1 "), 1);
    assert_non_null(strstr(got.text, "HTTP/1.1 200"));
    close(fd);
    /* Nor after a refusal that does not wait for the body. */
    fd = client_open();
    client_send(fd,
                "POST /refuse HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n");
    read_to_the_end(fd, &got);
    assert_int_equal(count(got.text, "HTTP/1.1 "), 1);
    close(fd);
    app_stop();
}

TEST(a_fault_reaches_a_client_that_keeps_sending)
{
    app_start((struct http_server_opts){.body_bytes_max = 64 << 20});
    char *block = calloc(1, 1 << 20);
    for (int i = 0; i < 5; i++) {
        int fd = client_open();
        client_send(fd, POST "Content-Length: 8000000\r\nX : y\r\n\r\n");
        for (int k = 0; k < 8; k++)
            client_send_bytes(fd, block, 1 << 20);
        client_expect(fd, "", 400, "bad_header");
        close(fd);
    }
    free(block);
    app_stop();
    assert_int_equal(app.begun, 0);
}

TEST(requests_as_large_as_may_be_fit_the_library)
{
    /* Headers, arguments and cookies up to the limit, one after another in one write. */
    app_start((struct http_server_opts){0});
    char request[16384] = "GET /echo?a";
    for (int i = 0; i < 20; i++)
        strcat(request, "&b=c");
    strcat(request, " HTTP/1.1\r\nHost: a\r\nCookie: d=e");
    for (int i = 0; i < 20; i++)
        strcat(request, "; f=g");
    strcat(request, "\r\n");
    for (int i = 0; i < 37; i++)
        strcat(request, "x-h: i\r\n");
    size_t fixed = strlen(request);
    for (size_t pad = 0; pad <= 7168; pad += 1024) {
        request[fixed] = 0;
        strcat(request, "x-pad: ");
        memset(request + fixed + 7, 'p', pad);
        strcpy(request + fixed + 7 + pad, "\r\n\r\n");
        if (strlen(request) > 8192)
            break;
        int fd = client_open();
        char *many = calloc(8, sizeof(request));
        for (int i = 0; i < 8; i++)
            strcat(many, request);
        client_send(fd, many);
        for (int got = 0; got < 8;) {
            char text[16384];
            ssize_t n = client_read(fd, text, sizeof(text) - 1);
            assert_true(n > 0);
            text[n] = 0;
            assert_int_equal(count(text, "HTTP/1.1 431"), 0);
            got += count(text, "HTTP/1.1 200");
        }
        free(many);
        close(fd);
    }
    app_stop();
    assert_true(app.completed >= 7 * 8);
}

TEST_MAIN()
