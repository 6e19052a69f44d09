/* wait.c - every change walks all waiting exchanges: at most --max-requests, and changes are rare. */
#include "api/wait.h"

#include "api/api_state.h"
#include "api/exchange.h"
#include "api/model_lookup.h"
#include "api/replicas.h"
#include "api/request/request.h"

#include "base/clock.h"
#include "base/json/json_out.h"
#include "gen/media_request.h"
#include "registry/registry.h"

#include <errno.h>
#include <stdio.h>

#define UNLOAD_PATIENCE_NS (5 * NS_PER_S) /* an unload that takes longer is answered with 202 */

static struct registry *registry_of(const struct exchange *x)
{
    return x->api->opts.registry;
}

/* The name that clients use. */
static const char *id_of(const struct exchange *x)
{
    return api_model_id(x->api, x->replicas.first);
}

static bool is_order(const struct exchange *x)
{
    return x->kind == REQUEST_LOAD || x->kind == REQUEST_UNLOAD;
}

/* ---- refusals ---- */

static bool refuse_load(struct exchange *x, const struct registry_failure *why)
{
    x->gen.reject.retry_after_s = why->retry_after_s;
    if (why->code == -ENOMEM)
        return reject_set(&x->gen.reject, REJECT_OUT_OF_MEMORY, NULL, "%s", why->e.text);
    if (why->code == -ESHUTDOWN)
        return reject_as(&x->gen.reject, REJECT_SHUTTING_DOWN);
    if (x->kind == REQUEST_LOAD)
        return reject_set(&x->gen.reject, REJECT_LOAD_FAILED, NULL, "%s could not be loaded: %s", id_of(x),
                          why->e.text);
    return reject_set(&x->gen.reject, REJECT_MODEL_LOAD_FAILED, "model",
                      "%s could not be loaded: %s. The load is retried in %u s, when its files change, or by "
                      "POST /v1/models/%s/load.",
                      id_of(x), why->e.text, why->retry_after_s, id_of(x));
}

#define STILL_NS    (2 * NS_PER_S) /* a load without progress for this time is reported as stalled */
#define STILL_BYTES 512

/* Why a load is slow: "" while it makes progress. */
static void explain_slow(struct exchange *x, const struct registry_info *own, char ret[STILL_BYTES])
{
    struct registry *r = registry_of(x);
    int n = 0;
    ret[0] = 0;
    if (own->still_ns >= STILL_NS)
        snprintf(ret, STILL_BYTES,
                 " It made no progress for %llu s in its step \"%s\": reading a file hangs.",
                 (ull)(own->still_ns / NS_PER_S), own->step ? own->step : "files");
    for (uint32_t i = 0; own->waits && i < registry_count(r) && n >= 0 && n < STILL_BYTES; i++) {
        struct registry_info other;
        registry_info(r, i, &other);
        if (other.still_ns >= STILL_NS)
            n += snprintf(ret + n, (size_t)(STILL_BYTES - n),
                          "%s %s, which made no progress for %llu s in its step \"%s\"",
                          n == 0 ? " It waits for the load of" : ",", api_model_id(x->api, i),
                          (ull)(other.still_ns / NS_PER_S), other.step ? other.step : "files");
    }
    if (n > 0 && n < STILL_BYTES - 1)
        snprintf(ret + n, (size_t)(STILL_BYTES - n), ".");
}

static bool refuse_slow(struct exchange *x)
{
    struct registry_info info;
    char why[STILL_BYTES];
    registry_info(registry_of(x), x->replicas.first, &info);
    explain_slow(x, &info, why);
    x->gen.reject.retry_after_s = 10;
    return reject_set(&x->gen.reject, REJECT_MODEL_LOADING, "model",
                      "%s was not loaded within %u s (--load-timeout); %.0f %% of it is loaded.%s %s",
                      id_of(x), x->api->live.load_timeout_s,
                      info.bytes_total ? 100.0 * (double)info.bytes_done / (double)info.bytes_total : 0.0,
                      why, x->kind == REQUEST_LOAD ? "The load goes on." : "Try again later.");
}

/* ---- on a prep thread ---- */

/* The replicas whose load x waits for: an order for all, a request for the first, or for whichever comes. */
static uint32_t wanted_of(const struct exchange *x)
{
    return is_order(x) ? x->replicas.count : 1;
}

static void unwant(struct exchange *x, uint32_t count)
{
    while (count-- > 0)
        registry_unwant(registry_of(x), x->replicas.first + count);
}

