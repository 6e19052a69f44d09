/* http_request.h - one request and its answer, as seen by the layer above.
 *
 * A request exists from the `begin` to the `ended` of its handler (http_server.h); all calls are made on
 * the network thread. Its texts point into the connection's memory and live as long as it does. It is
 * answered once: by http_respond() with a body in one piece, or by http_stream_begin(), any number of
 * http_stream_write() and http_stream_end(). None of these calls the handler back: the loop reports their
 * effects later. */
#ifndef PLATEAU_HTTP_HTTP_REQUEST_H
#define PLATEAU_HTTP_HTTP_REQUEST_H

#include "base/buf.h"
#include "base/slice.h"

struct http_request;

#define HTTP_CLIENT_TEXT_MAX 64
#define HTTP_HEADERS_MAX     12   /* set by http_header_set() for one answer */
#define HTTP_HEADER_BYTES    1280 /* bytes of all headers, names and terminating zeros included */

struct slice http_request_method(const struct http_request *r);
/* Percent-decoded, starts with '/' (or is "*"), holds no zero byte. Without the query. */
struct slice http_request_path(const struct http_request *r);
/* The first query argument of that name, decoded; one without a value is empty. False when absent. */
bool http_request_query(const struct http_request *r, const char *name, struct slice *ret);
/* The first header of that name (any case). False when absent. */
bool http_request_header(const struct http_request *r, const char *name, struct slice *ret);
/* Empty before `ready`. */
struct slice http_request_body(const struct http_request *r);
/* Hands the body over: `ret` is then the caller's, outlives the request and may be read and buf_done() on any
 * thread. What the request still has of it is nothing. */
void http_request_body_take(struct http_request *r, struct buf *ret);
/* "127.0.0.1:50123", "[::1]:50123" or "local". */
void http_request_client(const struct http_request *r, char ret[HTTP_CLIENT_TEXT_MAX]);
/* Network that identifies a client without a key: an IPv4 address, the upper half of an IPv6 address (one
 * network's), or all zeros on a Unix socket. */
struct http_client_net {
    uint8_t bytes[8];
};
struct http_client_net http_request_client_net(const struct http_request *r);
/* The network of all clients on this machine. */
struct http_client_net http_request_local_net(void);
/* Within the handler's begin: counts the connection for the tenant (not 0) until the request ends. False: the
 * tenant has HTTP_SHARE_OF_FREE times as many connections with open requests as are free of them, so that
 * tenants that take all they get always leave some to others. */
#define HTTP_SHARE_OF_FREE 4
bool http_request_share(struct http_request *r, uint64_t tenant);
/* http_server_opts.listener of the server that it came to. */
uint8_t http_request_listener(const struct http_request *r);
void http_request_set_user(struct http_request *r, void *user);
void *http_request_user(const struct http_request *r);

/* A header of the answer, before it is begun; copied. 0, -EINVAL (a control character, an empty name),
 * -ENOSPC (HTTP_HEADERS_MAX, HTTP_HEADER_BYTES). */
int http_header_set(struct http_request *r, const char *name, const char *value);

/* Answers with a copy of `body`. What exceeds send_bytes_max is charged to the account; when that is refused
 * the client gets 429 instead, or 507 when the account could never hold it. Does nothing when the client has
 * gone. */
void http_respond(struct http_request *r, unsigned status, const char *content_type, struct slice body);
/* As `http_respond()`, but a body that exceeds send_bytes_max is not copied: it stays with the account that
 * paid for it, which outlives the server. Either way `body` is done with. */
void http_respond_buf(struct http_request *r, unsigned status, const char *content_type, struct buf *body);

/* Begins an answer of unknown length (to a HEAD only its headers go out). 0, -ENOMEM, -EPIPE (the client has
 * gone; `ended` comes or came). */
int http_stream_begin(struct http_request *r, unsigned status, const char *content_type);
/* True from a begin that succeeded, until `ended`. */
bool http_stream_is_begun(const struct http_request *r);
/* All of `bytes` or nothing. 0, -EAGAIN (does not fit now: `writable` comes when the buffer is half empty),
 * -EMSGSIZE (never fits: longer than send_bytes_max), -EPIPE. */
int http_stream_write(struct http_request *r, struct slice bytes);
/* No more comes; `ended` follows when the client has it all. */
void http_stream_end(struct http_request *r);
/* Bytes that http_stream_write() takes now. */
size_t http_stream_free_bytes(const struct http_request *r);
/* More than HTTP_STREAM_BEHIND_BYTES wait because the connection accepts no more; `writable` follows once
 * fewer wait. A stream that is written only while this is false keeps little for a client that stops
 * reading. */
#define HTTP_STREAM_BEHIND_BYTES 512
bool http_stream_is_behind(struct http_request *r);
/* For how long bytes have been waiting without any of them leaving; 0 when none wait. */
uint64_t http_stream_stalled_ns(const struct http_request *r);

/* Drops the connection without (the rest of) an answer; `ended` follows with completed == false. */
void http_request_close(struct http_request *r);

#endif
