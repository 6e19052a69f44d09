/* test_http_app.h - a small application on a real server, and clients that write raw bytes to it.
 *
 * app_start() listens on a free port of 127.0.0.1 and serves in a thread. app_stop() stops the server and
 * frees it, which returns every byte to the test's ledger. The path of a request decides its answer:
 *     /echo          its body, or its method and path when it has none
 *     /hold          never answers
 *     /later         is answered from a tick
 *     /last          is answered when the server's grace is over
 *     /refuse        is answered 401 before its body is read
 *     /drop          is closed when it is whole; /shut before its body is read
 *     /named         has an x-request-id from the start
 *     /stream?count=N&bytes=M   N messages of M letters, as fast as the client reads
 *     /open          a stream that begins and sends nothing more
 *     /big?bytes=M   M letters in one piece
 *     /status?of=N   an answer of that status
 *     /listener      the number of the listener that it came to */
#ifndef PLATEAU_TESTS_TEST_HTTP_APP_H
#define PLATEAU_TESTS_TEST_HTTP_APP_H

#include "test_ledger.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/slice.h"
#include "http/http_request.h"
#include "http/http_server.h"
#include "http/http_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#define APP_JOBS_MAX 512

struct app_job {
    bool used, later;
    struct http_request *r;
    uint64_t left, message_bytes; /* bytes left of a stream */
};

struct app {
    struct http_server *server;
    pthread_t thread;
    struct account *account;
    struct app_job jobs[APP_JOBS_MAX]; /* network thread */
    char letters[1 << 16];
    _Atomic int begun, ready, completed, broken; /* calls of begin and ready; of ended, by its argument */
    _Atomic int refused_writes, writable;        /* -EAGAIN seen; calls of writable */
    _Atomic uint64_t stalled_ns_max, room_min;
    int run_result;
    bool running; /* from app_start() to app_stop() */
};

static struct app app;

static inline bool app_path_is(const struct http_request *r, const char *path)
{
    return slice_eq(http_request_path(r), slice_of(path));
}

static inline uint64_t app_number(const struct http_request *r, const char *name)
{
    struct slice text;
    uint64_t n = 0;
    ASSERT(http_request_query(r, name, &text) && slice_u64(text, UINT32_MAX, &n));
    return n;
}

static inline int app_begin(void *arg, struct http_request *r)
{
    (void)arg;
    app.begun++;
    struct app_job *j = NULL;
    for (int i = 0; i < APP_JOBS_MAX && !j; i++)
        if (!app.jobs[i].used)
            j = &app.jobs[i];
    ASSERT(j && http_request_body(r).len == 0);
    *j = (struct app_job){.used = true, .r = r};
    http_request_set_user(r, j);
    if (app_path_is(r, "/shut"))
        http_request_close(r);
    if (app_path_is(r, "/named"))
        ASSERT(http_header_set(r, "x-request-id", "mine") == 0);
    if (!app_path_is(r, "/refuse"))
        return 0;
    ASSERT(http_header_set(r, "WWW-Authenticate", "Bearer") == 0);
    http_respond(r, 401, "text/plain", SLICE("who?"));
    return 401;
}

static inline void app_pump(struct app_job *j)
{
    while (j->left > 0) {
        int failed = http_stream_write(j->r, (struct slice){app.letters, j->message_bytes});
        if (failed == -EAGAIN) {
            app.refused_writes++;
            return;
        }
        if (failed < 0)
            return;
        j->left--;
    }
    http_stream_end(j->r);
}

static inline void app_echo(struct http_request *r)
{
    char text[512];
    struct slice method = http_request_method(r), path = http_request_path(r);
    if (http_request_body(r).len > 0) {
        http_respond(r, 200, "application/octet-stream", http_request_body(r));
        return;
    }
    snprintf(text, sizeof(text), "%.*s %.*s", SLICE_ARGS(method), SLICE_ARGS(path));
    http_respond(r, 200, "text/plain", slice_of(text));
}

