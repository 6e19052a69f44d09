/* server.c - opening is a list, closing is the list backwards, except for a load or a search that hangs: it
 * cannot be joined, so everything beside it is closed. */
#include "host/server.h"

#include "api/api.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "events/kv_events.h"
#include "memory/ledger.h"
#include "store/shared_tier.h"
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Bound on closing after a drain, as reported to the service manager. */
#define SERVER_CLOSE_NS (30 * NS_PER_S)
/* Part of it: time for loads to stop. A load that waits for a file longer is abandoned. */
#define SERVER_LOADS_NS (5 * NS_PER_S)

void server_init(struct server *s)
{
    *s = (struct server){.service = {.timer = -1, .notify = {.fd = -1}}, .leave_timer = -1};
}

/* ---- opening ---- */

static void on_change(void *arg)
{
    struct server *s = arg;
    if (s->api)
        api_models_changed(s->api);
    if (s->changed)
        s->changed(s->arg);
}

static void on_progress(void *arg, uint32_t index, uint64_t done, uint64_t total)
{
    struct server *s = arg;
    if (s->progress)
        s->progress(s->arg, index, done, total);
}

static int open_events(struct server *s, struct err *e)
{
    const struct event_settings *o = &s->live.started.events;
    if (!o->endpoint)
        return o->replay || o->topic ? err_set(e, -EINVAL,
                                               "--kv-events-replay and --kv-events-topic are for "
                                               "--kv-events, which is not given")
                                     : 0;
    struct kv_events_opts opts = {o->endpoint,
                                  o->replay,
                                  o->topic,
                                  o->buffer_bytes,
                                  account_charge(s->rt.network),
                                  account_charge(s->rt.threads)};
    return kv_events_open(&opts, &s->events, e);
}

static int open_registry(struct server *s, struct err *e)
{
    struct registry_opts opts = s->live.started.registry;
    opts.ledger = s->rt.ledger;
    opts.threads = s->rt.threads;
    memcpy(opts.devices, s->rt.devices, sizeof(opts.devices));
    opts.holders = s->rt.holders;
    opts.store = s->rt.store;
    opts.shared = s->rt.shared;
    opts.events = s->events;
    opts.guard = s->rt.guard;
    opts.models = s->models.list;
    opts.model_count = s->models.count;
    opts.models_max = s->models.models_max;
    opts.plan = models_plan_again;
    opts.plan_arg = &s->models;
    opts.hang_ns = s->live.started.api.live.load_timeout_s * NS_PER_S;
    opts.changed = on_change;
    opts.progress = on_progress;
    opts.arg = s;
    opts.engine_faults = runtime_faults ? &runtime_faults->engine : NULL;
    opts.faults = runtime_faults ? &runtime_faults->registry : NULL;
    return registry_create(&opts, &s->registry, e);
}

/* Several models, now or later, grow into the ceiling, so the need of the process itself is reserved. With
 * one model the limits of all accounts fit together by the plan. */
static int set_floors(struct server *s, struct err *e)
{
    struct account *const accounts[] = {s->rt.threads, s->rt.network, s->rt.text, s->rt.media, s->rt.pull};
    int r = 0;
    for (size_t i = 0; i < COUNT_OF(accounts) && r == 0 && s->models.models_max > 1; i++)
        if (accounts[i])
            r = account_set_floor(accounts[i], account_numbers(accounts[i]).limit);
    return r < 0 ? err_set(e, r, "no memory for what the process itself needs") : 0;
}

/* ---- models that come later ---- */

static void serve_pulled(void *arg, const struct hub_name *name)
{
    struct server *s = arg;
    model_finder_search_for(&s->finder, name);
}

static void on_pulled(void *arg, const char *id, const char *why)
{
    struct server *s = arg;
    api_pulled(s->api, id, why);
}

static void on_search_ended(void *arg, int fd)
{
    struct server *s = arg;
    (void)fd;
    model_finder_ended(&s->finder);
}