static enum prepare begin_load(struct exchange *x, bool operator)
{
    struct registry_failure why = {0};
    for (uint32_t i = 0; i < wanted_of(x); i++) {
        if (registry_want(registry_of(x), x->replicas.first + i, operator, & why) == 0)
            continue;
        unwant(x, i);
        return refuse_load(x, &why), PREPARE_REFUSED;
    }
    x->waits = WAIT_LOAD;
    return PREPARE_WAITS;
}

enum prepare wait_find_model(struct exchange *x)
{
    struct slice wanted = slice_of(x->request.model);
    bool exact;
    if (x->lease.registry)
        return PREPARE_DONE; /* It already has the lease that its wait obtained. */
    x->model_index = model_lookup_serve(x->api, wanted, &exact);
    if (x->model_index < 0) {
        model_lookup_refuse(x->api, wanted, &x->gen.reject);
        return PREPARE_REFUSED;
    }
    if (!exact)
        x->request.model = NULL; /* The reply has the model's own id. */
    x->replicas = registry_replicas(registry_of(x), (uint32_t)x->model_index);
    if (replicas_lease(x) < 0)
        return begin_load(x, false);
    x->gen.model = x->lease.model;
    return PREPARE_DONE;
}

static struct json_out begin_reply(struct exchange *x, const char *status)
{
    struct json_out j = json_out_object(&x->reply);
    JSON_PUT_STRINGS(&j, {"id", id_of(x)}, {"status", status});
    return j;
}

/* Sessions that end with the model. */
static void write_ends(const struct exchange *x, struct json_out *j)
{
    const struct engine_held *ends = &x->unloading.ends;
    uint64_t now_ns = clock_now_ns(), left_ns = ends->until_ns - MIN_OF(now_ns, ends->until_ns);
    if (ends->sessions > 0)
        JSON_PUT_U64S(j, {"sessions_ended", ends->sessions}, {"session_bytes", ends->bytes},
                      {"session_tokens", ends->tokens},
                      {"sessions_until", (uint64_t)clock_wall_s() + left_ns / NS_PER_S});
}

static void write_unloaded(struct exchange *x, const struct registry_returned *r)
{
    struct json_out j = begin_reply(x, "unloaded");
    JSON_PUT_U64S(&j, {"bytes_returned", r->bytes}, {"account_bytes", r->account_bytes});
    json_put_string(&j, "failed", r->trouble[0] ? r->trouble : NULL);
    write_ends(x, &j);
    json_end(&j);
    x->reclaimed_bytes = r->bytes;
}

static void write_draining(struct exchange *x)
{
    x->status = 202;
    struct json_out j = begin_reply(x, "draining");
    json_put_u64(&j, "requests", x->unloading.leases);
    write_ends(x, &j);
    json_end(&j);
}

static void write_loaded(struct exchange *x)
{
    uint64_t bytes = 0, load_ns = 0;
    for (uint32_t i = 0; i < x->replicas.count; i++) {
        struct registry_info info;
        registry_info(registry_of(x), x->replicas.first + i, &info);
        bytes += info.reserved_bytes;
        load_ns = MAX_OF(load_ns, info.load_ns);
    }
    struct json_out j = begin_reply(x, "ready");
    json_put_u64(&j, "bytes", bytes);
    json_put_fixed(&j, "load_seconds", 3, (double)load_ns / (double)NS_PER_S);
    json_end(&j);
}

static enum reject_kind kind_of_unload(int error)
{
    return error == -EPERM     ? REJECT_UNLOAD_PINNED
           : error == -ETXTBSY ? REJECT_UNLOAD_SESSIONS
                               : REJECT_UNLOAD_LOADING;
}

static void add_unloading(struct registry_unloading *to, const struct registry_unloading *one)
{
    to->leases += one->leases;
    to->ends.sessions += one->ends.sessions;
    to->ends.bytes += one->ends.bytes;
    to->ends.tokens += one->ends.tokens;
    to->ends.until_ns = MAX_OF(to->ends.until_ns, one->ends.until_ns);
}

/* After a refusal the replicas before it unload anyway. */
static enum prepare begin_unload(struct exchange *x)
{
    uint32_t loaded = 0;
    for (uint32_t i = 0; i < x->replicas.count; i++) {
        struct registry_unloading one = {0};
        struct err e = {0};
        int r = registry_unload(registry_of(x), x->replicas.first + i, x->request.force, &one, &e);
        if (r < 0 && r != -EALREADY) {
            reject_set(&x->gen.reject, kind_of_unload(r), NULL, "%s", e.text);
            return PREPARE_REFUSED;
        }
        x->tickets[i] = r == 0 ? one.ticket : 0;
        loaded += r == 0;
        add_unloading(&x->unloading, &one);
    }
    if (loaded == 0) {
        write_unloaded(x, &(struct registry_returned){0});
        return PREPARE_DONE;
    }
    if (x->unloading.leases > 0) {
        write_draining(x);
        return PREPARE_DONE;
    }
    x->waits = WAIT_UNLOAD;
    return PREPARE_WAITS;
}

