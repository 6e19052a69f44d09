/* http_recv.c - every byte that MHD reads, before MHD sees it.
 *
 * MHD 0.9.75 hides details on which two readers may disagree: folded lines are joined, values end at a NUL, a
 * bare CR is a character, of two lengths the first counts. So the raw bytes are checked (http_raw.c), all of
 * them: of every request on a connection, in any pieces, pipelined or not. Looking ahead with MSG_PEEK cannot
 * promise that, as more bytes may come between the look and MHD's read; a relay between two sockets can, for
 * three descriptors and two copies in each direction. Here the read itself is ours: the program defines
 * recv(), the only function with which MHD reads from a connection, and the dynamic linker binds the library
 * to it as it binds malloc() to an allocator. http_recv_check() verifies that at the start, and
 * http_recv_has_judged() before each request is handled: if MHD ever read by another way, the server would
 * refuse to serve rather than serve unchecked bytes.
 *
 * Calls from other code, on any thread, pass through: only while http_recv_run() runs MHD are descriptors
 * looked up. The cost is one pass over headers and chunk lines; payload is skipped. When a byte is faulty,
 * MHD gets the bytes of the requests before, and nothing of that read of the faulty one. */
#include "http/http_state.h"

#include "base/err.h"
#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

ssize_t recv(int fd, void *to, size_t bytes, int flags) __attribute__((visibility("default")));

static _Thread_local struct http_server *running;

void http_recv_run(struct http_server *s)
{
    ASSERT(!running);
    running = s;
    MHD_run(s->mhd);
    running = NULL;
}

/* ---- descriptors to connections ---- */

static uint32_t *head_of(struct http_server *s, int fd)
{
    return &s->fd_heads[(uint32_t)fd & (s->fd_heads_count - 1)];
}

static struct http_conn *conn_of_fd(struct http_server *s, int fd)
{
    for (uint32_t i = *head_of(s, fd); i; i = s->conns[i - 1].fd_next)
        if (s->conns[i - 1].fd == fd)
            return &s->conns[i - 1];
    return NULL;
}

void http_recv_add(struct http_conn *c)
{
    uint32_t *head = head_of(c->server, c->fd);
    c->fd_next = *head;
    *head = (uint32_t)(c - c->server->conns) + 1;
}

void http_recv_remove(struct http_conn *c)
{
    uint32_t index = (uint32_t)(c - c->server->conns) + 1, *at = head_of(c->server, c->fd);
    while (*at != index) {
        ASSERT(*at != 0);
        at = &c->server->conns[*at - 1].fd_next;
    }
    *at = c->fd_next;
}

/* ---- reading ---- */

static ssize_t nothing_now(void)
{
    errno = EAGAIN;
    return -1;
}

static ssize_t judge(struct http_conn *c, const char *bytes, size_t len)
{
    if (c->raw.fault)
        return nothing_now(); /* Bytes after a fault have no meaning. */
    size_t good = http_raw_feed(&c->raw, bytes, len);
    if (c->raw.fault)
        http_place_fault(c);
    http_place_note(c);
    return good > 0 ? (ssize_t)good : nothing_now();
}

/* As `recv()` of the system, which it replaces. */
ssize_t recv(int fd, void *to, size_t bytes, int flags)
{
    struct http_conn *c = running ? conn_of_fd(running, fd) : NULL;
    if (c && (c->shut || c->killed))
        return 0;
    ssize_t n = recvfrom(fd, to, bytes, flags, NULL, NULL);
    return n > 0 && c ? judge(c, to, (size_t)n) : n;
}

int http_recv_check(struct err *e)
{
    void *found = dlsym(RTLD_DEFAULT, "recv");
    ssize_t (*own)(int, void *, size_t, int) = recv;
    if (memcmp(&found, &own, sizeof(own)) == 0)
        return 0;
    return err_set(
        e, -ENOTSUP,
        "libmicrohttpd would read past the check of raw bytes: the program does not export recv()");
}

bool http_recv_has_judged(const struct http_conn *c, bool whole)
{
    uint64_t judged = whole ? c->raw.requests : c->raw.headers;
    if (judged > c->ended)
        return true;
    log_write(LOG_LEVEL_ERROR, "http_unjudged", "headers=%llu requests=%llu ended=%llu", (ull)c->raw.headers,
              (ull)c->raw.requests, (ull)c->ended);
    return false;
}
