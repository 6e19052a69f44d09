/* auth.h - who may do what.
 *
 * API keys open the models, admin keys everything. Without API keys the models are open (the server then listens on loopback
 * only, or its operator chose otherwise). Without admin keys the admin routes answer on loopback, to a request that
 * no proxy passed on, with an API key if there are any. */
#ifndef PLATEAU_API_AUTH_H
#define PLATEAU_API_AUTH_H

#include "api/api.h"
#include "api/keyring.h"
#include "api/reject.h"

struct auth {
    const struct key *key; /* whose key it was; NULL: none was needed. Lives as long as the ring does */
    uint64_t tenant;       /* the key's; 0 without one */
    bool admin;
};

enum auth_need { AUTH_NONE, AUTH_KEY, AUTH_ADMIN };

/* False: 401 or 403 in `why`. */
bool auth_check(const struct keyring *keys, const struct http_request *r, enum auth_need need,
                struct auth *ret, struct reject *why);

/* The key in "Authorization: Bearer KEY" or "x-api-key: KEY"; empty when there is none. For tests. */
struct slice auth_bearer(struct slice authorization);

#endif
