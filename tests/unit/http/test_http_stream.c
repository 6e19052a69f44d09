/* Streams: bounded by their buffer, whole in the end, ended when their client goes. */
#include "base/buf.h"
#include "base/slice.h"
#include "http/http_request.h"
#include "http/http_state.h"
#include "test_http_app.h"

/* Reads a whole stream of `count` messages of `bytes` letters, and compares each message. */
static void expect_stream(int fd, uint64_t count, uint64_t bytes)
{
    struct answer a = client_answer(fd, false);
    assert_int_equal(a.status, 200);
    assert_int_equal(a.body_bytes, count * bytes);
    char *message = malloc(bytes);
    assert_non_null(message);
    for (uint64_t i = 0; i < bytes; i++)
        message[i] = (char)('a' + i % 26);
    for (uint64_t n = 0; n < count; n++)
        assert_memory_equal(a.body + n * bytes, message, bytes);
    free(message);
    answer_done(&a);
}

static void send_stream(int fd, unsigned count, unsigned bytes)
{
    char request[128];
    snprintf(request, sizeof(request), "GET /stream?count=%u&bytes=%u HTTP/1.1\r\nHost: a\r\n\r\n", count,
             bytes);
    client_send(fd, request);
}

TEST(streams_of_all_sizes_arrive_whole)
{
    app_start((struct http_server_opts){.send_bytes_max = 4096});
    static const unsigned sizes[][2] = {{0, 1},     {1, 1},      {1, 4096},  {2, 4096},   {1000, 7},
                                        {100, 997}, {200, 4095}, {50, 2048}, {3000, 2049}};
    int fd = client_open();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        send_stream(fd, sizes[i][0], sizes[i][1]);
        expect_stream(fd, sizes[i][0], sizes[i][1]);
    }
    close(fd);
    app_stop();
    assert_int_equal(app.completed, COUNT_OF(sizes));
    assert_true(app.refused_writes > 0 && app.writable > 0);
}

TEST(what_is_written_outside_of_the_library_goes_out_at_once)
{
    app_start((struct http_server_opts){.send_bytes_max = 4096});
    int fd = client_open();
    uint64_t start = clock_now_ns();
    /* Each message fills the buffer, so each but the first is written by `writable`. */
    send_stream(fd, 40, 4096);
    expect_stream(fd, 40, 4096);
    assert_true(clock_now_ns() - start < NS_PER_S);
    assert_true(app.writable >= 39);
    close(fd);
    app_stop();
}

TEST(a_slow_reader_stops_its_own_stream_and_gets_all_of_it_at_last)
{
    app_start((struct http_server_opts){.connections_max = 8});
    uint64_t reserved = account_numbers(app.account).reserved;
    int slow = client_open_small(4096);
    send_stream(slow, 20000, 1000);
    app_wait(&app.refused_writes, 1);
    usleep(700000);
    /* It waits: nothing has grown, its age shows, and others are served. */
    int writable = app.writable;
    expect_once("GET /stream?count=100&bytes=100 HTTP/1.1\r\nHost: a\r\n\r\n", 200, "abc");
    assert_int_equal(account_numbers(app.account).reserved, reserved);
    assert_true(account_numbers(app.account).used <= reserved);
    assert_true(app.stalled_ns_max > 300 * NS_PER_MS);
    assert_int_equal(app.writable, writable);
    expect_stream(slow, 20000, 1000);
    close(slow);
    app_stop();
    assert_int_equal(app.completed, 2);
    assert_true(app.writable > writable);
}

TEST(the_kernel_holds_little_of_a_stream_that_is_not_read)
{
    app_start((struct http_server_opts){0});
    int slow = client_open_small(4096);
    send_stream(slow, 20000, 1000);
    app_wait(&app.refused_writes, 1);
    usleep(300000);
    /* Its own buffer, the library's chunk, 64 KiB that the kernel doubles, the client's window. */
    assert_true(http_server_counters(app.server).bytes_out < 512 << 10);
    close(slow);
    app_wait(&app.broken, 1);
    app_stop();
}

TEST(a_client_that_leaves_its_stream_is_noticed)
{
    app_start((struct http_server_opts){0});
    /* A silent stream, one in the middle, and one that its client does not read. */
    static const char *const requests[] = {"GET /open HTTP/1.1\r\nHost: a\r\n\r\n",
                                           "GET /stream?count=1000000&bytes=100 HTTP/1.1\r\nHost: a\r\n\r\n"};
    for (int i = 0; i < 6; i++) {
        int fd = client_open_small(4096);
        client_send(fd, requests[i % 2]);
        char text[64];
        assert_true(client_read(fd, text, sizeof(text)) > 0);
        if (i % 3 == 0)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(fd);
        app_wait(&app.broken, i + 1);
    }
    app_stop();
    assert_int_equal(app.completed, 0);
}

