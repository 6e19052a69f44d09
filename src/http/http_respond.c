/* http_respond.c - the answer in one piece.
 *
 * The answer's body is copied, so the caller's buffer may go. Up to send_bytes_max the copy lives in
 * memory that the connection has reserved anyway (it has no stream then). So small answers, errors above
 * all, cannot fail because the ledger is full. */
#include "http/http_state.h"

#include "memory/ledger.h"

#include <stdlib.h>

struct reply_body {
    struct http_server *server;
    size_t own, charged; /* bytes of the connection's send buffer, bytes on top of it */
    char bytes[];
};

static void reply_body_free(void *arg)
{
    struct reply_body *b = arg;
    account_unuse(b->server->opts.network, b->own);
    charge_give(b->charged ? &b->server->charge : NULL, b->charged);
    free(b);
}

/* NULL when there is no memory for it. */
static struct MHD_Response *reply_create(struct http_server *s, struct slice body)
{
    size_t own = MIN_OF(body.len, s->opts.send_bytes_max), charged = body.len - own;
    if (charged && charge_take(&s->charge, charged) < 0)
        return NULL;
    struct reply_body *b = malloc(sizeof(*b) + body.len);
    if (!b) {
        charge_give(charged ? &s->charge : NULL, charged);
        return NULL;
    }
    *b = (struct reply_body){.server = s, .own = own, .charged = charged};
    account_use(s->opts.network, own);
    if (body.len)
        memcpy(b->bytes, body.ptr, body.len);
    struct MHD_Response *reply =
        MHD_create_response_from_buffer_with_free_callback_cls(body.len, b->bytes, reply_body_free, b);
    if (!reply)
        reply_body_free(b);
    return reply;
}

void http_respond(struct http_request *r, unsigned status, const char *content_type, struct slice body)
{
    struct http_conn *c = http_conn_of(r);
    if (r->phase == HTTP_PHASE_OVER || r->closing)
        return;
    ASSERT((r->phase == HTTP_PHASE_WAITING || r->phase == HTTP_PHASE_HEADER) && !r->reply && r->status == 0);
    struct MHD_Response *reply = reply_create(c->server, body);
    if (!reply) {
        struct http_refusal why = http_refuse_reply(c->server, body.len);
        http_refuse(r, &why);
        return;
    }
    r->reply_bytes = body.len;
    if (r->phase == HTTP_PHASE_WAITING)
        r->phase = HTTP_PHASE_ANSWERED;
    http_request_set_reply(r, reply, status, content_type);
}

static void body_free(void *arg)
{
    struct buf *b = arg;
    buf_done(b);
    free(b);
}

void http_respond_buf(struct http_request *r, unsigned status, const char *content_type, struct buf *body)
{
    struct http_conn *c = http_conn_of(r);
    size_t bytes = body->len;
    if (bytes <= c->server->opts.send_bytes_max || r->phase == HTTP_PHASE_OVER || r->closing) {
        /* The connection has room for a copy, or no reader. */
        http_respond(r, status, content_type, buf_slice(body));
        buf_done(body);
        return;
    }
    ASSERT((r->phase == HTTP_PHASE_WAITING || r->phase == HTTP_PHASE_HEADER) && !r->reply && r->status == 0);
    struct buf *own = malloc(sizeof(*own));
    struct MHD_Response *reply =
        own ? MHD_create_response_from_buffer_with_free_callback_cls(bytes, body->ptr, body_free, own) : NULL;
    if (!reply) {
        struct http_refusal why = http_refuse_reply(c->server, bytes);
        free(own);
        buf_done(body);
        http_refuse(r, &why);
        return;
    }
    *own = *body;
    *body = (struct buf){0};
    r->reply_bytes = bytes;
    if (r->phase == HTTP_PHASE_WAITING)
        r->phase = HTTP_PHASE_ANSWERED;
    http_request_set_reply(r, reply, status, content_type);
}
