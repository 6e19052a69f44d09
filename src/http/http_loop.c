/* http_loop.c - a turn: events, connections, the handler; then the turns of the servers that joined.
 *
 * A server that joined another one is complete: epoll set, places, limits. Its epoll descriptor lies in the
 * other's set, and a turn of the other is followed by one of its own when it has work. So a full server takes
 * no place of another. */
#include "http/http_state.h"

#include "base/clock.h"

#include <limits.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 64

/* ---- events ---- */

static void do_watch(struct http_server *s, uint32_t index, uint32_t generation)
{
    struct http_watch w = s->watches[index];
    if (w.fd >= 0 && w.generation == generation)
        w.ready(w.arg, w.fd);
}

static void do_client(struct http_server *s, uint32_t index, uint32_t generation, uint32_t events)
{
    struct http_conn *c = &s->conns[index];
    if (c->fd < 0 || c->generation != generation)
        return;
    bool gone = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    c->readable = c->readable || gone || events & EPOLLIN;
    c->full = c->full && !gone && !(events & EPOLLOUT);
    if (gone && c->open && !c->gone)
        http_conn_gone(c);
    http_conn_wake(c);
}

static void clear_wake(struct http_server *s)
{
    uint64_t n;
    if (read(s->wake_fd, &n, sizeof(n)) < 0)
        ASSERT(errno == EAGAIN || errno == EINTR);
}

static void do_event(struct http_server *s, const struct epoll_event *e)
{
    uint64_t data = e->data.u64;
    uint32_t index = (uint32_t)(data >> 32) & 0xfffffff, generation = (uint32_t)data;
    switch ((enum http_event)(data >> 60)) {
    case HTTP_EVENT_WAKE:
        clear_wake(s);
        break;
    case HTTP_EVENT_WATCH:
        do_watch(s, index, generation);
        break;
    case HTTP_EVENT_CLIENT:
        do_client(s, index, generation, e->events);
        break;
    case HTTP_EVENT_JOINED:
        s->joined[index]->due = true;
        break;
    case HTTP_EVENT_ACCEPT:
        http_accept_ready(s);
        break;
    }
}

static void tell_writable(struct http_server *s)
{
    struct list now;
    list_init(&now);
    list_move_all(&s->writable, &now);
    while (!list_empty(&now)) {
        struct http_conn *c = LIST_FIRST(&now, struct http_conn, writable);
        list_remove(&c->writable);
        c->request.ring.want_room = false;
        if (s->opts.handler.writable)
            s->opts.handler.writable(s->opts.arg, &c->request);
    }
}

static void tick(struct http_server *s)
{
    if (s->now_ns < s->tick_ns)
        return;
    s->tick_ns = s->now_ns + HTTP_TICK_NS;
    for (uint32_t i = 0; i < s->conns_max; i++)
        http_conn_check_deadline(&s->conns[i], s->now_ns);
    if (s->opts.handler.tick)
        s->opts.handler.tick(s->opts.arg, s->now_ns);
}

/* ---- the end of requests ---- */

/* Ends what the closing list holds. */
static void end_closing(struct http_server *s)
{
    while (!list_empty(&s->closing))
        http_conn_close(LIST_FIRST(&s->closing, struct http_conn, closing));
}

void http_loop_end_all(struct http_server *s)
{
    for (uint32_t i = 0; s->conns && i < s->conns_max; i++)
        http_conn_close(&s->conns[i]);
    for (uint32_t i = 0; i < s->joined_count; i++)
        http_loop_end_all(s->joined[i]);
}

/* ---- how long a turn waits ---- */

static int turn_wait_ms(struct http_server *s, int wait_ms)
{
    uint64_t tick_ms = s->tick_ns > s->now_ns ? DIV_UP(s->tick_ns - s->now_ns, NS_PER_MS) : 0;
    uint64_t ms = MIN_OF((uint64_t)MAX_OF(wait_ms, 0), tick_ms);
    if (!list_empty(&s->active))
        return 0;
    ms = http_accept_wait_ms(s, ms);
    uint64_t stop_at_ns = atomic_load(&s->stop_at_ns);
    if (s->last_words_ns)
        stop_at_ns = s->last_words_ns + HTTP_LAST_WORDS_NS;
    if (stop_at_ns != UINT64_MAX)
        ms = MIN_OF(ms, stop_at_ns > s->now_ns ? DIV_UP(stop_at_ns - s->now_ns, NS_PER_MS) : 0);
    return (int)MIN_OF(ms, (uint64_t)INT_MAX);
}

/* ---- servers that share the loop ---- */

static int joined_wait_ms(struct http_server *s, int wait_ms)
{
    for (uint32_t i = 0; i < s->joined_count; i++) {
        struct http_server *j = s->joined[i];
        j->now_ns = s->now_ns;
        wait_ms = turn_wait_ms(j, wait_ms);
    }
    return wait_ms;
}

/* A client of its own, a request that the handler ended or answered from the other's turn, or its clock. */
static bool is_due(struct http_server *j)
{
    return j->due || !list_empty(&j->closing) || !list_empty(&j->leaving) || turn_wait_ms(j, INT_MAX) == 0;
}

static void joined_turn(struct http_server *s)
{
    for (uint32_t i = 0; i < s->joined_count; i++) {
        struct http_server *j = s->joined[i];
        j->now_ns = s->now_ns;
        j->stopping = s->stopping;
        atomic_store(&j->stop_at_ns, atomic_load(&s->stop_at_ns));
        if (!is_due(j))
            continue;
        j->due = false;
        http_server_turn(j, 0);
    }
}

/* ---- turns ---- */

int http_server_turn(struct http_server *s, int wait_ms)
{
    struct epoll_event events[EVENTS_MAX];
    s->now_ns = clock_now_ns();
    int wait = joined_wait_ms(s, turn_wait_ms(s, wait_ms));
    int count = epoll_wait(s->epoll_fd, events, EVENTS_MAX, wait);
    if (count < 0 && errno != EINTR)
        return -errno;
    s->now_ns = clock_now_ns();
    for (int i = 0; i < count; i++)
        do_event(s, &events[i]);
    s->stopping = atomic_load(&s->stop_at_ns) != UINT64_MAX;
    end_closing(s);
    http_io_run(s);
    http_conn_leave_all(s);
    tell_writable(s);
    tick(s);
    end_closing(s);
    joined_turn(s);
    http_accept_arm(s);
    return 0;
}

/* Last words first, then the end. */
static void end_grace(struct http_server *s)
{
    if (s->last_words_ns == 0 && s->opts.handler.stopping) {
        s->last_words_ns = s->now_ns;
        s->opts.handler.stopping(s->opts.arg);
        end_closing(s);
        joined_turn(s);
    } else if (!s->opts.handler.stopping || s->now_ns >= s->last_words_ns + HTTP_LAST_WORDS_NS) {
        http_loop_end_all(s);
    }
}

int http_server_run(struct http_server *s)
{
    for (;;) {
        int r = http_server_turn(s, INT_MAX);
        if (r < 0)
            return r;
        if (!s->stopping)
            continue;
        if (s->now_ns >= atomic_load(&s->stop_at_ns))
            end_grace(s);
        uint32_t open = s->requests_open;
        for (uint32_t i = 0; i < s->joined_count; i++)
            open += s->joined[i]->requests_open;
        if (open == 0)
            return 0;
    }
}
