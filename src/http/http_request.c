/* http_request.c - the handler's view of a request, its begin and its end. */
#include "http/http_state.h"

#include "http/http_target.h"
#include "memory/ledger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct slice http_request_method(const struct http_request *r)
{
    return r->method;
}

struct slice http_request_path(const struct http_request *r)
{
    return r->path;
}

/* The conn of a request that is only looked at. */
static const struct http_conn *conn_of(const struct http_request *r)
{
    return http_conn_of((struct http_request *)(uintptr_t)r);
}

bool http_request_query(const struct http_request *r, const char *name, struct slice *ret)
{
    return r->phase != HTTP_PHASE_OVER && http_head_find(&conn_of(r)->head, true, slice_of(name), ret);
}

bool http_request_header(const struct http_request *r, const char *name, struct slice *ret)
{
    return r->phase != HTTP_PHASE_OVER && http_head_find(&conn_of(r)->head, false, slice_of(name), ret);
}

struct slice http_request_body(const struct http_request *r)
{
    return r->phase == HTTP_PHASE_BODY ? (struct slice){0} : buf_slice(&r->body);
}

void http_request_body_take(struct http_request *r, struct buf *ret)
{
    ASSERT(r->phase != HTTP_PHASE_BODY);
    *ret = r->body;
    r->body = (struct buf){0};
}

void http_request_client(const struct http_request *r, char ret[HTTP_CLIENT_TEXT_MAX])
{
    const struct sockaddr *a = &conn_of(r)->from.any;
    char host[INET6_ADDRSTRLEN] = "?";
    snprintf(ret, HTTP_CLIENT_TEXT_MAX, "local");
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)a;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(ret, HTTP_CLIENT_TEXT_MAX, "%s:%u", host, (unsigned)ntohs(in->sin_port));
    } else if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)a;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
        snprintf(ret, HTTP_CLIENT_TEXT_MAX, "[%s]:%u", host, (unsigned)ntohs(in->sin6_port));
    }
}

/* An IPv4 address: 1, 0, 0, 0, the address. One that IPv6 stands for is the same. */
static struct http_client_net net_of_v4(const void *address)
{
    struct http_client_net net = {{1}};
    memcpy(net.bytes + 4, address, 4);
    return net;
}

/* A client on this machine has the whole of 127.0.0.0/8 to come from, and ::1: they are one network. */
struct http_client_net http_request_local_net(void)
{
    static const uint8_t loopback[] = {127, 0, 0, 1};
    return net_of_v4(loopback);
}

struct http_client_net http_request_client_net(const struct http_request *r)
{
    const struct sockaddr *a = &conn_of(r)->from.any;
    struct http_client_net net = {{0}};
    if (http_peer_is_loopback(a))
        return http_request_local_net();
    if (a->sa_family == AF_INET)
        return net_of_v4(&((const struct sockaddr_in *)a)->sin_addr);
    if (a->sa_family != AF_INET6)
        return net;
    const struct in6_addr *in = &((const struct sockaddr_in6 *)a)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(in))
        return net_of_v4(in->s6_addr + 12);
    memcpy(net.bytes, in->s6_addr, sizeof(net.bytes));
    return net;
}

uint8_t http_request_listener(const struct http_request *r)
{
    return conn_of(r)->server->opts.listener;
}

void http_request_set_user(struct http_request *r, void *user)
{
    r->user = user;
}

void *http_request_user(const struct http_request *r)
{
    return r->user;
}

int http_header_set(struct http_request *r, const char *name, const char *value)
{
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == ':' || *at == 0x7f)
            return -EINVAL;
    for (const char *at = value; *at; at++)
        if (((unsigned char)*at < ' ' && *at != '\t') || *at == 0x7f)
            return -EINVAL;
    size_t name_bytes = strlen(name) + 1, value_bytes = strlen(value) + 1;
    if (name_bytes == 1)
        return -EINVAL;
    if (r->header_count == HTTP_HEADERS_MAX ||
        name_bytes + value_bytes > sizeof(r->headers) - r->header_bytes)
        return -ENOSPC;
    memcpy(r->headers + r->header_bytes, name, name_bytes);
    memcpy(r->headers + r->header_bytes + name_bytes, value, value_bytes);
    r->header_bytes += name_bytes + value_bytes;
    r->header_count++;
    return 0;
}

void http_request_close(struct http_request *r)
{
    struct http_conn *c = http_conn_of(r);
    if (r->phase == HTTP_PHASE_OVER || r->closing)
        return;
    r->closing = true;
    list_push_back(&c->server->closing, &c->closing);
}

void http_request_begin(struct http_request *r)
{
    struct http_conn *c = http_conn_of(r);
    /* Not the header area: its bytes count only up to header_bytes. */
    memset(r, 0, offsetof(struct http_request, headers));
    http_raw_keep(&c->raw, &c->head);
    r->phase = HTTP_PHASE_HEADER;
    r->since_ns = c->server->now_ns;
}

static void free_ring(struct http_request *r)
{
    struct http_conn *c = http_conn_of(r);
    list_remove(&c->writable);
    if (!r->ring.bytes)
        return;
    free(r->ring.bytes);
    account_unuse(c->server->opts.network, c->server->opts.send_bytes_max);
    r->ring = (struct http_ring){0};
}

static void free_reply(struct http_request *r)
{
    struct http_server *s = http_conn_of(r)->server;
    struct http_reply *reply = r->reply;
    r->reply = NULL;
    if (!reply)
        return;
    account_unuse(s->opts.network, reply->own);
    charge_give(reply->charged ? &s->charge : NULL, reply->charged);
    buf_done(&reply->given);
    free(reply);
}

void http_request_over(struct http_request *r, bool completed)
{
    struct http_conn *c = http_conn_of(r);
    struct http_server *s = c->server;
    if (r->phase == HTTP_PHASE_OVER || r->phase == HTTP_PHASE_NONE)
        return;
    if (r->begun) {
        s->requests_open -= !r->late;
        HTTP_COUNT(s, requests_now, (uint64_t)-1);
        /* Still in its last phase: the handler may look at what it was. */
        s->opts.handler.ended(s->opts.arg, r, completed);
    }
    r->phase = HTTP_PHASE_OVER;
    if (r->status && completed)
        HTTP_COUNT(s, bytes_out, r->reply_bytes);
    HTTP_COUNT(s, answers[r->status >= 100 && r->status < 600 ? r->status / 100 : 0], 1);
    if (r->status >= 400 && r->status < 400 + HTTP_REFUSED_STATUSES)
        HTTP_COUNT(s, refused[r->status - 400], 1);
    free_ring(r);
    list_remove(&c->closing);
    buf_done(&r->body);
    free_reply(r);
}
