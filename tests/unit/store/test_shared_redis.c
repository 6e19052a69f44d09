/* The shared tier in Redis, against a server whose replies are wrong: each costs a call and the
 * connection, and no memory that the reply only announces. */
#include "test_store.h"

#include "store/shared_redis.h"
#include "store/shared_value.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define FEW_BYTES ((size_t)1 << 20)

/* ---- a server: one connection at a time, a reply for each thing that it is sent ---- */

static struct {
    int listener;
    pthread_t thread;
    atomic_bool stop;
    const char *reply; /* reply to each command but PING */
    size_t len;
    bool endless, ends; /* repeats the reply without end; closes the connection after it */
    uint32_t accepted;
} server;

static bool say_all(int fd, const char *text, size_t len)
{
    for (ssize_t n; len > 0; text += n, len -= (size_t)n)
        if ((n = send(fd, text, len, MSG_NOSIGNAL)) <= 0)
            return false;
    return true;
}

/* Returns false when the connection ends. */
static bool answer(int fd)
{
    static char asked[64 << 10];
    struct pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, 20) == 0)
        return true;
    ssize_t n = recv(fd, asked, sizeof(asked) - 1, 0);
    if (n <= 0)
        return false;
    asked[n] = 0;
    if (strstr(asked, "PING"))
        return say_all(fd, "+PONG\r\n", 7);
    bool more = say_all(fd, server.reply, server.len);
    while (more && server.endless && !atomic_load(&server.stop))
        more = say_all(fd, server.reply, server.len);
    return more && !server.ends;
}

static void *serve(void *arg)
{
    struct timeval second = {1, 0};
    while (!atomic_load(&server.stop)) {
        int fd = accept(server.listener, NULL, NULL);
        if (fd < 0)
            break;
        server.accepted++;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second));
        while (!atomic_load(&server.stop) && answer(fd)) {
        }
        close(fd);
    }
    return arg;
}

struct redis_scene {
    struct arena *arena;
    struct shared_backend store;
};

