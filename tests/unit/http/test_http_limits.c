/* Every limit holds, and its refusal names it. */
#include "base/err.h"
#include "http/http_state.h"
#include "test_http_app.h"

static void send_letters(int fd, size_t bytes)
{
    char block[4096];
    memset(block, 'x', sizeof(block));
    while (bytes > 0) {
        size_t n = MIN_OF(bytes, sizeof(block));
        client_send_bytes(fd, block, n);
        bytes -= n;
    }
}

/* A request with a header line of `bytes` letters. */
static int send_header_of(size_t bytes)
{
    int fd = client_open();
    client_send(fd, "GET /echo HTTP/1.1\r\nHost: a\r\nX-Long: ");
    send_letters(fd, bytes);
    client_send(fd, "\r\n\r\n");
    return fd;
}

TEST(a_header_over_its_limit_is_431)
{
    app_start((struct http_server_opts){.header_bytes_max = 4096});
    int fd = send_header_of(3900);
    client_expect(fd, "", 200, "GET /echo");
    close(fd);
    fd = send_header_of(4200);
    client_expect(fd, "", 431, "longer than 4096 bytes. Send less, or raise --max-header-bytes");
    client_expect_close(fd);
    close(fd);
    /* More than the connection's whole memory: in the same words. */
    fd = send_header_of(100000);
    client_expect(fd, "", 431, "longer than 4096 bytes");
    close(fd);
    fd = client_open();
    client_send(fd, "GET /");
    send_letters(fd, 100000);
    client_expect(fd, " HTTP/1.1\r\n\r\n", 414, "longer than 4096 bytes");
    close(fd);
    /* Many short lines cost more than their bytes. */
    fd = client_open();
    client_send(fd, "GET /echo HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 1000; i++)
        client_send(fd, "a: b\r\n");
    client_expect(fd, "\r\n", 431, "64 for each");
    close(fd);
    app_stop();
    assert_int_equal(app.begun, 1);
}

TEST(a_body_over_its_limit_is_413_before_it_is_read)
{
    app_start((struct http_server_opts){.body_bytes_max = 1000});
    int fd = client_open();
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    send_letters(fd, 1000);
    client_expect(fd, "", 200, "xxxx");
    client_expect(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413,
                  "larger than 1000 bytes. Send less, or raise --max-body-bytes.");
    client_expect_close(fd);
    close(fd);
    /* With Expect the client need not send it at all. */
    fd = client_open();
    client_expect(fd,
                  "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n",
                  413, "1000 bytes");
    close(fd);
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n", 413, "");
    app_stop();
    assert_int_equal(app.begun, 1);
}

TEST(a_refusal_reaches_a_client_that_keeps_sending)
{
    app_start((struct http_server_opts){.body_bytes_max = 1000});
    for (int i = 0; i < 10; i++) {
        int fd = client_open();
        client_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
        send_letters(fd, 8000000);
        client_expect(fd, "", 413, "body_too_large");
        close(fd);
        fd = client_open();
        client_send(fd, "POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n");
        send_letters(fd, 900);
        client_expect(fd, "", 401, "who?");
        close(fd);
    }
    app_stop();
    assert_int_equal(app.ready, 0);
}

/* After a refusal the server reads a second longer from a copy of the socket. Then it closes the copy, and
 * the kernel answers further bytes with a reset. */
TEST(a_client_that_sends_on_after_a_refusal_gets_a_reset)
{
    app_start((struct http_server_opts){.body_bytes_max = 1000});
    int fd = client_open();
    client_expect(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", 413, "");
    client_expect_close(fd);
    uint64_t until_ns = clock_now_ns() + 20 * NS_PER_S;
    ssize_t sent = 1;
    while (sent == 1 && clock_now_ns() < until_ns) {
        sent = send(fd, "x", 1, MSG_NOSIGNAL);
        usleep(20000);
    }
    assert_true(sent < 0 && (errno == EPIPE || errno == ECONNRESET));
    close(fd);
    app_stop();
}

TEST(a_chunked_body_over_its_limit_is_413_while_it_is_read)
{
    app_start((struct http_server_opts){.body_bytes_max = 1000});
    int fd = client_open();
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 100; i++) {
        client_send(fd, "64\r\n");
        send_letters(fd, 100);
        client_send(fd, "\r\n");
    }
    client_expect(fd, "0\r\n\r\n", 413, "larger than 1000 bytes");
    client_expect_close(fd);
    close(fd);
    fd = client_open();
    client_send(fd, "POST /named HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n");
    send_letters(fd, 2000);
    struct answer a = client_answer(fd, false);
    assert_int_equal(a.status, 413);
    assert_non_null(answer_header(&a, "x-request-id: mine\r\n"));
    answer_done(&a);
    close(fd);
    app_stop();
    assert_int_equal(app.begun, 2);
    assert_int_equal(app.broken, 2);
    assert_int_equal(app.ready, 0);
}

static void expect_letters(int fd, size_t bytes)
{
    struct answer a = client_answer(fd, false);
    assert_int_equal(a.status, 200);
    assert_int_equal(a.body_bytes, bytes);
    for (size_t i = 0; i < a.body_bytes; i += 997)
        assert_int_equal(a.body[i], 'a' + i % sizeof(app.letters) % 26);
    answer_done(&a);
}

/* A request's bytes are returned after its answer has arrived. */
static void wait_account(uint64_t reserved)
{
    for (int i = 0; i < 5000 && account_numbers(app.account).reserved != reserved; i++)
        usleep(1000);
    assert_int_equal(account_numbers(app.account).reserved, reserved);
}

TEST(bodies_and_long_answers_fit_the_account_or_are_refused)
{
    struct http_server_opts opts = {.connections_max = 4, .body_bytes_max = 10 << 20};
    /* Finds the bytes that the connections need by asking; then a megabyte more. */
    app_start(opts);
    uint64_t fixed = account_numbers(app.account).reserved;
    app_stop();
    opts.network = test_account(fixed + (1 << 20));
    app_start(opts);
    /* More than the limit: refused before a byte of it comes, or as soon as that is known. */
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n", 413,
                "the 1048576 bytes planned for all bodies together");
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n", 413,
                "the 1048576 bytes planned for all bodies together");
    wait_account(fixed);
    int fd = client_open();
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2dc6c0\r\n");
    send_letters(fd, 3000000);
    client_expect(fd, "", 413, "the 1048576 bytes planned for all bodies together");
    close(fd);
    expect_once("GET /big?bytes=3000000 HTTP/1.1\r\nHost: a\r\n\r\n", 507, "out_of_memory");
    /* It fits, but not beside another one. */
    int other = client_open();
    client_send(other, "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 600000\r\n\r\n");
    send_letters(other, 600000);
    app_wait(&app.ready, 2);
    fd = client_open();
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n");
    send_letters(fd, 500000);
    struct answer a = client_answer(fd, false);
    assert_int_equal(a.status, 429);
    assert_non_null(answer_header(&a, "Retry-After: 1\r\n"));
    assert_non_null(strstr(a.body, "\"busy\""));
    answer_done(&a);
    close(fd);
    expect_once("GET /big?bytes=600000 HTTP/1.1\r\nHost: a\r\n\r\n", 429, "busy");
    close(other);
    app_wait(&app.broken, 3);
    fd = client_open();
    client_send(fd, "GET /big?bytes=1000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_letters(fd, 1000000);
    close(fd);
    app_stop();
}

