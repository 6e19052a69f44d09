/* reject_http.h - errors as HTTP's clients read them: status, code, OpenAI's envelope. */
#ifndef PLATEAU_API_REJECT_HTTP_H
#define PLATEAU_API_REJECT_HTTP_H

#include "base/buf.h"

struct http_request;
struct reject;

/* HTTP's status; 0 for REJECT_NONE. */
unsigned reject_status(const struct reject *r);
/* Returns the error code in a reply's body, constant; NULL for REJECT_NONE. */
const char *reject_code(const struct reject *r);

/* How an API tells an error: its status, and the body from the error and the request's id. */
struct reject_envelope {
    unsigned (*status)(const struct reject *r);
    void (*write)(const struct reject *r, const char *id, struct buf *ret);
};

/* {"error":{"message","type","param","code"}} */
void reject_write(const struct reject *r, const char *id, struct buf *ret);
extern const struct reject_envelope reject_openai;

/* Sends it with its headers. Network thread. */
void reject_respond(const struct reject *why, const struct reject_envelope *envelope, const char *id,
                    struct http_request *r);

#endif
