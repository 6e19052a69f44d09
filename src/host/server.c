/* server.c - opening is a list, closing is the list backwards, except for a load that hangs: it cannot be
 * joined, so everything beside it is closed. */
#include "host/server.h"

#include "api/api.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>

/* Bound on closing after a drain, as reported to the service manager. */
#define SERVER_CLOSE_NS (30 * NS_PER_S)
/* Part of it: time for loads to stop. A load that waits for a file longer is abandoned. */
#define SERVER_LOADS_NS (5 * NS_PER_S)

void server_init(struct server *s)
{
    *s = (struct server){.service = {.timer = -1, .notify = {.fd = -1}}};
}

/* ---- opening ---- */

static void on_change(void *arg)
{
    struct server *s = arg;
    if (s->api)
        api_models_changed(s->api);
}

static void on_progress(void *arg, uint32_t index, uint64_t done, uint64_t total)
{
    struct server *s = arg;
    if (s->progress)
        s->progress(s->arg, index, done, total);
}

static int open_registry(struct server *s, struct err *e)
{
    struct registry_opts opts = {.ledger = s->rt.ledger,
                                 .threads = s->rt.threads,
                                 .device = s->rt.device,
                                 .holders = s->rt.holders,
                                 .store = s->rt.store,
                                 .guard = s->rt.guard,
                                 .models = s->models.list,
                                 .model_count = s->models.count,
                                 .plan = models_plan_again,
                                 .plan_arg = &s->models,
                                 .drain_ns = s->live.started.drain_s * NS_PER_S,
                                 .hang_ns = s->live.started.load_timeout_s * NS_PER_S,
                                 .changed = on_change,
                                 .progress = on_progress,
                                 .arg = s,
                                 .engine_faults = runtime_faults ? &runtime_faults->engine : NULL,
                                 .faults = runtime_faults ? &runtime_faults->registry : NULL};
    return registry_create(&opts, &s->registry, e);
}

/* Several models grow into the ceiling, so the need of the process itself is reserved. With one model the
 * limits of all accounts fit together by the plan. */
static int set_floors(struct server *s, struct err *e)
{
    struct account *const accounts[] = {s->rt.threads, s->rt.network, s->rt.text, s->rt.media};
    int r = 0;
    for (size_t i = 0; i < COUNT_OF(accounts) && r == 0 && s->models.count > 1; i++)
        if (accounts[i])
            r = account_set_floor(accounts[i], account_numbers(accounts[i]).limit);
    return r < 0 ? err_set(e, r, "no memory for what the process itself needs") : 0;
}

static struct media_opts media_of(const struct server *s)
{
    const struct settings *o = &s->live.started;
    return (struct media_opts){.on = s->rt.media != NULL,
                               .account = s->rt.media,
                               .thread_count = (uint32_t)o->media_threads,
                               .parts_max = (uint32_t)o->max_images,
                               .bytes_max = o->max_media_bytes,
                               .pixels_max = o->max_media_pixels,
                               .timeout_s = (uint32_t)o->media_timeout_s,
                               .video_s_max = (uint32_t)o->max_video_s,
                               .frames_max = (uint32_t)o->max_video_frames,
                               .allow_remote = o->allow_remote_media,
                               .dir = o->media_dir};
}

static int open_api(struct server *s, struct err *e)
{
    const struct settings *o = &s->live.started;
    const struct plan_process *p = &s->rt.process;
    uint64_t texts = p->text_bytes - p->text_floor_bytes;
    struct api_opts opts = {.ledger = s->rt.ledger,
                            .store = s->rt.store,
                            .holders = s->rt.holders,
                            .guard = s->rt.guard,
                            .text = s->rt.text,
                            .threads = s->rt.threads,
                            .media = media_of(s),
                            .requests_max = (uint32_t)o->max_requests,
                            .json_depth_max = (uint32_t)o->json_depth,
                            .prep_threads = (uint32_t)o->prep_threads,
                            .request_bytes_max = MIN_OF(o->max_request_bytes, texts),
                            .prep_queue_bytes_max = p->body_bytes,
                            .max_tokens_default = (uint32_t)o->max_tokens_default,
                            .keepalive_s = (uint32_t)o->keepalive_s,
                            .slow_client_s = (uint32_t)o->slow_client_s,
                            .stuck_s = (uint32_t)o->stuck_s,
                            .load_timeout_s = (uint32_t)o->load_timeout_s,
                            .registry = s->registry,
                            .model_count = s->models.count,
                            .keys = s->live.keys};
    s->live.request_bytes_max = texts;
    return api_create(&opts, &s->api, e);
}