static int init_finder(struct server *s, struct err *e)
{
    s->finder = (struct model_finder){.models = &s->models,
                                      .registry = s->registry,
                                      .threads = s->rt.threads,
                                      .pulled = on_pulled,
                                      .arg = s};
    int r = model_finder_init(&s->finder);
    return r < 0 ? err_set(e, r, "the search for models has no descriptor: %s", strerror(-r)) : 0;
}

static int open_api(struct server *s, struct err *e)
{
    const struct plan_process *p = &s->rt.process;
    uint64_t texts = p->text_bytes - p->text_floor_bytes;
    struct api_opts opts = s->live.started.api;
    opts.default_model = s->models.default_id;
    opts.warm = s->live.started.models.warm;
    opts.host = s->live.started.http.host;
    opts.ledger = s->rt.ledger;
    opts.store = s->rt.store;
    opts.shared = s->rt.shared;
    opts.events = s->events;
    opts.holders = s->rt.holders;
    opts.guard = s->rt.guard;
    opts.text = s->rt.text;
    opts.responses = s->rt.responses;
    opts.conversations = s->rt.conversations;
    const char *dir = s->rt.store ? s->rt.settings->store.dir : NULL;
    if (dir && (size_t)snprintf(s->conversations_file, sizeof(s->conversations_file), "%s/" STORE_BESIDE,
                                dir) < sizeof(s->conversations_file))
        opts.conversations_file = s->conversations_file;
    opts.history = s->rt.history;
    opts.pull = s->rt.pull;
    opts.threads = s->rt.threads;
    opts.media.on = s->rt.media != NULL;
    opts.media.account = s->rt.media;
    opts.live.request_bytes_max = MIN_OF(opts.live.request_bytes_max, texts);
    opts.prep_queue_bytes_max = p->body_bytes;
    opts.registry = s->registry;
    opts.serve_pulled = serve_pulled;
    opts.serve_arg = s;
    opts.models_max = s->models.models_max;
    opts.keys = s->live.keys;
    opts.origins = s->live.now.keys.origins;
    s->live.request_bytes_max = texts;
    return api_create(&opts, &s->api, e);
}

/* Says more of a port that is taken: by a server of this user, or another program. */
static int tell_taken(uint16_t port, struct err *e)
{
    struct socket_servers servers;
    char name[48];
    bool ours = false;
    snprintf(name, sizeof(name), "/plateau-%u.sock", port);
    socket_servers_find(&servers);
    for (uint32_t i = 0; i < servers.count; i++)
        ours |= slice_ends(slice_of(servers.paths[i]), slice_of(name));
    const size_t len = strlen(e->text);
    snprintf(e->text + len, sizeof(e->text) - len, "%s; --port N chooses another, --port 0 a free one",
             ours ? " by another Plateau server (see plateau status)" : "");
    return -EADDRINUSE;
}

static int open_http(struct server *s, struct err *e)
{
    const struct settings *o = &s->live.started;
    struct http_server_opts opts = o->http;
    opts.vital_paths = api_vital_paths;
    opts.body_bytes_max = MIN_OF(opts.body_bytes_max, s->rt.process.body_bytes);
    opts.network = s->rt.network;
    opts.loopback_host_only = live_is_guarded(&s->live);
    opts.handler = api_handler(s->api);
    opts.arg = s->api;
    int r = http_server_create(&opts, e, &s->http);
    if (r == -EADDRINUSE)
        return tell_taken(opts.port, e);
    if (r == 0 && (r = api_attach(s->api, s->http)) < 0)
        return err_set(e, r, "the server's queues cannot be watched");
    if (r == 0 && (r = http_server_watch(s->http, s->finder.ended_fd, on_search_ended, s)) < 0)
        return err_set(e, r, "the search for models cannot be watched");
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
    if (r == 0)
        r = runtime_open_process(o, &s->models.process, &s->models.devices, runtime_workers(o), &s->rt, e);
    device_choices_close(&s->models.devices);
    return r;
}