static inline void app_big(struct http_request *r)
{
    size_t bytes = app_number(r, "bytes");
    char *text = malloc(bytes);
    ASSERT(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = app.letters[i % sizeof(app.letters)];
    http_respond(r, 200, "text/plain", (struct slice){text, bytes});
    free(text);
}

/* Gives the answer from a buffer that the server takes. */
static inline void app_give(struct http_request *r)
{
    size_t bytes = app_number(r, "bytes");
    struct charge charge = account_charge(app.account);
    struct buf text;
    buf_init(&text, bytes, &charge);
    for (size_t i = 0; i < bytes; i++)
        buf_putc(&text, app.letters[i % sizeof(app.letters)]);
    ASSERT(text.error == 0);
    http_respond_buf(r, 200, "text/plain", &text);
    ASSERT(text.ptr == NULL);
}

static inline void app_listener(struct http_request *r)
{
    char text[8];
    snprintf(text, sizeof(text), "%u", http_request_listener(r));
    http_respond(r, 200, "text/plain", slice_of(text));
}

static inline void app_ready(void *arg, struct http_request *r)
{
    (void)arg;
    struct app_job *j = http_request_user(r);
    app.ready++;
    if (app_path_is(r, "/echo")) {
        app_echo(r);
    } else if (app_path_is(r, "/later")) {
        j->later = true;
    } else if (app_path_is(r, "/status")) {
        http_respond(r, (unsigned)app_number(r, "of"), "text/plain", SLICE(""));
    } else if (app_path_is(r, "/listener")) {
        app_listener(r);
    } else if (app_path_is(r, "/drop")) {
        http_request_close(r);
    } else if (app_path_is(r, "/big")) {
        app_big(r);
    } else if (app_path_is(r, "/give")) {
        app_give(r);
    } else if (app_path_is(r, "/open")) {
        ASSERT(!http_stream_is_begun(r));
        ASSERT(http_stream_begin(r, 200, "text/event-stream") == 0);
        ASSERT(http_stream_is_begun(r));
    } else if (app_path_is(r, "/stream")) {
        j->left = app_number(r, "count");
        j->message_bytes = app_number(r, "bytes");
        ASSERT(http_stream_begin(r, 200, "text/event-stream") == 0);
        app_pump(j);
    } else if (!app_path_is(r, "/hold") && !app_path_is(r, "/last")) {
        http_respond(r, 404, "text/plain", SLICE("no such path"));
    }
}

static inline void app_writable(void *arg, struct http_request *r)
{
    (void)arg;
    app.writable++;
    app_pump(http_request_user(r));
}

static inline void app_ended(void *arg, struct http_request *r, bool completed)
{
    (void)arg;
    struct app_job *j = http_request_user(r);
    ASSERT(j->used && j->r == r);
    j->used = false;
    if (completed)
        app.completed++;
    else
        app.broken++;
}

static inline void app_tick(void *arg, uint64_t now_ns)
{
    (void)arg;
    (void)now_ns;
    for (int i = 0; i < APP_JOBS_MAX; i++) {
        struct app_job *j = &app.jobs[i];
        if (!j->used)
            continue;
        uint64_t stalled = http_stream_stalled_ns(j->r);
        if (stalled > app.stalled_ns_max)
            app.stalled_ns_max = stalled;
        if (j->later) {
            j->later = false;
            http_respond(j->r, 200, "text/plain", SLICE("now"));
        }
    }
}

static inline void app_stopping(void *arg)
{
    (void)arg;
    for (int i = 0; i < APP_JOBS_MAX; i++)
        if (app.jobs[i].used && app_path_is(app.jobs[i].r, "/last"))
            http_respond(app.jobs[i].r, 503, "text/plain", SLICE("the end"));
}

/* Fills in zero options: 127.0.0.1, 64 connections, 1 MiB bodies, an unlimited account. */
static inline struct http_server_opts app_opts(struct http_server_opts opts)
{
    opts.host = opts.host ? opts.host : "127.0.0.1";
    opts.connections_max = opts.connections_max ? opts.connections_max : 64;
    opts.body_bytes_max = opts.body_bytes_max ? opts.body_bytes_max : 1 << 20;
    opts.network = opts.network ? opts.network : test_account(ACCOUNT_NO_LIMIT);
    opts.handler =
        (struct http_handler){app_begin, app_ready, app_writable, app_ended, app_tick, app_stopping, NULL};
    return opts;
}

static inline void app_join(const struct http_server_opts *joins)
{
    struct err e = {{0}};
    struct http_server *other;
    struct http_server_opts opts = *joins;
    opts.network = app.account;
    opts = app_opts(opts);
    opts.handler.tick = NULL;
    opts.handler.stopping = NULL;
    if (http_server_create(&opts, &e, &other) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(http_server_join(app.server, other), 0);
}

static inline void *app_run(void *arg)
{
    (void)arg;
    app.run_result = http_server_run(app.server);
    return NULL;
}

/* `joins`, if there is one, with the same account and no clock of its own. */
static inline void app_start_with(struct http_server_opts opts, const struct http_server_opts *joins)
{
    struct err e = {{0}};
    if (app.running) {
        fprintf(stderr, "a test failed while its server ran; the others would share it\n");
        exit(1);
    }
    memset(&app, 0, sizeof(app));
    for (size_t i = 0; i < sizeof(app.letters); i++)
        app.letters[i] = (char)('a' + i % 26);
    opts = app_opts(opts);
    app.account = opts.network;
    if (http_server_create(&opts, &e, &app.server) < 0)
        fail_msg("%s", e.text);
    if (joins)
        app_join(joins);
    assert_int_equal(pthread_create(&app.thread, NULL, app_run, NULL), 0);
    app.running = true;
}

static inline void app_start(struct http_server_opts opts)
{
    app_start_with(opts, NULL);
}

static inline void app_stop(void)
{
    http_server_stop(app.server, 0);
    pthread_join(app.thread, NULL);
    assert_int_equal(app.run_result, 0);
    http_server_free(app.server);
    app.running = false;
    assert_int_equal(app.begun, app.completed + app.broken);
    assert_int_equal(account_numbers(app.account).reserved, 0);
}

#define APP_WAIT_S 30 /* below the idle timeout, 60 s */

/* Waits for *counter to reach `wanted`. How long it takes depends on what else the machine does; the bound
 * shows that an event and no timer did it. */
static inline void app_wait(_Atomic int *counter, int wanted)
{
    uint64_t start = clock_now_ns();
    while (*counter < wanted) {
        if (clock_now_ns() - start > APP_WAIT_S * NS_PER_S)
            fail_msg("%d of %d after %d s", *counter, wanted, APP_WAIT_S);
        usleep(200);
    }
}

/* ---- clients ---- */

/* A connection with a receive buffer of `receive_bytes` (0 = the system's). */
static inline int client_open_small(int receive_bytes)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(http_server_port(app.server))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (receive_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static inline int client_open(void)
{
    return client_open_small(0);
}

/* When the server has closed, the rest is not sent; the answer shows why. */
static inline void client_send_bytes(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        bytes += n;
        len -= (size_t)n;
    }
}

static inline void client_send(int fd, const char *text)
{
    client_send_bytes(fd, text, strlen(text));
}

/* One read, up to 5 s later. 0 = closed, -ECONNRESET. */
static inline ssize_t client_read(int fd, char *to, size_t bytes_max)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, 5000) != 1)
        fail_msg("no byte came for 5 s");
    ssize_t n = recv(fd, to, bytes_max, 0);
    return n < 0 ? -errno : n;
}