enum prepare wait_order(struct exchange *x)
{
    x->replicas = registry_replicas(registry_of(x), (uint32_t)x->model_index);
    enum prepare r = x->kind == REQUEST_LOAD ? begin_load(x, true) : begin_unload(x);
    x->order_goes_on = r == PREPARE_WAITS;
    return r;
}

/* ---- on the network thread ---- */

/* All replicas of an order are loaded (0), one has failed, or the wait goes on (-EAGAIN). */
static int poll_order(struct exchange *x, struct registry_failure *why)
{
    int ret = 0;
    for (uint32_t i = 0; i < x->replicas.count; i++) {
        struct model_lease lease = {0};
        int r = registry_poll(registry_of(x), x->replicas.first + i, &lease, why);
        registry_release(&lease);
        if (r < 0 && r != -EAGAIN)
            return r;
        ret = r < 0 ? r : ret;
    }
    return ret;
}

static int poll_request(struct exchange *x, struct registry_failure *why)
{
    int r = replicas_lease(x);
    return r == 0 ? 0 : registry_poll(registry_of(x), x->replicas.first, &x->lease, why);
}

/* 0: the wait ended well; -EAGAIN: it continues; -ECANCELED: x->gen.reject has the reason of its end. */
static int look_for_load(struct exchange *x, uint64_t now_ns)
{
    struct registry_failure why = {0};
    int r = is_order(x) ? poll_order(x, &why) : poll_request(x, &why);
    if (r == -EAGAIN && now_ns > x->waits_since_ns + x->api->live.load_timeout_s * NS_PER_S) {
        refuse_slow(x);
        return -ECANCELED;
    }
    if (r < 0 && r != -EAGAIN) {
        refuse_load(x, &why);
        return -ECANCELED;
    }
    return r;
}

static int look_for_unload(struct exchange *x, uint64_t now_ns)
{
    struct registry_returned all = {0};
    bool over = true;
    for (uint32_t i = 0; i < x->replicas.count && over; i++) {
        struct registry_returned one;
        if (x->tickets[i] == 0)
            continue;
        over = registry_unloaded(registry_of(x), x->replicas.first + i, x->tickets[i], &one);
        if (!over)
            continue;
        all.bytes += one.bytes;
        all.account_bytes += one.account_bytes;
        if (one.trouble[0])
            memcpy(all.trouble, one.trouble, sizeof(all.trouble));
    }
    if (over)
        write_unloaded(x, &all);
    else if (now_ns > x->waits_since_ns + UNLOAD_PATIENCE_NS)
        write_draining(x);
    else
        return -EAGAIN;
    return 0;
}

/* When the images are ready, a prep thread continues; on an error the client gets the answer. */
static enum wait_end look_for_media(struct exchange *x, uint64_t now_ns)
{
    int r = media_request_poll(&x->gen, now_ns);
    if (r == -EAGAIN)
        return WAIT_GOES_ON;
    x->waits = WAIT_NONE;
    return r == 0 ? WAIT_PREPARES : WAIT_ANSWERS;
}

enum wait_end wait_poll(struct exchange *x, uint64_t now_ns)
{
    if (x->phase != EXCHANGE_WAITING || !x->http)
        return WAIT_GOES_ON;
    if (x->waits == WAIT_IMAGES)
        return look_for_media(x, now_ns);
    if (x->waits == WAIT_GRAMMAR) {
        if (now_ns < x->gen.grammar_retry_ns)
            return WAIT_GOES_ON;
        x->waits = WAIT_NONE;
        return WAIT_PREPARES;
    }
    if (x->waits_since_ns == 0)
        x->waits_since_ns = now_ns;
    int r = x->waits == WAIT_UNLOAD ? look_for_unload(x, now_ns) : look_for_load(x, now_ns);
    if (r == -EAGAIN)
        return WAIT_GOES_ON;
    if (x->waits == WAIT_LOAD)
        unwant(x, wanted_of(x));
    x->waits = WAIT_NONE;
    if (r == 0 && x->kind == REQUEST_LOAD)
        write_loaded(x);
    x->gen.model = x->lease.model;
    return r == 0 && !is_order(x) ? WAIT_PREPARES : WAIT_ANSWERS;
}

void wait_done(struct exchange *x)
{
    if (x->waits == WAIT_LOAD)
        unwant(x, wanted_of(x));
    x->waits = WAIT_NONE;
    x->gen.model = NULL;
    registry_release(&x->lease);
}