static int open_http(struct server *s, struct err *e)
{
    const struct settings *o = &s->live.started;
    struct http_server_opts opts = {.host = o->host,
                                    .port = (uint16_t)o->port,
                                    .connections_max = (uint32_t)o->max_connections,
                                    .connections_per_ip = (uint32_t)o->connections_per_ip,
                                    .vital_paths = api_vital_paths,
                                    .header_bytes_max = o->max_header_bytes,
                                    .body_bytes_max = MIN_OF(o->max_body_bytes, s->rt.process.body_bytes),
                                    .idle_timeout_s = (uint32_t)o->idle_timeout_s,
                                    .network = s->rt.network,
                                    .loopback_host_only = live_is_guarded(&s->live),
                                    .handler = api_handler(s->api),
                                    .arg = s->api};
    int r = http_server_create(&opts, e, &s->http);
    if (r == 0 && (r = api_attach(s->api, s->http)) < 0)
        return err_set(e, r, "the server's queues cannot be watched");
    s->live.body_bytes_max = s->rt.process.body_bytes;
    s->live.api = s->api;
    s->live.http = s->http;
    if (r == 0)
        r = listeners_open(&s->listeners, o, s->api, s->http, s->rt.network, e);
    if (r == 0)
        listeners_tell_key(&s->listeners, live_own_admin_key(&s->live));
    return r == 0 ? service_open(&s->service, s->api, s->http, e) : r;
}

int server_prepare(struct server *s, struct err *e)
{
    const struct settings *o = &s->live.started;
    int r = models_find(o, &s->models, e);
    if (r == 0)
        r = models_plan(&s->models, e);
    return r == 0 ? runtime_open_process(o, &s->models.process, runtime_workers(o), &s->rt, e) : r;
}

int server_open(struct server *s, struct err *e)
{
    int r = runtime_guard(&s->rt, e);
    if (r == 0)
        r = open_registry(s, e);
    if (r == 0)
        r = open_api(s, e);
    if (r == 0)
        r = open_http(s, e);
    return r == 0 ? set_floors(s, e) : r;
}

/* ---- running ---- */

int server_run(struct server *s, struct err *e)
{
    int r = registry_start(s->registry, e);
    if (r < 0)
        return r;
    api_models_changed(s->api); /* there may be nothing to load at the start */
    r = http_server_run(s->http);
    return r < 0 ? err_set(e, r, "the network loop ended: %s", strerror(-r)) : 0;
}

void server_stop(struct server *s)
{
    uint64_t drain_ns = s->stopping ? 0 : s->live.now.drain_s * NS_PER_S;
    s->stopping = true;
    api_set_state(s->api, API_DRAINING, NULL);
    service_stopping(&s->service, drain_ns + SERVER_CLOSE_NS);
    http_server_stop(s->http, drain_ns);
}

void server_reload(struct server *s)
{
    service_reloading(&s->service);
    live_reload(&s->live);
    listeners_tell_key(&s->listeners, live_own_admin_key(&s->live));
    service_reloaded(&s->service);
}

bool server_failed(const struct server *s)
{
    return s->api && api_state_of(s->api) == API_FAILED;
}

/* ---- closing ---- */

/* Everything but the load that hangs and what it may use: the other models, whose prefixes go to the SSD
 * tier, and that. */
static void close_beside(struct server *s)
{
    registry_close_others(s->registry);
    store_close(s->rt.store);
}

bool server_close(struct server *s)
{
    service_close(&s->service);
    listeners_close(&s->listeners);
    http_server_free(s->http);
    registry_stop(s->registry);
    api_stop(s->api);
    if (!registry_settle(s->registry, SERVER_LOADS_NS)) {
        close_beside(s);
        return false;
    }
    registry_close(s->registry);
    api_free(s->api);
    runtime_close(&s->rt);
    return true;
}

void server_done(struct server *s)
{
    models_done(&s->models);
    live_close(&s->live);
}
