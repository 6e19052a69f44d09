/* http_leave.c - closes connections without MHD: after faulty bytes, and to free places.
 *
 * Callbacks of MHD only put a connection into the list `leaving`. Once MHD is back the loop looks at each:
 *   - A fault is answered after all requests before the faulty one. Until then the connection is taken out
 *     of
 *     the list; it comes back when the last of them is completed.
 *   - An evicted connection with a complete request stays. One that is idle after a request is closed
 *     without
 *     an answer, as a server may at any time. Any other gets 429.
 *   - A request line that ends in a CR alone gets no answer: without its LF there is no request yet.
 * The answer bypasses MHD, which would write one of its own. Then the sending half is shut, so that nothing
 * can follow it, and MHD is made to read once more: http_recv.c returns the client's close to it. (MHD reads
 * after a suspension, whatever epoll said. A connection that is shut altogether would reset a client that is
 * still sending, and the reset overtakes the answer.) */
#include "http/http_state.h"

#include <sys/socket.h>

/* True if the server may answer the next bytes of the connection: no earlier request is open, and MHD has no
 * answer to this one. */
static bool is_reading(const struct http_conn *c)
{
    enum http_phase phase = c->request.phase;
    return c->raw.requests <= c->ended &&
           (phase == HTTP_PHASE_NONE || phase == HTTP_PHASE_HEADER || phase == HTTP_PHASE_BODY);
}

/* Nothing more goes out; MHD sees the end and closes. */
static void shut(struct http_conn *c)
{
    c->shut = true;
    c->shut_ns = c->server->now_ns;
    c->linger = true;
    shutdown(c->fd, SHUT_WR);
    http_request_over(&c->request, false);
    if (!c->suspended)
        MHD_suspend_connection(c->mhd);
    c->suspended = true;
    http_conn_resume(c);
}

static void answer(struct http_conn *c, const struct http_refusal *why)
{
    struct http_request *r = &c->request;
    if (r->phase != HTTP_PHASE_BODY)
        HTTP_COUNT(c->server, requests_total, 1);
    if (r->phase == HTTP_PHASE_NONE)
        http_request_begin(r);
    http_refuse_raw(r, why);
    shut(c);
}

static void end_faulty(struct http_conn *c)
{
    if (!is_reading(c))
        return;
    if (c->raw.fault == HTTP_FAULT_REQUEST_END) {
        shut(c);
        return;
    }
    struct http_refusal why = http_refuse_fault(c->server, c->raw.fault);
    answer(c, &why);
}

static void end_evicted(struct http_conn *c)
{
    if (!is_reading(c)) {
        c->leave = HTTP_LEAVE_NOT;
        http_place_take(c);
        return;
    }
    struct http_refusal why = http_refuse_place(c);
    if (c->ended > 0 && http_raw_rests(&c->raw) && !c->raw.fault)
        shut(c);
    else
        answer(c, &why);
}

void http_leave_all(struct http_server *s)
{
    while (!list_empty(&s->leaving)) {
        struct http_conn *c = LIST_FIRST(&s->leaving, struct http_conn, leaving);
        list_remove(&c->leaving);
        if (c->killed)
            continue;
        if (c->leave == HTTP_LEAVE_EVICTED)
            end_evicted(c);
        else
            end_faulty(c);
    }
}
