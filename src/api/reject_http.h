/* reject_http.h - errors as HTTP's clients read them: status, code, OpenAI's envelope. */
#ifndef PLATEAU_API_REJECT_HTTP_H
#define PLATEAU_API_REJECT_HTTP_H

#include "base/buf.h"
#include "gen/reject.h"
#include "http/http_request.h"

/* HTTP's status; 0 for REJECT_NONE. */
unsigned reject_status(const struct reject *r);
/* As the client reads it, constant; NULL for REJECT_NONE. */
const char *reject_code(const struct reject *r);

/* 404: no model has this id. */
bool reject_model(struct reject *r, struct slice id);

/* {"error":{"message","type","param","code"}} */
void reject_write(const struct reject *r, struct buf *ret);
/* Sends it with its headers, in the envelope that `write` makes. Network thread. */
typedef void reject_write_fn(const struct reject *r, struct buf *ret);
void reject_respond(const struct reject *why, reject_write_fn *write, struct http_request *r);

#endif
