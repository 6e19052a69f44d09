/* serve.c - the server: listens at once, loads models on threads of their own, drains on a signal.
 *
 * The main thread becomes the network thread. Signals are read from a descriptor there: the first SIGTERM
 * or SIGINT drains, a second one ends at once. Before it listens either ends the process, because files
 * are read on the main thread then, and a dead drive would block it. A hanging load cannot be joined:
 * everything else is closed, and the process exits beside it. */
#include "api/api.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/listeners.h"
#include "cli/live.h"
#include "cli/models.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "cli/service.h"
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdnoreturn.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Bound on closing after a drain, as reported to the service manager. */
#define SERVE_CLOSE_NS (30 * NS_PER_S)
/* Part of it: time for loads to stop. A load that waits for a file longer is abandoned. */
#define SERVE_LOADS_NS (5 * NS_PER_S)

struct serve {
    struct live live;
    struct runtime rt;
    struct api *api;
    struct http_server *http;
    struct listeners listeners;
    struct service service;
    int signals;       /* signalfd */
    bool had_terminal; /* and its hangup is not ignored (nohup) */
    struct models models;
    struct registry *registry;
    struct progress progress; /* of the loads of the start; their threads' */
    atomic_bool served;       /* the start is over: other loads show nothing */
    bool ending;
};

/* --- models --- */

/* On the loading thread; the loads of the start run one after the other. */
static void load_progress(void *arg, uint32_t index, uint64_t done, uint64_t total)
{
    struct serve *s = arg;
    const struct model_settings *m = &s->models.list[index];
    if (!m->preload || atomic_load(&s->served))
        return;
    if (s->progress.what != m->id)
        progress_init(&s->progress, m->id);
    progress_show(&s->progress, done, total);
    if (done >= total)
        progress_done(&s->progress);
}

static void on_change(void *arg)
{
    struct serve *s = arg;
    if (s->api)
        api_models_changed(s->api);
}

static int open_registry(struct serve *s, struct err *e)
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
                                 .progress = load_progress,
                                 .arg = s,
                                 .engine_faults = runtime_faults ? &runtime_faults->engine : NULL,
                                 .faults = runtime_faults ? &runtime_faults->registry : NULL};
    return registry_create(&opts, &s->registry, e);
}

/* Several models grow into the ceiling, so the need of the process itself is reserved. With one model the
 * limits of all accounts fit together by the plan. */
static int set_floors(struct serve *s, struct err *e)
{
    struct account *const accounts[] = {s->rt.threads, s->rt.network, s->rt.text, s->rt.media};
    int r = 0;
    for (size_t i = 0; i < COUNT_OF(accounts) && r == 0 && s->models.count > 1; i++)
        if (accounts[i])
            r = account_set_floor(accounts[i], account_numbers(accounts[i]).limit);
    return r < 0 ? err_set(e, r, "no memory for what the process itself needs") : 0;
}

/* --- signals --- */

static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void end(struct serve *s, uint32_t number)
{
    bool again = s->ending;
    s->ending = true;
    atomic_store(&s->served, true);
    uint64_t drain_s = again ? 0 : s->live.now.drain_s;
    LOG_INFO("stopping", "signal=%u open_requests=%u drain_s=%llu", number, api_requests_now(s->api),
             (unsigned long long)drain_s);
    api_set_state(s->api, API_DRAINING, NULL);
    service_stopping(&s->service, drain_s * NS_PER_S + SERVE_CLOSE_NS);
    http_server_stop(s->http, drain_s * NS_PER_S);
}

static void reload(struct serve *s)
{
    service_reloading(&s->service);
    live_reload(&s->live);
    listeners_tell_key(&s->listeners, &s->live);
    service_reloaded(&s->service);
}

/* SIGHUP has two meanings: a request to read settings again, or the loss of the controlling terminal. */
static void on_signal(void *arg, int fd)
{
    struct serve *s = arg;
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo != SIGHUP || (s->had_terminal && !has_terminal()))
        end(s, info.ssi_signo);
    else if (!s->ending)
        reload(s);
}