int server_open(struct server *s, struct err *e)
{
    int r = runtime_guard(&s->rt, e);
    if (r == 0)
        r = open_events(s, e);
    if (r == 0)
        r = open_registry(s, e);
    if (r == 0)
        r = init_finder(s, e);
    if (r == 0)
        r = open_api(s, e);
    if (r == 0)
        r = open_http(s, e);
    return r == 0 ? set_floors(s, e) : r;
}

/* ---- running ---- */

int server_run(struct server *s, struct err *e)
{
    listeners_log(&s->listeners);
    int r = registry_start(s->registry, e);
    if (r < 0)
        return r;
    api_models_changed(s->api); /* there may be nothing to load at the start */
    r = http_server_run(s->http);
    return r < 0 ? err_set(e, r, "the network loop ended: %s", strerror(-r)) : 0;
}

static void drain(struct server *s, uint64_t drain_ns)
{
    const uint64_t ends_ns = clock_now_ns() + drain_ns;
    registry_end_by(s->registry, ends_ns);
    api_drain(s->api, ends_ns);
    service_stopping(&s->service, drain_ns + SERVER_CLOSE_NS);
    http_server_stop(s->http, drain_ns);
}

static void close_leave_timer(struct server *s)
{
    if (s->leave_timer < 0)
        return;
    http_server_unwatch(s->http, s->leave_timer);
    close(s->leave_timer);
    s->leave_timer = -1;
}

static void on_grace_over(void *arg, int fd)
{
    struct server *s = arg;
    (void)fd;
    close_leave_timer(s);
    LOG_INFO("draining", "open_requests=%u", api_requests_now(s->api));
    drain(s, s->live.now.registry.drain_ns);
}

static int start_leave_timer(struct server *s, uint64_t ns)
{
    struct itimerspec once = {.it_value = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)}};
    s->leave_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (s->leave_timer < 0 || timerfd_settime(s->leave_timer, 0, &once, NULL) < 0)
        return -errno;
    return http_server_watch(s->http, s->leave_timer, on_grace_over, s);
}

/* Whether it serves on for --drain-grace. A server that could not answer yet has no reason to. */
static bool leaves_slowly(struct server *s)
{
    uint64_t grace_ns = s->live.now.process.drain_grace_ns;
    if (s->stopping || grace_ns == 0 || api_state_of(s->api) != API_READY)
        return false;
    int r = start_leave_timer(s, grace_ns);
    if (r < 0) {
        LOG_WARN("drain_grace_failed", "error=\"%s\"", strerror(-r));
        close_leave_timer(s);
        return false;
    }
    api_set_state(s->api, API_LEAVING, NULL);
    service_stopping(&s->service, grace_ns + s->live.now.registry.drain_ns + SERVER_CLOSE_NS);
    return true;
}

void server_stop(struct server *s)
{
    bool leaves = leaves_slowly(s);
    if (!leaves) {
        close_leave_timer(s);
        drain(s, s->stopping ? 0 : s->live.now.registry.drain_ns);
    }
    s->stopping = true;
}

void server_reload(struct server *s)
{
    service_reloading(&s->service);
    live_reload(&s->live);
    listeners_tell_key(&s->listeners, live_own_admin_key(&s->live));
    if (s->models.settings->models.dirs[0] || s->models.settings->models.hub_cache)
        model_finder_search(&s->finder);
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
    shared_tier_close(s->rt.shared);
    store_close(s->rt.store);
}

bool server_close(struct server *s)
{
    close_leave_timer(s);
    service_close(&s->service);
    listeners_close(&s->listeners);
    http_server_free(s->http);
    registry_stop(s->registry);
    api_stop(s->api);
    bool found = model_finder_stop(&s->finder, SERVER_LOADS_NS);
    if (!registry_await_loads(s->registry, SERVER_LOADS_NS) || !found) {
        close_beside(s);
        return false;
    }
    registry_close(s->registry);
    kv_events_close(s->events);
    api_free(s->api);
    runtime_close(&s->rt);
    return true;
}

void server_done(struct server *s)
{
    models_done(&s->models);
    live_close(&s->live);
}
