/* Requests in, answers out: what HTTP/1.1 demands, and how a request ends. */
#include "base/err.h"
#include "http/http_state.h"
#include "test_http_app.h"

TEST(a_get_and_a_post_are_answered)
{
    app_start((struct http_server_opts){0});
    expect_once("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET /echo");
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    expect_once("GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n", 404, "no such path");
    app_wait(&app.completed, 3);
    struct http_counters n = http_server_counters(app.server);
    assert_int_equal(n.requests_total, 3);
    assert_int_equal(n.answers[2], 2);
    assert_int_equal(n.answers[4], 1);
    assert_int_equal(n.requests_now, 0);
    assert_true(n.bytes_in > 5 && n.bytes_out >= 5);
    app_stop();
}

TEST(a_connection_serves_one_request_after_another)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    for (int i = 0; i < 20; i++) {
        client_expect(fd, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET /echo");
        client_expect(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 200, "abc");
        client_expect(fd, "HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "");
        client_expect(fd, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 404, "");
        client_expect(fd, "DELETE /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "DELETE /echo");
        client_expect(fd, "GET /stream?count=3&bytes=10 HTTP/1.1\r\nHost: a\r\n\r\n", 200,
                      "abcdefghijabcdefghijabc");
    }
    client_expect(fd, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n", 200, "now");
    assert_int_equal(http_server_counters(app.server).connections_total, 1);
    close(fd);
    app_stop();
    assert_int_equal(app.completed, 121);
}

TEST(each_status_has_a_phrase)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    for (int status = 200; status < 600; status++) {
        char request[64];
        snprintf(request, sizeof(request), "GET /status?of=%d HTTP/1.1\r\nHost: a\r\n\r\n", status);
        client_send(fd, request);
        struct answer a = client_answer(fd, status == 204);
        assert_int_equal(a.status, status);
        assert_true(a.head[13] >= 'A' && a.head[13] <= 'Z');
        assert_true(!answer_header(&a, "Content-Length: ") == (status == 204));
        if (status == 404 || status == 499)
            assert_memory_equal(a.head + 13, status == 404 ? "Not Found\r\n" : "Unknown\r\n", 9);
        answer_done(&a);
    }
    close(fd);
    app_stop();
    assert_int_equal(app.completed, 400);
}

TEST(a_refusal_without_a_body_keeps_the_connection)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_expect(fd, "GET /refuse HTTP/1.1\r\nHost: a\r\n\r\n", 401, "who?");
    client_expect(fd, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET");
    close(fd);
    app_stop();
    assert_int_equal(app.ready, 1);
}

TEST(pipelined_requests_are_answered_in_order)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(fd,
                "GET /later HTTP/1.1\r\nHost: a\r\n\r\n"
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none"
                "GET /stream?count=2&bytes=3 HTTP/1.1\r\nHost: a\r\n\r\n"
                "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n"
                "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    /* One read may hold several answers; all of them, then the end. */
    char text[8192];
    size_t len = 0;
    ssize_t n;
    while ((n = client_read(fd, text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = 0;
    const char *at = text;
    static const char *const parts[] = {"now", "one", "abcabc", "two", "GET /echo"};
    if (strstr(text, "abcabc") == NULL)
        assert_non_null(strstr(text, "abc\r\n")); /* two chunks */
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (i == 2)
            continue;
        at = strstr(at, parts[i]);
        assert_non_null(at);
    }
    close(fd);
    app_stop();
    assert_int_equal(app.completed, 5);
}

TEST(bodies_come_chunked_in_pieces_and_after_100_continue)
{
    app_start((struct http_server_opts){0});
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                "5;x=y\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n",
                200, "hello 0123456789");
    int fd = client_open();
    const char *slow = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nslow";
    for (const char *c = slow; *c; c++) {
        client_send_bytes(fd, c, 1);
        usleep(300);
    }
    client_expect(fd, "", 200, "slow");
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    char text[64];
    ssize_t n = client_read(fd, text, sizeof(text));
    assert_true(n > 12 && memcmp(text, "HTTP/1.1 100", 12) == 0);
    client_expect(fd, "ok", 200, "ok");
    close(fd);
    app_stop();
}

TEST(http_1_0_is_answered_and_closed)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(fd, "GET /stream?count=100&bytes=1000 HTTP/1.0\r\n\r\n");
    struct answer a = client_answer(fd, false);
    assert_int_equal(a.status, 200);
    assert_null(answer_header(&a, "Transfer-Encoding"));
    assert_true(a.closed);
    assert_int_equal(a.body_bytes, 100000);
    answer_done(&a);
    close(fd);
    fd = client_open();
    client_expect(fd, "GET /echo HTTP/1.0\r\n\r\n", 200, "GET /echo");
    client_expect_close(fd);
    close(fd);
    app_stop();
    assert_int_equal(app.completed, 2);
}

TEST(paths_are_decoded_and_must_be_whole)
{
    app_start((struct http_server_opts){0});
    expect_once("GET /%65ch%6f?x=%41 HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET /echo");
    expect_once("GET http://a/echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET /echo");
    expect_once("GET http://A:1?x HTTP/1.1\r\nHost: a:1\r\n\r\n", 404, "");
    expect_once("GET http://b/echo HTTP/1.1\r\nHost: a\r\n\r\n", 400, "host_mismatch");
    expect_once("GET http://u@a/echo HTTP/1.1\r\nHost: a\r\n\r\n", 400, "host_mismatch");
    expect_once("GET https://a/echo HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target");
    expect_once("GET /echo%00/x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target");
    expect_once("GET /echo%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target");
    expect_once("GET /echo% HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target");
    expect_once("GET /echo?a=%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target");
    expect_once("GET echo HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target");
    app_stop();
    assert_int_equal(app.begun, 3);
}

TEST(ambiguous_framing_is_refused)
{
    app_start((struct http_server_opts){0});
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400,
                "duplicate_header");
    expect_once(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400, "ambiguous_length");
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501,
                "transfer_encoding");
    expect_once("GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "duplicate_header");
    expect_once("GET /echo HTTP/1.1\r\n\r\n", 400, "host_missing");
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400, "");
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, "");
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", 400, "");
    expect_once("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target");
    int fd = client_open();
    client_send(fd, "nonsense\r\n\r\n");
    client_expect_close(fd);
    close(fd);
    app_stop();
    assert_int_equal(app.begun, 0);
}

