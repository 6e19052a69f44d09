/* Which connections stay when places run out. */
#include "test_http_app.h"

#include "http/http_peer.h"

#include <arpa/inet.h>

static const char *const vital[] = {"/echo", NULL};

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* Connections that wait for an answer. */
static void hold(int *ret, int count)
{
    int ready = app.ready;
    for (int i = 0; i < count; i++) {
        ret[i] = client_open();
        client_send(ret[i], GET("/hold"));
    }
    app_wait(&app.ready, ready + count);
}

static void wait_for_connections(uint64_t most)
{
    for (int tries = 0; http_server_counters(app.server).connections_now > most && tries < 5000; tries++)
        usleep(1000);
    assert_true(http_server_counters(app.server).connections_now <= most);
}

static bool is_closed(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

TEST(with_all_requests_open_more_are_told_429)
{
    app_start((struct http_server_opts){.connections_max = 3});
    int held[3];
    for (int i = 0; i < 3; i++) {
        held[i] = client_open();
        client_send(held[i], GET("/hold"));
    }
    app_wait(&app.ready, 3);
    expect_once(GET("/echo"), 429,
                "3 connections are open, as many as are allowed. Try again, or raise --max-connections.");
    /* Its connection is closed: over that one there would never be room. */
    int refused = client_open(), patient = client_open();
    client_expect(refused, GET("/echo"), 429, "3 connections");
    client_expect_close(refused);
    close(refused);
    close(held[0]);
    app_wait(&app.broken, 1);
    wait_for_connections(3);
    /* One that came when all places were taken, and asks now, is answered as often as it likes. */
    client_expect(patient, GET("/echo"), 200, "GET /echo");
    client_expect(patient, GET("/echo"), 200, "GET /echo");
    close(patient);
    close(held[1]);
    close(held[2]);
    app_stop();
}

TEST(the_longest_resting_connection_makes_room)
{
    app_start((struct http_server_opts){.connections_max = 4});
    int held, resting[3], late;
    hold(&held, 1);
    for (int i = 0; i < 3; i++) {
        resting[i] = client_open();
        client_expect(resting[i], GET("/echo"), 200, "GET /echo");
    }
    /* The first has rested for less time than the second. */
    client_expect(resting[0], GET("/echo"), 200, "GET /echo");
    late = client_open();
    client_expect(late, GET("/echo"), 200, "GET /echo");
    client_expect_close(resting[1]);
    client_expect(resting[0], GET("/echo"), 200, "GET /echo");
    client_expect(resting[2], GET("/echo"), 200, "GET /echo");
    assert_false(is_closed(held));
    close_all(resting, 3);
    close(late);
    close(held);
    app_stop();
}

TEST(the_oldest_unfinished_header_makes_room)
{
    app_start((struct http_server_opts){.connections_max = 3});
    int held[2], dripping = client_open();
    client_send(dripping, "GET /echo HTTP/1.1\r\nHo");
    usleep(20000);
    hold(held, 2);
    for (int i = 0; i < 10; i++) {
        expect_once(GET("/echo"), 200, "GET /echo");
        wait_for_connections(3);
    }
    struct answer a = client_answer(dripping, false);
    assert_int_equal(a.status, 429);
    assert_non_null(strstr(a.body, "3 connections are open"));
    assert_non_null(answer_header(&a, "Connection: close\r\n"));
    assert_non_null(answer_header(&a, "Retry-After: 1\r\n"));
    answer_done(&a);
    client_expect_close(dripping);
    close(dripping);
    close_all(held, 2);
    app_stop();
}

/* One that has just been opened has not had the time to ask. */
TEST(an_old_unfinished_header_goes_before_a_new_connection)
{
    app_start((struct http_server_opts){.connections_max = 3});
    int dripping[2], silent, others[2];
    for (int i = 0; i < 2; i++) {
        dripping[i] = client_open();
        client_send(dripping[i], "GET /echo HTTP/1.1\r\nHo");
    }
    usleep(1100000);
    silent = client_open();
    for (int i = 0; i < 2; i++) {
        others[i] = client_open();
        client_expect(others[i], GET("/echo"), 200, "GET /echo");
    }
    client_expect(silent, GET("/echo"), 200, "GET /echo");
    for (int i = 0; i < 2; i++)
        client_expect(dripping[i], "", 429, "3 connections");
    close_all(dripping, 2);
    close_all(others, 2);
    close(silent);
    app_stop();
}

TEST(a_body_that_drips_makes_room)
{
    app_start((struct http_server_opts){.connections_max = 1});
    int dripping = client_open();
    client_send(dripping, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\nabc");
    app_wait(&app.begun, 1);
    expect_once(GET("/echo"), 429, "1 connections");
    usleep(2200000);
    expect_once(GET("/echo"), 200, "GET /echo");
    client_expect(dripping, "", 429, "1 connections");
    close(dripping);
    app_stop();
    assert_int_equal(app.broken, 1);
}

TEST(vital_paths_are_answered_beyond_the_limit)
{
    app_start((struct http_server_opts){.connections_max = 2, .vital_paths = vital});
    int held[2], dripping[100];
    hold(held, 2);
    /* Neither silent nor dripping clients hold the excess places. */
    for (int i = 0; i < 100; i++) {
        dripping[i] = client_open();
        client_send(dripping[i], i % 2 ? "" : "GET /ec");
        if (i % 10 == 0) {
            int fd = client_open();
            client_send(fd, GET("/echo"));
            struct answer a = client_answer(fd, false);
            assert_int_equal(a.status, 200);
            assert_non_null(answer_header(&a, "Connection: close\r\n"));
            answer_done(&a);
            close(fd);
        }
    }
    expect_once(GET("/later"), 429, "2 connections");
    expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 429, "2 connections");
    close_all(dripping, 100);
    close_all(held, 2);
    app_stop();
}

TEST(hundreds_that_rest_or_drip_keep_nobody_out)
{
    app_start((struct http_server_opts){.connections_max = 64, .vital_paths = vital});
    int fds[300];
    for (int i = 0; i < 300; i++) {
        fds[i] = client_open();
        if (i % 2)
            client_expect(fds[i], GET("/echo"), 200, "GET /echo");
        else
            client_send(fds[i], "GET /echo HTTP/1.1\r\nHo");
    }
    uint64_t start = clock_now_ns();
    for (int i = 0; i < 20; i++)
        expect_once("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 200, "hi");
    assert_true(clock_now_ns() - start < 20 * NS_PER_S); /* far below any timeout, on any machine */
    wait_for_connections(64 + 8);
    close_all(fds, 300);
    app_stop();
}

/* A request whose bytes have come in part of the same turn is not taken for a resting connection. */
TEST(a_crowd_is_answered_to_the_last)
{
    app_start((struct http_server_opts){.connections_max = 8});
    for (int round = 0; round < 10; round++) {
        int fds[100];
        for (int i = 0; i < 100; i++) {
            fds[i] = client_open();
            client_send(fds[i], GET("/echo"));
        }
        for (int i = 0; i < 100; i++) {
            char text[2048];
            ssize_t n = client_read(fds[i], text, sizeof(text));
            assert_true(n > 12);
            assert_true(memcmp(text, "HTTP/1.1 200", 12) == 0 || memcmp(text, "HTTP/1.1 429", 12) == 0);
        }
        close_all(fds, 100);
    }
    app_stop();
}

TEST(a_client_has_a_share)
{
    app_start(
        (struct http_server_opts){.connections_max = 16, .connections_per_ip = 2, .vital_paths = vital});
    int held[2], resting;
    hold(held, 1);
    resting = client_open();
    client_expect(resting, GET("/echo"), 200, "GET /echo");
    /* Its own resting connection makes room. */
    hold(held + 1, 1);
    client_expect_close(resting);
    close(resting);
    expect_once(GET("/later"), 429, "Close some, or raise --connections-per-ip.");
    expect_once(GET("/echo"), 200, "GET /echo");
    close(held[0]);
    app_wait(&app.broken, 1);
    expect_once(GET("/later"), 200, "now");
    close(held[1]);
    app_stop();
}

TEST(loopback_has_no_share_unless_it_is_told)
{
    app_start((struct http_server_opts){.connections_max = 4});
    int held[4];
    hold(held, 4);
    close_all(held, 4);
    app_stop();
}

TEST(an_address_is_counted_once)
{
    struct http_peers p;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6}, other = v6, mapped = v6;
    struct sockaddr local = {.sa_family = AF_UNIX};
    inet_pton(AF_INET, "192.0.2.7", &v4.sin_addr);
    inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr);
    inet_pton(AF_INET6, "2001:db8::2:3", &other.sin6_addr);
    inet_pton(AF_INET6, "::ffff:192.0.2.7", &mapped.sin6_addr);
    assert_int_equal(http_peers_init(&p, 3), 0);
    struct http_peer *a = http_peer_join(&p, (struct sockaddr *)&v4);
    struct http_peer *b = http_peer_join(&p, (struct sockaddr *)&v6);
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(http_peer_join(&p, (struct sockaddr *)&mapped), a);
    assert_int_equal(a->count, 2);
    http_peer_leave(&p, a);
    assert_ptr_equal(http_peer_join(&p, (struct sockaddr *)&other), b);
    assert_null(http_peer_join(&p, &local));
    assert_null(http_peer_join(&p, NULL));
    http_peer_leave(&p, a);
    http_peer_leave(&p, b);
    http_peer_leave(&p, b);
    /* Joins as many addresses as connections, again and again. */
    for (uint32_t i = 0; i < 1000; i++) {
        struct http_peer *three[3];
        for (uint32_t k = 0; k < 3; k++) {
            v4.sin_addr.s_addr = i * 3 + k;
            three[k] = http_peer_join(&p, (struct sockaddr *)&v4);
            assert_int_equal(three[k]->count, 1);
        }
        for (uint32_t k = 0; k < 3; k++)
            http_peer_leave(&p, three[(k + i) % 3]);
    }
    http_peers_done(&p);
}

TEST(loopback_is_told_from_the_rest)
{
    static const char *const in[] = {"127.0.0.1", "127.9.9.9"}, *const out[] = {"10.0.0.1", "128.0.0.1"};
    for (size_t i = 0; i < 2; i++) {
        struct sockaddr_in a = {.sin_family = AF_INET};
        inet_pton(AF_INET, in[i], &a.sin_addr);
        assert_true(http_peer_is_loopback((struct sockaddr *)&a));
        inet_pton(AF_INET, out[i], &a.sin_addr);
        assert_false(http_peer_is_loopback((struct sockaddr *)&a));
    }
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr);
    assert_true(http_peer_is_loopback((struct sockaddr *)&six));
    inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
    assert_false(http_peer_is_loopback((struct sockaddr *)&six));
    assert_true(http_peer_is_loopback(&(struct sockaddr){.sa_family = AF_UNIX}));
    assert_false(http_peer_is_loopback(NULL));
}

TEST_MAIN()
