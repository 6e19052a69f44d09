/* auth.h - which key opens which route.
 *
 * API keys open the models, metrics keys the series of all tenants, admin keys everything. Without API keys
 * the models are open (the server then listens on loopback only, or its operator chose otherwise). Every
 * connection to the admin socket has admin rights: the kernel guarantees that its peer is the server's own
 * user or root. Neither an address nor a header gives admin rights. */
#ifndef PLATEAU_API_AUTH_H
#define PLATEAU_API_AUTH_H

#include <stdbool.h>
#include <stdint.h>

struct http_request;
struct key;
struct keyring;
struct reject;

struct auth {
    const struct key *key; /* the key that matched; NULL: none was needed. Lives as long as the ring */
    uint64_t tenant;       /* the key's, else the client address's */
    bool unknown;          /* a key was sent, and this server has none such */
    bool shares; /* KV events may name its prefixes: there are no API keys, or all are this tenant */
    bool admin;
    bool all_metrics; /* may read the series of all tenants */
};

/* AUTH_PAGE: as AUTH_NONE, but not at API_LISTENER_METRICS. AUTH_METRICS: a key for models reads its own
 * tenant's series. */
enum auth_need { AUTH_NONE, AUTH_PAGE, AUTH_KEY, AUTH_METRICS, AUTH_ADMIN };

/* False: 401 in `why`. */
bool auth_check(const struct keyring *keys, const struct http_request *r, enum auth_need need,
                struct auth *ret, struct reject *why);
/* The tenant of clients on this machine that send no key. */
uint64_t auth_local_tenant(void);

#endif