/* Skips the test where libhiredis is not installed. */
static void redis_open(struct redis_scene *s, const char *reply, size_t len)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(at);
    char text[64];
    struct shared_address address;
    struct err e = {{0}};
    memset(&server, 0, sizeof(server));
    server.reply = reply;
    server.len = len;
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(server.listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(server.listener, 4), 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&at, &bytes), 0);
    snprintf(text, sizeof(text), "redis://127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(shared_address_parse(text, &address, &e), 0);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1 << 20}, &s->arena), 0);
    int r = shared_redis_create(s->arena, &address, &s->store, &e);
    if (r == -ENOPKG) {
        arena_free(s->arena);
        close(server.listener);
        skip();
    }
    assert_int_equal(r, 0);
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

static void redis_close(struct redis_scene *s)
{
    atomic_store(&server.stop, true);
    s->store.close(s->store.arg);
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    arena_free(s->arena);
}

struct came {
    uint32_t count;
    size_t len[SHARED_BATCH_MAX];
};

static void note_value(void *arg, uint32_t i, const char *value, size_t len)
{
    struct came *c = arg;
    (void)value;
    assert_true(i < SHARED_BATCH_MAX);
    c->count++;
    c->len[i] = len;
}

static int redis_get(struct redis_scene *s, uint32_t count, struct came *ret)
{
    struct prefix_key names[SHARED_BATCH_MAX];
    for (uint32_t i = 0; i < count; i++)
        names[i] = key_of(i);
    *ret = (struct came){0};
    return s->store.get(s->store.arg, 0, names, count, note_value, ret);
}

#define REPLY(text) text, sizeof(text) - 1

TEST(wrong_replies_cost_the_call_and_the_connection)
{
    static const struct {
        const char *reply;
        size_t len;
        int error;
    } rows[] = {
        {REPLY("*2147483647\r\n"), -EPROTO},
        {REPLY("*1073741824\r\n$1\r\nx\r\n"), -EPROTO},
        {REPLY("*99999999999999999999\r\n"), -EPROTO},
        {REPLY("*-7\r\n"), -EPROTO},
        {REPLY("*2\r\n*8\r\n*8\r\n*8\r\n"), -EPROTO},
        {REPLY("*2\r\n*2147483647\r\n"), -EPROTO},
        {REPLY("*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"), -EPROTO},
        {REPLY("*1\r\n$1\r\na\r\n"), -EPROTO},
        {REPLY("*-1\r\n"), -EPROTO},
        {REPLY("$2\r\nab\r\n"), -EPROTO},
        {REPLY(":2\r\n"), -EPROTO},
        {REPLY("+OK\r\n"), -EPROTO},
        {REPLY("HTTP/1.1 400 Bad Request\r\n\r\n"), -EPROTO},
        {REPLY("\0\0\0\0"), -EPROTO},
        {REPLY("-WRONGTYPE no\r\n"), -EIO},
        {REPLY("-NOAUTH Authentication required.\r\n"), -EACCES},
        {REPLY("-LOADING\r\n"), -EBUSY},
        {REPLY("-\r\n"), -EIO},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct redis_scene s;
        struct came c;
        redis_open(&s, rows[i].reply, rows[i].len);
        size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
        uint64_t began_ns = clock_now_ns();
        assert_int_equal(redis_get(&s, 2, &c), rows[i].error);
        assert_true(clock_now_ns() - began_ns < 900 * NS_PER_MS);
        assert_int_equal(c.count, 0);
        assert_true(mallinfo2().uordblks + mallinfo2().hblkhd < before + FEW_BYTES);
        redis_close(&s);
    }
}

TEST(elements_of_other_types_are_misses)
{
    struct redis_scene s;
    struct came c;
    redis_open(&s, REPLY("*8\r\n:1\r\n+x\r\n-ERR\r\n$-1\r\n*-1\r\n$0\r\n\r\n$3\r\nabc\r\n$-1\r\n"));
    assert_int_equal(redis_get(&s, 8, &c), 0);
    assert_true(c.count == 2 && c.len[5] == 0 && c.len[6] == 3);
    redis_close(&s);
}

/* The server ends, because a silent one costs the call's whole second (test_shared_cache.py). */
TEST(half_replies_are_failures)
{
    static const struct {
        const char *reply;
        size_t len;
    } rows[] = {{REPLY("*2\r\n$3\r\nab")},
                {REPLY("*2\r\n")},
                {REPLY("*")},
                {REPLY("$1099511627776\r\nabc")},
                {REPLY("*2\r\n$1099511627776\r\nabc")},
                {"", 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct redis_scene s;
        struct came c;
        redis_open(&s, rows[i].reply, rows[i].len);
        server.ends = true;
        int r = redis_get(&s, 2, &c);
        assert_true(r == -ENOTCONN || r == -EPROTO);
        /* The next call connects again. */
        assert_true(redis_get(&s, 2, &c) < 0);
        assert_int_equal(server.accepted, 2);
        redis_close(&s);
    }
}

static void endless(const char *begins, const char *piece, size_t len)
{
    static char text[256 << 10];
    struct redis_scene s;
    struct came c;
    size_t at = strlen(begins);
    memcpy(text, begins, at);
    for (; at + len <= sizeof(text); at += len)
        memcpy(text + at, piece, len);
    redis_open(&s, text, at);
    server.endless = true;
    uint64_t began_ns = clock_now_ns();
    int r = redis_get(&s, 2, &c);
    assert_true(r == -EMSGSIZE || r == -EPROTO || r == -ETIMEDOUT);
    assert_true(clock_now_ns() - began_ns < 3 * NS_PER_S);
    assert_true(mallinfo2().hblkhd + mallinfo2().uordblks < SHARED_REDIS_REPLY_BYTES);
    redis_close(&s);
}

TEST(endless_replies_end)
{
    endless("$1099511627776\r\n", "x", 1);
    endless("*2\r\n$99999999\r\n", "x", 1);
    endless("+", "x", 1);
    endless("*8\r\n", "*8\r\n", 4);
}

TEST(a_reply_as_large_as_all_values_arrives)
{
    struct redis_scene s;
    struct came c;
    const size_t one = SHARED_VALUE_BYTES;
    char *reply = calloc(1, SHARED_BATCH_MAX * (one + 64)), *at = reply;
    assert_non_null(reply);
    at += sprintf(at, "*%d\r\n", SHARED_BATCH_MAX);
    for (uint32_t i = 0; i < SHARED_BATCH_MAX; i++) {
        at += sprintf(at, "$%zu\r\n", one) + one;
        at += sprintf(at, "\r\n");
    }
    redis_open(&s, reply, (size_t)(at - reply));
    assert_int_equal(redis_get(&s, SHARED_BATCH_MAX, &c), 0);
    for (uint32_t i = 0; i < SHARED_BATCH_MAX; i++)
        assert_int_equal(c.len[i], one);
    redis_close(&s);
    free(reply);
}

TEST(a_value_that_is_too_long_is_refused)
{
    struct redis_scene s;
    struct came c;
    const size_t one = SHARED_VALUE_BYTES + 1;
    char *reply = calloc(1, one + 64), *at = reply;
    assert_non_null(reply);
    at += sprintf(at, "*1\r\n$%zu\r\n", one) + one;
    at += sprintf(at, "\r\n");
    redis_open(&s, reply, (size_t)(at - reply));
    assert_int_equal(redis_get(&s, 1, &c), -EPROTO);
    assert_int_equal(c.count, 0);
    redis_close(&s);
    free(reply);
}

TEST(wrong_replies_to_questions_and_writes_are_failures)
{
    static const struct {
        const char *reply;
        size_t len;
        int has, put;
    } rows[] = {{REPLY("$1\r\n1\r\n"), -EPROTO, -EPROTO},
                {REPLY("*2147483647\r\n"), -EPROTO, -EPROTO},
                {REPLY("-OOM no room\r\n"), -ENOSPC, -ENOSPC},
                {REPLY("-READONLY\r\n"), -EROFS, -EROFS},
                {REPLY(":7\r\n"), 0, -EPROTO}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct redis_scene s;
        struct prefix_key name = key_of(1);
        bool has = true;
        redis_open(&s, rows[i].reply, rows[i].len);
        assert_int_equal(s.store.has(s.store.arg, 0, &name, 1, &has), rows[i].has);
        assert_true(rows[i].has < 0 || !has);
        assert_int_equal(s.store.put(s.store.arg, 0, &name, "value", 5), rows[i].put);
        redis_close(&s);
    }
}

TEST_MAIN()
