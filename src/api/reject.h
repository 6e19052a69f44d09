/* reject.h - why a request gets no answer, as its client reads it.
 *
 * What a client did wrong is a value, not an error of ours: whoever finds it fills one of these, and it goes out in
 * OpenAI's envelope. A message says what was wrong, what the limit is, and what to do. */
#ifndef PLATEAU_API_REJECT_H
#define PLATEAU_API_REJECT_H

#include "base/buf.h"
#include "http/http_request.h"

#include <stdbool.h>
#include <stdint.h>

#define REJECT_PREPARATION_S 300 /* a thread works on one request for as long at most */

struct reject {
    unsigned status;        /* of HTTP; 0 = nothing was wrong */
    const char *code;       /* constant; NULL writes null */
    char param[64];         /* the field; empty writes null */
    char message[768];      /* always valid UTF-8 */
    uint32_t retry_after_s; /* 0 = no such header */
};

/* Fills *r and returns false, so that a finding is one line. The first finding stays. `param` may be NULL. What the
 * message quotes from a client is cut at a character's boundary and has no control characters left. */
bool reject_set(struct reject *r, unsigned status, const char *code, const char *param, const char *format,
                ...) __attribute__((format(printf, 5, 6)));
/* 400, code "invalid_value". */
bool reject_value(struct reject *r, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 400, code "unsupported_value": known, and not done here. */
bool reject_unsupported(struct reject *r, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What wanted_look() says of a request that is not to be prepared any further: 499, or 503 when it took too long. */
bool reject_unwanted(struct reject *r, int why);

/* {"error":{"message","type","param","code"}} */
void reject_write(const struct reject *r, struct buf *ret);
/* Answers with it, and with the headers that belong to it. Network thread. */
void reject_respond(const struct reject *why, struct http_request *r);

#endif