TEST(places_of_clients_that_left_are_free_while_an_older_one_is_silent)
{
    app_start((struct http_server_opts){.connections_max = 4});
    static const char *const requests[] = {"GET /open HTTP/1.1\r\nHost: a\r\n\r\n",
                                           "GET /stream?count=1000000&bytes=100 HTTP/1.1\r\nHost: a\r\n\r\n",
                                           "GET /stream?count=1000000&bytes=5 HTTP/1.1\r\nHost: a\r\n\r\n"};
    char text[64];
    int oldest = client_open();
    client_expect(oldest, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET /echo");
    for (int i = 0; i < 30; i++) {
        int fd = client_open();
        client_send(fd, requests[i % 3]);
        assert_true(client_read(fd, text, sizeof(text)) > 12);
        assert_memory_equal(text, "HTTP/1.1 200", 12);
        close(fd);
        app_wait(&app.broken, i + 1);
    }
    for (int i = 0; i < 100 && http_server_counters(app.server).connections_now > 1; i++)
        usleep(10000);
    assert_int_equal(http_server_counters(app.server).connections_now, 1);
    close(oldest);
    app_stop();
}

TEST(a_head_of_a_stream_has_no_body)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_expect(fd, "HEAD /stream?count=3&bytes=10 HTTP/1.1\r\nHost: a\r\n\r\n", 200, "");
    client_expect(fd, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET /echo");
    close(fd);
    app_stop();
    assert_int_equal(app.completed, 2);
}

TEST(a_stop_ends_streams)
{
    app_start((struct http_server_opts){0});
    int fds[20];
    for (size_t i = 0; i < COUNT_OF(fds); i++) {
        fds[i] = client_open_small(4096);
        if (i % 2)
            send_stream(fds[i], 1000000, 100);
        else
            client_send(fds[i], "GET /open HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    app_wait(&app.ready, COUNT_OF(fds));
    app_stop();
    assert_int_equal(app.broken, COUNT_OF(fds));
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        close(fds[i]);
}

/* The calls' own limits, asked from inside a handler. */
static int limits_begin(void *arg, struct http_request *r)
{
    (void)arg;
    (void)r;
    return 0;
}

static void limits_ready(void *arg, struct http_request *r)
{
    char client[HTTP_CLIENT_TEXT_MAX], long_value[HTTP_HEADER_BYTES];
    struct slice value;
    struct buf body;
    (void)arg;
    http_request_client(r, client);
    ASSERT(strncmp(client, "127.0.0.1:", 10) == 0);
    struct http_client_net net = http_request_client_net(r);
    ASSERT(memcmp(net.bytes, (char[]){1, 0, 0, 0, 127, 0, 0, 1}, sizeof(net.bytes)) == 0);
    ASSERT(http_request_listener(r) == 0);
    ASSERT(http_request_header(r, "x-name", &value) && slice_eq(value, SLICE("value")));
    ASSERT(!http_request_header(r, "x-other", &value) && !http_request_query(r, "b", &value));
    ASSERT(http_request_query(r, "a", &value) && slice_eq(value, SLICE("1 2&3")));
    ASSERT(http_request_query(r, "empty", &value) && value.len == 0);
    http_request_body_take(r, &body);
    ASSERT(slice_eq(buf_slice(&body), SLICE("body")) && http_request_body(r).len == 0);
    buf_done(&body);
    ASSERT(http_header_set(r, "", "x") == -EINVAL && http_header_set(r, "a b", "x") == -EINVAL);
    ASSERT(http_header_set(r, "a", "x\r\nb: c") == -EINVAL && http_header_set(r, "a:", "x") == -EINVAL);
    memset(long_value, 'x', sizeof(long_value));
    long_value[sizeof(long_value) - 1] = 0;
    ASSERT(http_header_set(r, "a", long_value) == -ENOSPC);
    for (int i = 0; i < HTTP_HEADERS_MAX; i++)
        ASSERT(http_header_set(r, "x-header", "one of them") == 0);
    ASSERT(http_header_set(r, "a", "x") == -ENOSPC);
    ASSERT(http_stream_free_bytes(r) == 0 && http_stream_stalled_ns(r) == 0);
    ASSERT(http_stream_begin(r, 202, "text/plain") == 0);
    ASSERT(http_stream_free_bytes(r) == 2048 &&
           http_stream_write(r, (struct slice){app.letters, 2049}) == -EMSGSIZE);
    ASSERT(http_stream_write(r, (struct slice){app.letters, 2000}) == 0 && http_stream_free_bytes(r) == 48);
    ASSERT(http_stream_write(r, (struct slice){app.letters, 49}) == -EAGAIN &&
           http_stream_free_bytes(r) == 48);
    ASSERT(http_stream_write(r, (struct slice){app.letters, 48}) == 0 && http_stream_free_bytes(r) == 0);
    ASSERT(http_stream_write(r, SLICE("")) == 0);
    http_stream_end(r);
    app.ready++;
}

static void limits_ended(void *arg, struct http_request *r, bool completed)
{
    (void)arg;
    ASSERT(http_stream_free_bytes(r) == 0);
    if (completed)
        app.completed++;
}

TEST(what_a_request_tells_and_what_its_calls_refuse)
{
    struct http_server_opts opts = {
        .host = "127.0.0.1",
        .connections_max = 4,
        .send_bytes_max = 2048,
        .network = test_account(ACCOUNT_NO_LIMIT),
        .handler = {limits_begin, limits_ready, NULL, limits_ended, NULL},
    };
    memset(&app, 0, sizeof(app));
    memset(app.letters, 'a', sizeof(app.letters));
    assert_int_equal(http_server_create(&opts, NULL, &app.server), 0);
    int fd = client_open();
    client_send(
        fd, "POST /x?a=1+2%263&empty HTTP/1.1\r\nHost: a\r\nX-NAME: value\r\nContent-Length: 4\r\n\r\nbody");
    for (int i = 0; i < 100 && app.completed == 0; i++)
        assert_int_equal(http_server_turn(app.server, 10), 0);
    struct answer a = client_answer(fd, false);
    assert_int_equal(a.status, 202);
    assert_int_equal(a.body_bytes, 2048);
    assert_non_null(answer_header(&a, "x-header: one of them"));
    answer_done(&a);
    close(fd);
    http_server_free(app.server);
    assert_int_equal(app.completed, 1);
}

TEST_MAIN()
