/* audit.h - a line in the log for what an administrator changed, and one for who was refused for want of a
 * key.
 *
 * A line says who (a key's name, "-" without one), from where, what, with which result, and how many bytes it
 * gave back. Keys are never in it. Network thread. */
#ifndef PLATEAU_API_AUDIT_H
#define PLATEAU_API_AUDIT_H

#include "api/auth.h"

#define AUDIT_ACTION_BYTES 112

/* Who asked for what: kept, because the connection may end before the work does. */
struct audit {
    char key[KEYRING_NAME_BYTES], client[HTTP_CLIENT_TEXT_MAX];
    char action[AUDIT_ACTION_BYTES]; /* "POST /api/trim", in ASCII, without blanks and quotes in the path */
};
/* Writes text of a client as one word of ASCII, cut to what fits into `bytes_max` with the terminating
 * zero. */
void audit_word(struct slice text, char *ret, size_t bytes_max);
void audit_begin(struct audit *ret, const struct http_request *r, const struct auth *auth);
/* What came of it: the status that its client was told (0: nobody was told), "ok" or the code of a refusal.
 * `id` is the request's. */
void audit_done(const struct audit *a, unsigned status, const char *result, uint64_t bytes, const char *id);

/* Somebody came without the key that it takes. At most one line in a second is written; it says how many were
 * not. */
struct audit_refusals {
    uint64_t told_ns, untold;
};
void audit_refused(struct audit_refusals *state, const struct http_request *r, const struct reject *why,
                   uint64_t now_ns);

#endif
