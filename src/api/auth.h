/* auth.h - who may do what.
 *
 * API keys open the models, metrics keys the series of all tenants, admin keys everything. Without API keys
 * the models are open (the server then listens on loopback only, or its operator chose otherwise). Whoever
 * connects to the admin socket is the admin: the kernel says that it is the server's own user or root.
 * Nothing else makes a request the admin's, neither an address nor a header. */
#ifndef PLATEAU_API_AUTH_H
#define PLATEAU_API_AUTH_H

#include "api/api.h"
#include "api/keyring.h"
#include "api/reject.h"

struct auth {
    const struct key *key; /* whose key it was; NULL: none was needed. Lives as long as the ring does */
    uint64_t tenant;       /* the key's, else the client address's */
    bool admin;
    bool all_metrics; /* sees the series of all tenants */
};

/* AUTH_METRICS: who may use the models sees its own series. */
enum auth_need { AUTH_NONE, AUTH_KEY, AUTH_METRICS, AUTH_ADMIN };

/* False: 401 in `why`. */
bool auth_check(const struct keyring *keys, const struct http_request *r, enum auth_need need,
                struct auth *ret, struct reject *why);

#endif
