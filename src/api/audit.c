/* audit.c - what clients wrote is made one word before it gets into a line, so that none can be forged. */
#include "api/audit.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>

#define REFUSAL_NS NS_PER_S

static void write_action(const struct http_request *r, char ret[AUDIT_ACTION_BYTES])
{
    struct slice method = http_request_method(r), path = http_request_path(r);
    size_t from =
        (size_t)snprintf(ret, AUDIT_ACTION_BYTES, "%.*s ", (int)MIN_OF(method.len, (size_t)16), method.ptr);
    snprintf(ret + from, AUDIT_ACTION_BYTES - from, "%.*s", (int)MIN_OF(path.len, (size_t)AUDIT_ACTION_BYTES),
             path.ptr);
    for (char *c = ret + from; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == '"' || *c == '\\' || *c == 0x7f)
            *c = '?';
}

void audit_begin(struct audit *ret, const struct http_request *r, const struct auth *auth)
{
    snprintf(ret->key, sizeof(ret->key), "%s", auth->key ? auth->key->name : "-");
    http_request_client(r, ret->client);
    write_action(r, ret->action);
}

void audit_done(const struct audit *a, unsigned status, const char *result, uint64_t bytes, const char *id)
{
    LOG_INFO("audit", "key=%s client=%s action=\"%s\" status=%u result=%s bytes=%llu id=%s", a->key,
             a->client, a->action, status, result, (unsigned long long)bytes, id);
}

void audit_refused(struct audit_refusals *state, const struct http_request *r, const struct reject *why,
                   uint64_t now_ns)
{
    struct audit who;
    const struct auth nobody = {0};
    if (state->told_ns > 0 && now_ns - state->told_ns < REFUSAL_NS) {
        state->untold++;
        return;
    }
    audit_begin(&who, r, &nobody);
    LOG_WARN("refused", "client=%s action=\"%s\" status=%u code=%s untold=%llu", who.client, who.action,
             why->status, why->code ? why->code : "-", (unsigned long long)state->untold);
    *state = (struct audit_refusals){.told_ns = now_ns};
}
