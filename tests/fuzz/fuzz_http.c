/* Bytes from a client, against a whole server in this process.
 *
 * The first byte chooses what the handler does with requests, the second how the rest is cut into pieces. The
 * bytes go through a pair of sockets; the server takes its turns in between. Whatever comes, each request
 * that begins ends once, and nothing stays reserved. */
#include "base/check.h"
#include "base/slice.h"
#include "http/http_request.h"
#include "http/http_server.h"
#include "memory/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TURNS_MAX 64

static struct http_server *server;
static struct account *account;
static uint64_t idle_bytes;
static unsigned mode, begun, ended;
static struct http_request *held;

static int begin(void *arg, struct http_request *r)
{
    struct slice value;
    (void)arg;
    begun++;
    ASSERT(http_request_path(r).len > 0 && !memchr(http_request_path(r).ptr, 0, http_request_path(r).len));
    if (http_request_query(r, "a", &value) && value.len > 0)
        ASSERT(!memchr(value.ptr, 0, value.len));
    if (!(mode & 1))
        return 0;
    http_respond(r, 401, "text/plain", SLICE("no"));
    return 401;
}

static void ready(void *arg, struct http_request *r)
{
    (void)arg;
    ASSERT(http_request_body(r).len <= 4096);
    switch (mode >> 1 & 3) {
    case 0:
        http_respond(r, 200, "text/plain", http_request_body(r));
        break;
    case 1:
        ASSERT(http_stream_begin(r, 200, "text/plain") == 0);
        ASSERT(http_stream_write(r, SLICE("a stream")) == 0);
        http_stream_end(r);
        break;
    case 2:
        held = r;
        break;
    default:
        http_request_close(r);
        break;
    }
}

static void ended_once(void *arg, struct http_request *r, bool completed)
{
    (void)arg;
    (void)completed;
    ended++;
    if (held == r)
        held = NULL;
}

static void start(void)
{
    struct ledger *ledger;
    struct http_server_opts opts = {
        .host = "127.0.0.1",
        .connections_max = 4,
        .header_bytes_max = 1024,
        .body_bytes_max = 4096,
        .send_bytes_max = 4096,
        .idle_timeout_s = 5,
        .loopback_host_only = true,
        .handler = {begin, ready, NULL, ended_once, NULL},
    };
    ASSERT(ledger_create(ACCOUNT_NO_LIMIT, &ledger) == 0);
    ASSERT(account_open(ledger_root(ledger), "network", ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &account) == 0);
    opts.network = account;
    ASSERT(http_server_create(&opts, NULL, &server) == 0);
    idle_bytes = account_numbers(account).reserved;
}

/* Reads and throws away the server's answers, or it would wait for a reader. */
static void drain(int fd)
{
    char waste[8192];
    while (recv(fd, waste, sizeof(waste), MSG_DONTWAIT) > 0)
        ;
}

static void turn(int fd)
{
    ASSERT(http_server_turn(server, 0) == 0);
    drain(fd);
    if (held) {
        struct http_request *r = held;
        held = NULL;
        http_respond(r, 200, "text/plain", SLICE("late"));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    if (!server)
        start();
    if (size < 2)
        return 0;
    mode = data[0];
    size_t piece = data[1] ? (size_t)data[1] * 8 : size, at = 2;
    if (piece < size / 32)
        piece = size / 32;
    ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    ASSERT(http_server_adopt(server, pair[0]) == 0);
    while (at < size) {
        size_t n = piece < size - at ? piece : size - at;
        ssize_t sent = send(pair[1], data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        turn(pair[1]);
        if (sent < 0 && errno != EAGAIN)
            break;
        at += sent > 0 ? (size_t)sent : n;
    }
    for (int i = 0; i < 4; i++)
        turn(pair[1]);
    close(pair[1]);
    pair[1] = -1;
    for (int i = 0; i < TURNS_MAX && http_server_counters(server).connections_now > 0; i++)
        turn(pair[1]);
    ASSERT(http_server_counters(server).connections_now == 0);
    ASSERT(begun == ended);
    ASSERT(account_numbers(account).reserved == idle_bytes);
    return 0;
}