struct answer {
    int status;
    char head[4096];
    char *body;
    size_t body_bytes;
    bool closed; /* the server closed the connection after it */
};

static inline const char *answer_header(const struct answer *a, const char *name)
{
    const char *at = strcasestr(a->head, name);
    return at ? at + strlen(name) : NULL;
}

static inline void answer_room(struct answer *a, size_t bytes)
{
    a->body = realloc(a->body, bytes + 1);
    assert_non_null(a->body);
}

static inline void answer_take(struct answer *a, const char *bytes, size_t count)
{
    answer_room(a, count);
    a->body_bytes = count;
    memcpy(a->body, bytes, count);
}

/* The bytes of chunks up to the last one. False when the last has not come. A sanitizer marks every byte that
 * is searched: no further than a chunk's first line. */
static inline bool client_unchunk(const char *from, size_t len, struct answer *a)
{
    size_t at = 0;
    a->body_bytes = 0;
    /* The whole is parsed once, not at each read. */
    if (len < 5 || memcmp(from + len - 5, "0\r\n\r\n", 5) != 0)
        return false;
    answer_room(a, len);
    for (;;) {
        const char *line = memmem(from + at, MIN_OF(len - at, (size_t)32), "\r\n", 2);
        if (!line)
            return false;
        size_t chunk = strtoul(from + at, NULL, 16);
        at = (size_t)(line - from) + 2;
        if (at + chunk + 2 > len)
            return false;
        memcpy(a->body + a->body_bytes, from + at, chunk);
        a->body_bytes += chunk;
        at += chunk + 2;
        if (chunk == 0)
            return true;
    }
}

