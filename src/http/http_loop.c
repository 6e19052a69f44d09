/* http_loop.c - a turn: events, MHD, the handler; then the turns of the servers that joined.
 *
 * A server that joined another one is complete: epoll set, MHD, places, limits. Its epoll descriptor lies
 * in the other's set, and a turn of the other is followed by one of its own when it has work. So a full
 * server takes no place of another.
 *
 * MHD can request no wait although it has no work: a client with an endless chunk header fills the read
 * buffer, and MHD polls it until it times out. After 64 such turns in a row we wait a millisecond in each. */
#include "http/http_state.h"

#include "base/clock.h"

#include <limits.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX        64
#define USELESS_TURNS_MAX 64

/* ---- events ---- */

static void do_watch(struct http_server *s, uint32_t index, uint32_t generation)
{
    struct http_watch w = s->watches[index];
    if (w.fd >= 0 && w.generation == generation)
        w.ready(w.arg, w.fd);
}

static void do_client(struct http_server *s, uint32_t index, uint32_t generation)
{
    struct http_conn *c = &s->conns[index];
    if (c->open && c->generation == generation)
        http_conn_gone(c);
}

static void clear_wake(struct http_server *s)
{
    uint64_t n;
    if (read(s->wake_fd, &n, sizeof(n)) < 0)
        ASSERT(errno == EAGAIN || errno == EINTR);
}

static void do_event(struct http_server *s, uint64_t data)
{
    uint32_t index = (uint32_t)(data >> 32) & 0xfffffff, generation = (uint32_t)data;
    switch ((enum http_event)(data >> 60)) {
    case HTTP_EVENT_MHD:
        break; /* MHD runs in every turn. */
    case HTTP_EVENT_WAKE:
        clear_wake(s);
        break;
    case HTTP_EVENT_WATCH:
        do_watch(s, index, generation);
        break;
    case HTTP_EVENT_CLIENT:
        do_client(s, index, generation);
        break;
    case HTTP_EVENT_LINGER:
        http_linger_ready(s, index, generation);
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
    while (!list_empty(&s->writable)) {
        struct list *l = s->writable.next;
        list_remove(l);
        list_push_back(&now, l);
    }
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
        if (s->conns[i].open)
            http_conn_check_deadline(&s->conns[i], s->now_ns);
    http_linger_check(s, s->now_ns);
    if (s->opts.handler.tick)
        s->opts.handler.tick(s->opts.arg, s->now_ns);
}

/* ---- the end of requests ---- */

/* Ends what the closing list holds: tells the handler, then lets MHD close the connection. */
static void end_closing(struct http_server *s)
{
    while (!list_empty(&s->closing)) {
        struct http_conn *c = LIST_FIRST(&s->closing, struct http_conn, closing);
        http_request_over(&c->request, false);
        http_conn_kill(c);
    }
}

void http_loop_end_all(struct http_server *s)
{
    for (uint32_t i = 0; i < s->conns_max; i++) {
        struct http_conn *c = &s->conns[i];
        if (!c->open)
            continue;
        http_request_over(&c->request, false);
        http_conn_kill(c);
    }
    end_closing(s);
}

/* ---- how long a turn waits ---- */

static int turn_wait_ms(struct http_server *s, int wait_ms)
{
    MHD_UNSIGNED_LONG_LONG mhd_ms = 0;
    uint64_t tick_ms = s->tick_ns > s->now_ns ? DIV_UP(s->tick_ns - s->now_ns, NS_PER_MS) : 0;
    uint64_t ms = MIN_OF((uint64_t)MAX_OF(wait_ms, 0), tick_ms);
    if (s->resumed)
        return 0;
    ms = http_accept_wait_ms(s, ms);
    uint64_t stop_at_ns = atomic_load(&s->stop_at_ns);
    if (s->last_words_ns)
        stop_at_ns = s->last_words_ns + HTTP_LAST_WORDS_NS;
    if (stop_at_ns != UINT64_MAX)
        ms = MIN_OF(ms, stop_at_ns > s->now_ns ? DIV_UP(stop_at_ns - s->now_ns, NS_PER_MS) : 0);
    if (MHD_get_timeout(s->mhd, &mhd_ms) == MHD_NO || mhd_ms >= ms)
        return (int)MIN_OF(ms, (uint64_t)INT_MAX);
    return mhd_ms == 0 && s->useless_turns > USELESS_TURNS_MAX ? 1 : (int)mhd_ms;
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
        if (!is_due(j))
            continue;
        j->due = false;
        http_server_turn(j, 0);
    }
}

static void joined_obey(struct http_server *s)
{
    for (uint32_t i = 0; i < s->joined_count; i++) {
        struct http_server *j = s->joined[i];
        atomic_store(&j->stop_at_ns, atomic_load(&s->stop_at_ns));
        j->stopping = s->stopping;
    }
}

static uint32_t joined_requests(const struct http_server *s)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < s->joined_count; i++)
        open += s->joined[i]->requests_open;
    return open;
}

static void joined_end_all(struct http_server *s)
{
    for (uint32_t i = 0; i < s->joined_count; i++)
        http_loop_end_all(s->joined[i]);
}

/* ---- turns ---- */

/* Requests of other threads. */
static void obey(struct http_server *s)
{
    s->stopping = atomic_load(&s->stop_at_ns) != UINT64_MAX;
    joined_obey(s);
}

int http_server_turn(struct http_server *s, int wait_ms)
{
    struct epoll_event events[EVENTS_MAX];
    s->now_ns = clock_now_ns();
    int wait = joined_wait_ms(s, turn_wait_ms(s, wait_ms));
    int count = epoll_wait(s->epoll_fd, events, EVENTS_MAX, wait);
    if (count < 0 && errno != EINTR)
        return -errno;
    s->now_ns = clock_now_ns();
    uint64_t activity = s->activity;
    for (int i = 0; i < count; i++)
        do_event(s, events[i].data.u64);
    obey(s);
    end_closing(s);
    s->resumed = false;
    http_recv_run(s);
    http_leave_all(s);
    tell_writable(s);
    tick(s);
    end_closing(s);
    joined_turn(s);
    http_accept_arm(s);
    bool useless = count <= 0 && wait <= 1 && s->activity == activity;
    s->useless_turns = useless ? s->useless_turns + (s->useless_turns < UINT32_MAX) : 0;
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
        joined_end_all(s);
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
        if (s->requests_open + joined_requests(s) == 0)
            return 0;
    }
}
