/* refuse.c - a refused exchange leaves its trace when it ends; all others leave theirs here. */
#include "api/refuse.h"

#include "api/access/auth.h"
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/reject_http.h"
#include "api/report/trace.h"

#include "base/clock.h"
#include "http/http_server.h"

#include <stdio.h>

static void note(struct api *a, const struct http_request *r, const char *id, const struct auth *auth,
                 const struct trace_refusal *refusal)
{
    struct trace_record record = {
        .tenant = auth->tenant, .model = -1, .refusal = *refusal, .ended_s = clock_wall_s()};
    snprintf(record.id, sizeof(record.id), "%s", id);
    client_ids_read(r, &record.given);
    audit_begin(&record.who, r, auth);
    trace_refused(a->trace, &record, NULL, clock_now_ns());
}

void refuse_request(struct api *a, struct http_request *r, const char *id, const struct auth *auth,
                    const struct reject_envelope *envelope, const struct reject *why)
{
    struct trace_refusal refusal;
    trace_refusal_of(&refusal, envelope->status(why), why);
    note(a, r, id, auth, &refusal);
    reject_respond(why, envelope, id, r);
}

void refuse_note(struct api *a, const struct http_request *r, const struct http_wording *w)
{
    struct exchange *x = http_request_user(r);
    struct trace_refusal refusal = {.status = w->status, .code = w->code};
    struct reject none;
    struct auth auth;
    snprintf(refusal.message, sizeof(refusal.message), "%s", w->message);
    if (x) {
        x->refusal = refusal;
        return;
    }
    auth_check(a->opts.keys, r, AUTH_NONE, &auth, &none);
    note(a, r, w->id ? w->id : "", &auth, &refusal);
}
