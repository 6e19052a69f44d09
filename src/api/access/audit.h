/* audit.h - one log line per change by an administrator, and one per request refused for its missing key.
 *
 * A line has the key's name ("-" without one), the client's address, the action, its result, and how many
 * bytes it returned to the system. Keys are never in it. Network thread. */
#ifndef PLATEAU_API_AUDIT_H
#define PLATEAU_API_AUDIT_H

#include "api/access/keyring.h"

#include "http/http_request.h"

#include <stddef.h>
#include <stdint.h>

struct auth;
struct reject;

#define AUDIT_ACTION_BYTES 112

/* Key, client and action of an admin's request. A copy, because the connection may end before the work
 * does. */
struct audit {
    char key[KEYRING_NAME_BYTES], client[HTTP_CLIENT_TEXT_MAX];
    char action[AUDIT_ACTION_BYTES]; /* "POST /api/trim", in ASCII, without blanks and quotes in the path */
};
/* Writes text of a client as one word of ASCII, cut to what fits into `bytes_max` with the terminating
 * zero. */
void audit_word(struct slice text, char *ret, size_t bytes_max);
void audit_begin(struct audit *ret, const struct http_request *r, const struct auth *auth);
/* Logs the result: the status sent to the client (0: it had left), and "ok" or the code of a refusal. `id` is
 * the request's. */
void audit_done(const struct audit *a, unsigned status, const char *result, uint64_t bytes, const char *id);

/* Logs a request without the key that its route needs. At most one line per second; the line counts those
 * skipped. */
struct audit_refusals {
    uint64_t told_ns, untold;
};
void audit_refused(struct audit_refusals *state, const struct http_request *r, const struct reject *why,
                   uint64_t now_ns);

#endif
