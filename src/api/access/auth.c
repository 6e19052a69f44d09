/* auth.c - from a request's header to its key, and to the routes that the key opens. */
#include "api/access/auth.h"

#include "api/access/keyring.h"
#include "api/api.h"

#include "base/slice.h"
#include "gen/reject.h"
#include "http/http_request.h"
#include "http/http_state.h"

#include <stddef.h>

/* The key in "Bearer KEY"; empty without one. */
static struct slice bearer_of(struct slice authorization)
{
    if (!slice_starts_any_case(authorization, SLICE("bearer ")))
        return (struct slice){0};
    return slice_trim(slice_sub(authorization, 7, authorization.len), " ");
}

static struct slice key_of(const struct http_request *r)
{
    struct slice value;
    if (http_request_header(r, "authorization", &value))
        return bearer_of(value);
    if (http_request_header(r, "x-api-key", &value))
        return value;
    return (struct slice){0};
}

static bool refuse_key(struct slice given, struct reject *why)
{
    return reject_set(
        why, REJECT_INVALID_API_KEY, NULL, "%s",
        given.len ? "The API key is not valid. Send a key of this server as \"Authorization: Bearer KEY\"."
                  : "This server needs an API key. Send it as \"Authorization: Bearer KEY\".");
}

/* `known`: the key is one of this server, for other routes. */
static bool refuse_admin(struct slice given, bool known, struct reject *why)
{
    const char *what = given.len == 0 ? "This route needs the admin key (--admin-key), as \"Authorization: "
                                        "Bearer KEY\"."
                       : known        ? "The key is valid, but not the admin key (--admin-key), which this "
                                        "route needs."
                                      : "The key is not valid. This route needs the admin key (--admin-key).";
    return reject_set(why, REJECT_INVALID_API_KEY, NULL,
                      "%s On the server's machine, commands such as `plateau status` need no key.", what);
}

static uint64_t tenant_of_net(struct http_client_net net)
{
    return keyring_tenant("net", (struct slice){(const char *)net.bytes, sizeof(net.bytes)});
}

static uint64_t tenant_of(const struct http_request *r, const struct key *key)
{
    return key ? key->tenant : tenant_of_net(http_request_client_net(r));
}

uint64_t auth_local_tenant(void)
{
    return tenant_of_net(http_request_local_net());
}

bool auth_check(const struct keyring *keys, const struct http_request *r, enum auth_need need,
                struct auth *ret, struct reject *why)
{
    struct slice given = key_of(r);
    uint8_t listener = http_request_listener(r);
    struct keyring_found found = keyring_find(keys, given);
    const struct key *user = found.at[KEYRING_MODELS], *admin = found.at[KEYRING_ADMIN],
                     *metrics = found.at[KEYRING_METRICS];
    struct auth a = {.key = user ? user : admin ? admin : metrics};
    a.unknown = given.len > 0 && !a.key;
    a.tenant = tenant_of(r, a.key);
    a.shares = keyring_count(keys, KEYRING_MODELS) == 0 || keyring_owner(keys, SLICE("")) == a.tenant;
    a.admin = admin || listener == API_LISTENER_SOCKET;
    a.all_metrics = a.admin || metrics || listener == API_LISTENER_METRICS;
    *ret = a;
    bool open = keyring_count(keys, KEYRING_MODELS) == 0 || user || a.admin;
    if (listener == API_LISTENER_ADMIN && need > AUTH_PAGE)
        need = AUTH_ADMIN;
    switch (need) {
    case AUTH_NONE:
    case AUTH_PAGE:
        return true;
    case AUTH_KEY:
        return open || refuse_key(given, why);
    case AUTH_METRICS:
        /* Where no key is needed, a wrong one is a mistake in the scraper's configuration. */
        return a.all_metrics || (open && (user || given.len == 0)) || refuse_key(given, why);
    case AUTH_ADMIN:
        break;
    }
    return a.admin || refuse_admin(given, a.key != NULL, why);
}