TEST(a_client_that_leaves_while_its_request_waits_is_noticed)
{
    app_start((struct http_server_opts){0});
    for (int i = 0; i < 5; i++) {
        int fd = client_open();
        client_send(fd, "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        app_wait(&app.ready, i + 1);
        usleep(2000);
        assert_int_equal(app.broken, i);
        close(fd);
        app_wait(&app.broken, i + 1);
    }
    /* One that resets, and one that closes its sending half only. */
    int fd = client_open();
    client_send(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    app_wait(&app.ready, 6);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(fd);
    app_wait(&app.broken, 6);
    fd = client_open();
    client_send(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    app_wait(&app.ready, 7);
    shutdown(fd, SHUT_WR);
    app_wait(&app.broken, 7);
    client_expect_close(fd);
    close(fd);
    app_stop();
    assert_int_equal(app.completed, 0);
}

TEST(a_client_that_leaves_while_it_sends_is_noticed)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf");
    app_wait(&app.begun, 1);
    close(fd);
    app_wait(&app.broken, 1);
    assert_int_equal(app.ready, 0);
    app_stop();
}

TEST(a_request_that_is_answered_at_once_may_come_with_the_end)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(fd, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    shutdown(fd, SHUT_WR);
    client_expect(fd, "", 200, "GET /echo");
    close(fd);
    app_stop();
}

TEST(an_end_that_comes_with_the_bytes_is_noticed)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(fd, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: "
                    "9\r\n\r\nhalf");
    shutdown(fd, SHUT_WR);
    client_expect(fd, "", 200, "GET /echo");
    client_expect_close(fd);
    close(fd);
    /* The client sees the close before the network thread has come round to `ended`. */
    app_wait(&app.broken, 1);
    app_stop();
}

TEST(the_application_may_drop_a_request)
{
    app_start((struct http_server_opts){0});
    int fd = client_open();
    client_send(fd, "GET /drop HTTP/1.1\r\nHost: a\r\n\r\n");
    client_expect_close(fd);
    close(fd);
    assert_int_equal(app.broken, 1);
    fd = client_open();
    client_send(fd, "POST /shut HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    client_expect_close(fd);
    close(fd);
    app_stop();
    assert_int_equal(app.broken, 2);
    assert_int_equal(app.ready, 1);
}

struct many {
    pthread_t thread;
    int index, good;
};

static void *run_many(void *arg)
{
    struct many *m = arg;
    char request[256];
    for (int i = 0; i < 20; i++) {
        int fd = client_open();
        snprintf(request, sizeof(request),
                 "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n%04d%04d", m->index, i);
        client_expect(fd, request, 200, request + strlen(request) - 8);
        client_expect(fd, "GET /stream?count=50&bytes=200 HTTP/1.1\r\nHost: a\r\n\r\n", 200, "abc");
        close(fd);
        m->good++;
    }
    return NULL;
}

TEST(many_clients_at_once)
{
    app_start((struct http_server_opts){.connections_max = 256});
    /* Many connections that wait, and threads that come and go among them. */
    int held[200];
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        held[i] = client_open();
        client_send(held[i], "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    app_wait(&app.ready, COUNT_OF(held));
    struct many many[8];
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        many[i] = (struct many){.index = (int)i};
        assert_int_equal(pthread_create(&many[i].thread, NULL, run_many, &many[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        pthread_join(many[i].thread, NULL);
        assert_int_equal(many[i].good, 20);
    }
    for (size_t i = 0; i < COUNT_OF(held); i++)
        close(held[i]);
    app_wait(&app.broken, COUNT_OF(held));
    app_stop();
    assert_int_equal(app.completed, 320);
}

static void *stop_later(void *arg)
{
    (void)arg;
    usleep(50000);
    http_server_stop(app.server, 10 * NS_PER_S);
    return NULL;
}

TEST(a_stop_waits_for_open_requests_and_answers_new_ones)
{
    app_start((struct http_server_opts){0});
    int idle = client_open(), open = client_open(), held = client_open();
    client_expect(idle, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET");
    client_send(open, "GET /later HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    client_send(held, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    app_wait(&app.ready, 3);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_later, NULL), 0);
    client_expect(open, "", 200, "now");
    pthread_join(thread, NULL);
    usleep(20000);
    int late = client_open(), late_held = client_open();
    client_expect(idle, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET");
    client_expect(late, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "GET");
    client_expect_close(idle);
    client_expect_close(late);
    client_send(late_held, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    app_wait(&app.ready, 6);
    /* The connection held before is released at once: it does not wait for the other. */
    uint64_t start = clock_now_ns();
    close(held);
    pthread_join(app.thread, NULL);
    assert_true(clock_now_ns() - start < NS_PER_S);
    assert_int_equal(pthread_create(&app.thread, NULL, app_run, NULL), 0);
    app_stop();
    assert_int_equal(app.broken, 2);
    close(idle);
    close(open);
    close(late);
    close(late_held);
}

TEST(who_is_open_when_the_grace_ends_is_told)
{
    app_start((struct http_server_opts){0});
    int told = client_open(), held = client_open();
    client_send(told, "GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
    client_send(held, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    app_wait(&app.ready, 2);
    uint64_t start = clock_now_ns();
    http_server_stop(app.server, 300 * NS_PER_MS);
    client_expect(told, "", 503, "the end");
    assert_true(clock_now_ns() - start >= 300 * NS_PER_MS);
    client_expect_close(held);
    app_stop();
    assert_int_equal(app.completed, 1);
    assert_int_equal(app.broken, 1);
    close(told);
    close(held);
}

TEST(a_port_in_use_is_said_in_words)
{
    app_start((struct http_server_opts){0});
    struct http_server_opts opts = {
        .host = "127.0.0.1",
        .port = http_server_port(app.server),
        .connections_max = 1,
        .network = app.account,
        .handler = {app_begin, app_ready, app_writable, app_ended, app_tick, app_stopping},
    };
    struct http_server *s = NULL;
    struct err e = {{0}};
    assert_int_equal(http_server_create(&opts, &e, &s), -EADDRINUSE);
    assert_non_null(strstr(e.text, "127.0.0.1 port"));
    assert_null(s);
    opts.host = "no such name";
    assert_true(http_server_create(&opts, &e, &s) < 0);
    opts.connections_max = 0;
    assert_int_equal(http_server_create(&opts, &e, &s), -EINVAL);
    app_stop();
}

static int watched[2];
static _Atomic int watch_calls;

static void on_watched(void *arg, int fd)
{
    char c;
    ASSERT(arg == &app && fd == watched[0] && read(fd, &c, 1) == 1);
    watch_calls++;
    if (c == 'x')
        http_server_unwatch(app.server, fd);
}

TEST(a_watched_descriptor_calls_on_the_network_thread)
{
    struct http_server_opts opts = {
        .host = "127.0.0.1",
        .connections_max = 4,
        .network = test_account(ACCOUNT_NO_LIMIT),
        .handler = {app_begin, app_ready, app_writable, app_ended, app_tick, app_stopping},
    };
    watch_calls = 0;
    memset(&app, 0, sizeof(app));
    assert_int_equal(http_server_create(&opts, NULL, &app.server), 0);
    assert_int_equal(pipe(watched), 0);
    assert_int_equal(http_server_watch(app.server, watched[0], on_watched, &app), 0);
    assert_int_equal(write(watched[1], "abxd", 4), 4);
    for (int i = 0; i < 10; i++)
        assert_int_equal(http_server_turn(app.server, 1), 0);
    assert_int_equal(watch_calls, 3);
    http_server_free(app.server);
    close(watched[0]);
    close(watched[1]);
}

TEST(an_adopted_socket_is_served)
{
    app_start((struct http_server_opts){0});
    app_stop();
    struct http_server_opts opts = {
        .host = "127.0.0.1",
        .connections_max = 4,
        .network = test_account(ACCOUNT_NO_LIMIT),
        .handler = {app_begin, app_ready, app_writable, app_ended, app_tick, app_stopping},
    };
    int pair[2];
    memset(&app, 0, sizeof(app));
    assert_int_equal(http_server_create(&opts, NULL, &app.server), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(http_server_adopt(app.server, pair[0]), 0);
    client_send(pair[1], "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = 0; i < 10 && app.completed == 0; i++)
        assert_int_equal(http_server_turn(app.server, 10), 0);
    client_expect(pair[1], "", 200, "GET /echo");
    close(pair[1]);
    http_server_free(app.server);
    assert_int_equal(app.begun, 1);
}

TEST_MAIN()
