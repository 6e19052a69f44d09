/* http_respond.c - the answer in one piece.
 *
 * The answer's body is copied, so the caller's buffer may go. A small one follows its head in the
 * connection's pool. Up to send_bytes_max the copy lives in memory that the connection has reserved anyway
 * (it has no stream then). So small answers, errors above all, cannot fail because the ledger is full. */
#include "http/http_state.h"

#include "memory/ledger.h"

#include <stdlib.h>

/* The largest body that goes into the pool: there is room for it after any head. */
#define BODY_IN_POOL_MAX 512

/* NULL when there is no memory for it. */
static struct http_reply *reply_create(struct http_server *s, struct slice body)
{
    size_t own = MIN_OF(body.len, s->opts.send_bytes_max), charged = body.len - own;
    if (charged && charge_take(&s->charge, charged) < 0)
        return NULL;
    struct http_reply *reply = malloc(sizeof(*reply) + body.len);
    if (!reply) {
        charge_give(charged ? &s->charge : NULL, charged);
        return NULL;
    }
    *reply = (struct http_reply){.own = own, .charged = charged, .body = {reply->bytes, body.len}};
    account_use(s->opts.network, own);
    memcpy(reply->bytes, body.ptr, body.len);
    return reply;
}

/* Writes the head of an answer with `bytes` of a body, which `reply` has, or nothing yet. */
static void begin_answer(struct http_request *r, unsigned status, const char *content_type, size_t bytes,
                         struct http_reply *reply)
{
    struct http_conn *c = http_conn_of(r);
    r->reply = reply;
    r->reply_bytes = bytes;
    r->status = status;
    http_answer_begin(r, content_type, r->phase == HTTP_PHASE_HEADER && r->body_expected);
    http_answer_end(r, bytes);
    if (reply && !r->is_head)
        c->out.payload_left = bytes;
}

static bool may_answer(const struct http_request *r)
{
    if (r->phase == HTTP_PHASE_OVER || r->closing)
        return false;
    ASSERT((r->phase == HTTP_PHASE_WAITING || r->phase == HTTP_PHASE_HEADER) && !r->reply && r->status == 0);
    return true;
}

static void refuse(struct http_request *r, size_t bytes)
{
    struct http_refusal why = http_refuse_reply(http_conn_of(r)->server, bytes);
    http_refuse(r, &why);
}

void http_respond(struct http_request *r, unsigned status, const char *content_type, struct slice body)
{
    struct http_conn *c = http_conn_of(r);
    if (!may_answer(r))
        return;
    if (body.len <= BODY_IN_POOL_MAX) {
        begin_answer(r, status, content_type, body.len, NULL);
        if (!r->is_head && body.len > 0)
            http_answer_put(c, body.ptr, body.len);
        return;
    }
    struct http_reply *reply = reply_create(c->server, body);
    if (reply)
        begin_answer(r, status, content_type, body.len, reply);
    else
        refuse(r, body.len);
}

void http_respond_buf(struct http_request *r, unsigned status, const char *content_type, struct buf *body)
{
    size_t bytes = body->len;
    if (bytes <= http_conn_of(r)->server->opts.send_bytes_max || r->phase == HTTP_PHASE_OVER || r->closing) {
        /* The connection has room for a copy, or no reader. */
        http_respond(r, status, content_type, buf_slice(body));
        buf_done(body);
        return;
    }
    ASSERT(may_answer(r));
    struct http_reply *reply = malloc(sizeof(*reply));
    if (!reply) {
        buf_done(body);
        refuse(r, bytes);
        return;
    }
    *reply = (struct http_reply){.body = buf_slice(body), .given = *body};
    *body = (struct buf){0};
    begin_answer(r, status, content_type, bytes, reply);
}