/* Reads one answer (not "100 Continue", which it skips) of up to 64 MiB. `no_body`: to a HEAD. The buffer
 * grows: a sanitizer marks every byte of one. */
static inline struct answer client_answer(int fd, bool no_body)
{
    static const size_t bytes_max = (size_t)64 << 20;
    struct answer a = {0};
    size_t len = 0, body_at = 0, room = 16384;
    char *bytes = malloc(room);
    assert_non_null(bytes);
    for (;;) {
        const char *end = a.status ? NULL : memmem(bytes, len, "\r\n\r\n", 4);
        if (end && strncmp(bytes, "HTTP/1.1 100", 12) == 0) {
            size_t skip = (size_t)(end + 4 - bytes);
            memmove(bytes, bytes + skip, len - skip);
            len -= skip;
            continue;
        }
        if (end) {
            body_at = (size_t)(end + 4 - bytes);
            assert_true(body_at < sizeof(a.head));
            memcpy(a.head, bytes, body_at);
            a.status = atoi(bytes + 9);
        }
        if (a.status) {
            const char *length = answer_header(&a, "Content-Length: ");
            if (no_body)
                break;
            if (answer_header(&a, "Transfer-Encoding: chunked")) {
                if (client_unchunk(bytes + body_at, len - body_at, &a))
                    break;
            } else if (length && len - body_at >= strtoul(length, NULL, 10)) {
                answer_take(&a, bytes + body_at, strtoul(length, NULL, 10));
                break;
            }
        }
        assert_true(len < bytes_max);
        if (len == room) {
            room *= 4;
            bytes = realloc(bytes, room);
            assert_non_null(bytes);
        }
        ssize_t n = client_read(fd, bytes + len, room - len);
        if (n <= 0) {
            a.closed = true;
            answer_take(&a, bytes + body_at, len - body_at);
            break;
        }
        len += (size_t)n;
    }
    if (!a.body)
        answer_room(&a, 0);
    free(bytes);
    return a;
}

static inline void answer_done(struct answer *a)
{
    free(a->body);
}

/* Sends the text, reads one answer, checks its status and that its body holds `part`. */
static inline void client_expect(int fd, const char *request, int status, const char *part)
{
    client_send(fd, request);
    struct answer a = client_answer(fd, strncmp(request, "HEAD", 4) == 0);
    if (a.status != status || !memmem(a.body, a.body_bytes, part, strlen(part)))
        fail_msg("wanted %d with \"%s\", got %d with \"%.*s\"", status, part, a.status, (int)a.body_bytes,
                 a.body);
    answer_done(&a);
}

static inline void client_expect_close(int fd)
{
    char waste[4096];
    ssize_t n;
    while ((n = client_read(fd, waste, sizeof(waste))) > 0)
        ;
    assert_int_equal(n, 0);
}

/* One request on a connection of its own. */
static inline void expect_once(const char *request, int status, const char *part)
{
    int fd = client_open();
    client_expect(fd, request, status, part);
    close(fd);
}

#endif