/* The system refuses allocations a little larger than this many bytes; 0: none. */
static atomic_size_t refused_above;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    size_t above = atomic_load(&refused_above);
    return above && bytes > above && bytes <= above + 256 ? NULL : __real_malloc(bytes);
}

TEST(an_answer_that_the_system_has_no_memory_for_is_429)
{
    app_start((struct http_server_opts){0});
    uint64_t reserved = account_numbers(app.account).reserved;
    atomic_store(&refused_above, 300000);
    int fd = client_open();
    client_expect(fd, "GET /big?bytes=300000 HTTP/1.1\r\nHost: a\r\n\r\n", 429, "busy");
    atomic_store(&refused_above, 0);
    client_send(fd, "GET /big?bytes=300000 HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_letters(fd, 300000);
    close(fd);
    app_wait(&app.completed, 2);
    wait_account(reserved);
    app_stop();
}

TEST(every_refusal_is_counted_by_its_status)
{
    static const char *const requests[][2] = {{"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
                                              {"POST /refuse HTTP/1.1\r\nHost: a\r\n\r\n", "401"},
                                              {"GET /none HTTP/1.1\r\nHost: a\r\n\r\n", "404"}};
    app_start((struct http_server_opts){0});
    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        int status = atoi(requests[i][1]);
        expect_once(requests[i][0], status, "");
        for (int ms = 0; ms < 5000 && !http_server_counters(app.server).refused[status - 400]; ms++)
            usleep(1000);
        assert_int_equal(http_server_counters(app.server).refused[status - 400], 1);
    }
    app_stop();
}

TEST(an_answer_that_is_given_away_is_paid_for_once)
{
    struct http_server_opts opts = {.connections_max = 4};
    app_start(opts);
    uint64_t fixed = account_numbers(app.account).reserved;
    app_stop();
    opts.network = test_account(fixed + (1 << 20));
    app_start(opts);
    /* Twice its bytes would not fit. */
    for (int i = 0; i < 3; i++) {
        int fd = client_open();
        client_send(fd, "GET /give?bytes=1000000 HTTP/1.1\r\nHost: a\r\n\r\n");
        expect_letters(fd, 1000000);
        close(fd);
    }
    expect_once("GET /give?bytes=100 HTTP/1.1\r\nHost: a\r\n\r\n", 200, "");
    /* A client that leaves in the middle of it. */
    int fd = client_open();
    client_send(fd, "GET /give?bytes=1000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    app_wait(&app.ready, 5);
    close(fd);
    app_stop();
    assert_int_equal(account_numbers(opts.network).reserved, 0);
}

TEST(an_account_that_is_too_small_is_said_at_the_start)
{
    struct http_server_opts opts = {
        .host = "127.0.0.1",
        .connections_max = 100,
        .network = test_account(1 << 20),
        .handler = {app_begin, app_ready, app_writable, app_ended, app_tick},
    };
    struct http_server *s = NULL;
    struct err e = {{0}};
    assert_int_equal(http_server_create(&opts, &e, &s), -ENOMEM);
    assert_non_null(strstr(e.text, "lower --max-connections"));
    assert_int_equal(account_numbers(opts.network).reserved, 0);
}

TEST(a_page_from_elsewhere_is_told_403)
{
    app_start((struct http_server_opts){.loopback_host_only = true});
    expect_once("GET /echo HTTP/1.1\r\nHost: localhost:80\r\n\r\n", 200, "");
    expect_once("GET /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n\r\n", 200, "");
    expect_once("GET /echo HTTP/1.0\r\n\r\n", 200, "");
    expect_once("GET /echo HTTP/1.1\r\nHost: example.com\r\n\r\n", 403, "host_not_allowed");
    expect_once("GET /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: http://example.com\r\n\r\n", 403,
                "origin_not_allowed");
    expect_once("POST /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nContent-Length: 2\r\n\r\nhi", 403,
                "origin_not_allowed");
    expect_once("GET /echo HTTP/1.0\r\nOrigin: http://localhost\r\n\r\n", 403, "origin_not_allowed");
    app_stop();
    assert_int_equal(app.begun, 3);
}

TEST(a_refusal_has_an_id_and_the_envelope)
{
    app_start((struct http_server_opts){.loopback_host_only = true});
    int fd = client_open();
    client_send(fd, "GET /echo HTTP/1.1\r\nHost: example.com\r\n\r\n");
    struct answer a = client_answer(fd, false);
    const char *id = answer_header(&a, "x-request-id: ");
    assert_non_null(id);
    assert_int_equal(strspn(id, "0123456789abcdef"), 32);
    assert_non_null(answer_header(&a, "Content-Type: application/json"));
    assert_true(a.body_bytes > 2 && memcmp(a.body, "{\"error\":{\"message\":\"", 21) == 0);
    assert_memory_equal(a.body + a.body_bytes - 2, "}}", 2);
    answer_done(&a);
    close(fd);
    app_stop();
}

TEST(who_does_not_get_on_is_cut)
{
    app_start((struct http_server_opts){.idle_timeout_s = 1});
    int silent = client_open(), half = client_open(), body = client_open(), dripping = client_open();
    client_send(half, "GET /echo HTT");
    client_send(body, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    uint64_t start = clock_now_ns();
    /* A byte now and then is not silence; the timeout of a header counts from the start. */
    for (int i = 0; i < 100 && clock_now_ns() - start < 4 * NS_PER_S; i++) {
        char c;
        client_send(dripping, "G");
        if (recv(dripping, &c, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
            break;
        usleep(100000);
    }
    assert_true(clock_now_ns() - start < 4 * NS_PER_S);
    client_expect_close(silent);
    client_expect_close(half);
    client_expect_close(body);
    assert_true(clock_now_ns() - start < 4 * NS_PER_S);
    /* One that waits for its answer is not cut. */
    int held = client_open();
    client_send(held, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    usleep(2500000);
    assert_int_equal(app.broken, 1);
    int fds[] = {silent, half, body, dripping, held};
    for (size_t i = 0; i < COUNT_OF(fds); i++)
        close(fds[i]);
    app_wait(&app.broken, 2);
    app_stop();
}

static double cpu_seconds(void)
{
    struct timespec t;
    clockid_t clock;
    assert_int_equal(pthread_getcpuclockid(app.thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

TEST(a_chunk_header_without_end_does_not_spin)
{
    app_start((struct http_server_opts){.idle_timeout_s = 30});
    int fd = client_open();
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;");
    send_letters(fd, 200);
    app_wait(&app.begun, 1);
    double before = cpu_seconds();
    usleep(500000);
    double used = cpu_seconds() - before;
    if (used > 0.25)
        fail_msg("%.3f s of 0.5 s", used);
    send_letters(fd, 60000);
    client_expect(fd, "", 400, "bad_chunk");
    expect_once("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", 200, "");
    close(fd);
    app_stop();
}

TEST(an_idle_server_uses_no_cpu)
{
    app_start((struct http_server_opts){0});
    int held[20];
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        held[i] = client_open();
        client_send(held[i], i % 2 ? "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
                                   : "GET /open HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    app_wait(&app.ready, COUNT_OF(held));
    usleep(50000);
    double before = cpu_seconds();
    usleep(1000000);
    double used = cpu_seconds() - before;
    if (used > 0.02)
        fail_msg("%.3f s of 1 s", used);
    for (size_t i = 0; i < COUNT_OF(held); i++)
        close(held[i]);
    app_stop();
}

TEST_MAIN()
