/* audit.c - text of clients becomes one word of a log line, so that a client cannot forge a line. */
#include "api/access/audit.h"

#include "api/access/auth.h"
#include "api/reject_http.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define REFUSAL_NS         NS_PER_S
#define AUDIT_METHOD_BYTES 17

/* Visible ASCII is copied, bytes that would end the word become '?', bytes of other characters %XX. */
void audit_word(struct slice text, char *ret, size_t bytes_max)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        size_t takes = c < 0x80 ? 1 : 3;
        if (n + takes >= bytes_max)
            break;
        if (c >= 0x80)
            snprintf(ret + n, bytes_max - n, "%%%02x", c);
        else
            ret[n] = c <= ' ' || c == '"' || c == '\\' || c == 0x7f ? '?' : (char)c;
        n += takes;
    }
    ret[n] = 0;
}

static void write_action(const struct http_request *r, char ret[AUDIT_ACTION_BYTES])
{
    audit_word(http_request_method(r), ret, AUDIT_METHOD_BYTES);
    size_t n = strlen(ret);
    ret[n++] = ' ';
    audit_word(http_request_path(r), ret + n, AUDIT_ACTION_BYTES - n);
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
             a->client, a->action, status, result, (ull)bytes, id);
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
             reject_status(why), reject_code(why), (ull)state->untold);
    *state = (struct audit_refusals){.told_ns = now_ns};
}
