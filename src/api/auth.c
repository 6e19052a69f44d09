/* auth.c - from a header to who it is, and to what that opens. */
#include "api/auth.h"

struct slice auth_bearer(struct slice authorization)
{
    struct slice s = authorization;
    if (!slice_starts_any_case(s, SLICE("bearer ")))
        return (struct slice){0};
    s = slice_sub(s, 7, s.len);
    while (s.len > 0 && s.ptr[0] == ' ')
        s = slice_sub(s, 1, s.len);
    while (s.len > 0 && s.ptr[s.len - 1] == ' ')
        s.len--;
    return s;
}

static struct slice key_of(const struct http_request *r)
{
    struct slice value;
    if (http_request_header(r, "authorization", &value))
        return auth_bearer(value);
    if (http_request_header(r, "x-api-key", &value))
        return value;
    return (struct slice){0};
}

/* A proxy on this machine makes everybody look local; it says so in one of these. */
static bool is_local(const struct http_request *r)
{
    struct slice value;
    return http_request_client_is_loopback(r) && !http_request_header(r, "x-forwarded-for", &value) &&
           !http_request_header(r, "forwarded", &value) && !http_request_header(r, "x-real-ip", &value);
}

static bool refuse_key(struct slice given, struct reject *why)
{
    return reject_set(
        why, 401, "invalid_api_key", NULL, "%s",
        given.len ? "The API key is not valid. Send one of those that the server was started with, as "
                    "\"Authorization: Bearer KEY\"."
                  : "This server needs an API key. Send it as \"Authorization: Bearer KEY\".");
}

bool auth_check(const struct keyring *keys, const struct http_request *r, enum auth_need need,
                struct auth *ret, struct reject *why)
{
    struct slice given = key_of(r);
    struct keyring_found found = keyring_find(keys, given);
    const struct key *user = found.at[KEYRING_MODELS], *admin = found.at[KEYRING_ADMIN];
    bool locked = keyring_count(keys, KEYRING_ADMIN) > 0;
    bool open = keyring_count(keys, KEYRING_MODELS) == 0 || user || admin;
    struct auth a = {.key = user ? user : admin, .admin = locked ? admin != NULL : is_local(r) && open};
    a.tenant = a.key ? a.key->tenant : 0;
    *ret = a;
    if (need == AUTH_NONE)
        return true;
    if (need == AUTH_KEY)
        return open || refuse_key(given, why);
    if (a.admin)
        return true;
    if (locked)
        return reject_set(why, 401, "invalid_api_key", NULL,
                          "This route needs the admin key (--admin-key), as \"Authorization: Bearer KEY\".");
    if (!open)
        return refuse_key(given, why);
    return reject_set(why, 403, "admin_on_loopback_only", NULL,
                      "Without --admin-key this route answers on this machine's loopback address only.");
}