/* SIGHUP waits until settings can be read again; SIGTERM and SIGINT end a start. */
static void prepare_signals(struct serve *s)
{
    sigset_t set;
    struct sigaction hangup;
    /* nohup ignores it: then the loss of the terminal has no effect. */
    sigaction(SIGHUP, NULL, &hangup);
    s->had_terminal = hangup.sa_handler != SIG_IGN && has_terminal();
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    /* Tools that rotate logs send these by habit; the log is written to standard error only. */
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* From here on they are read. Other threads have them blocked since they exist. */
static int catch_signals(struct serve *s, struct err *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? err_set(e, -errno, "signals cannot be read") : 0;
}

/* Signals are no longer read, and closing should take a moment: a further signal ends the process. */
static void let_signals_end(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* --- opening and closing --- */

static struct media_opts media_of(const struct serve *s)
{
    const struct options *o = &s->live.started;
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

static int open_api(struct serve *s, struct err *e)
{
    const struct options *o = &s->live.started;
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

static int open_http(struct serve *s, struct err *e)
{
    const struct options *o = &s->live.started;
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
    if (r == 0 && (r = http_server_watch(s->http, s->signals, on_signal, s)) < 0)
        return err_set(e, r, "signals cannot be watched");
    s->live.body_bytes_max = s->rt.process.body_bytes;
    s->live.api = s->api;
    s->live.http = s->http;
    if (r == 0)
        r = listeners_open(&s->listeners, &s->live, s->api, s->http, s->rt.network, e);
    return r == 0 ? service_open(&s->service, s->api, s->http, e) : r;
}

/* The page's address with the server's own admin key. On a terminal only: its reader sits at the machine. */
static void tell_key(const struct serve *s)
{
    const char *key = live_own_admin_key(&s->live), *host = s->live.started.host;
    bool v6 = strchr(host, ':') != NULL, any = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    if (!key || !terminal_is(stdout))
        return;
    if (any)
        host = "127.0.0.1";
    printf("As its administrator: http://%s%s%s:%u/#key=%s\n", v6 && !any ? "[" : "", host,
           v6 && !any ? "]" : "", http_server_port(s->http), key);
}

static void tell_where(const struct serve *s)
{
    bool v6 = strchr(s->live.started.host, ':') != NULL;
    printf("Plateau listens on http://%s%s%s:%u ", v6 ? "[" : "", s->live.started.host, v6 ? "]" : "",
           http_server_port(s->http));
    if (s->models.count == 1)
        printf("(model %s)\n", s->models.list[0].id);
    else
        printf("(%u models)\n", s->models.count);
    tell_key(s);
    /* The server continues; its exit status shows it at the end. */
    if (output_flush() < 0)
        LOG_WARN("output_failed", "error=\"%s\" host=%s port=%u", strerror(output_error()),
                 s->live.started.host, http_server_port(s->http));
}

static int serve_run(struct serve *s, struct err *e)
{
    int r = set_floors(s, e);
    if (r < 0)
        return r;
    tell_where(s);
    r = registry_start(s->registry, e);
    if (r < 0)
        return r;
    api_models_changed(s->api); /* there may be nothing to load at the start */
    r = http_server_run(s->http);
    return r < 0 ? err_set(e, r, "the network loop ended: %s", strerror(-r)) : 0;
}

/* Everything but the load that hangs and what it may use: the other models, whose prefixes go to the SSD
 * tier, and that. */
static void close_beside(struct serve *s)
{
    registry_close_others(s->registry);
    store_close(s->rt.store);
}

/* Shutdown order: connections, loads (at their next piece), engines (at their next layer), prep threads,
 * then shared state; each step runs whatever the ones before returned. False: a load hangs, and its memory
 * stays. */
static bool serve_close(struct serve *s)
{
    atomic_store(&s->served, true);
    let_signals_end();
    service_close(&s->service);
    listeners_close(&s->listeners);
    http_server_free(s->http);
    registry_stop(s->registry);
    api_stop(s->api);
    if (!registry_settle(s->registry, SERVE_LOADS_NS)) {
        close_beside(s);
        return false;
    }
    registry_close(s->registry);
    progress_done(&s->progress);
    api_free(s->api);
    runtime_close(&s->rt);
    if (s->signals >= 0)
        close(s->signals);
    return true;
}

static int open_all(struct serve *s, struct err *e)
{
    int r = runtime_guard(&s->rt, e);
    if (r == 0)
        r = catch_signals(s, e);
    if (r == 0)
        r = open_registry(s, e);
    if (r == 0)
        r = open_api(s, e);
    return r == 0 ? open_http(s, e) : r;
}

static int open_process(struct serve *s, struct err *e)
{
    const struct options *o = &s->live.started;
    prepare_signals(s);
    int r = models_find(o, &s->models, e);
    if (r == 0)
        r = models_plan(&s->models, e);
    return r == 0 ? runtime_open_process(o, &s->models.process, runtime_workers(o), &s->rt, e) : r;
}

/* With a thread stuck in the kernel: exit() would free memory that it uses. */
static noreturn void leave(int status)
{
    fflush(stdout);
    fflush(stderr);
    _exit(status);
}

int command_serve(int argc, char **argv)
{
    struct serve s = {.signals = -1, .service = {.timer = -1, .notify = {.fd = -1}}};
    struct err e = {{0}};
    int r = live_open(&s.live, argc, argv, &e);
    if (r < 0 || s.live.started.help) {
        if (r < 0)
            fprintf(stderr, "plateau: %s\n", e.text);
        else
            help_command(COMMAND_SERVE, stdout);
        live_close(&s.live);
        return r < 0 ? 2 : 0;
    }
    bool failed = false, closed = true;
    r = open_process(&s, &e);
    if (r == 0) {
        r = open_all(&s, &e);
        if (r == 0)
            r = serve_run(&s, &e);
        failed = s.api && api_state_of(s.api) == API_FAILED;
        closed = serve_close(&s);
    }
    if (r < 0)
        fprintf(stderr, "plateau: %s\n", e.text);
    int status = r < 0 || failed ? 1 : 0;
    if (!closed)
        leave(status);
    models_done(&s.models);
    live_close(&s.live);
    return status;
}
