/* serve.c - the server: listens at once, loads in a thread of its own, drains when told to.
 *
 * The main thread becomes the network thread. Signals are read from a descriptor there: the first SIGTERM or SIGINT drains,
 * a second one ends at once. */
#include "api/api.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/live.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "cli/service.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* What closing takes at most, after a drain: what is told to the service manager. */
#define SERVE_CLOSE_NS (30 * NS_PER_S)

struct serve {
    struct live live;
    struct runtime rt;
    struct api *api;
    struct http_server *http;
    struct service service;
    int signals;       /* signalfd */
    bool had_terminal; /* and nobody said that its end does not matter */
    pthread_t loader;
    bool loader_runs, failed;
    struct progress progress; /* the loader's */
    atomic_bool stop;         /* ends a load */
    uint64_t started_ns;
};

/* --- loading --- */

static int load_progress(void *arg, uint64_t done, uint64_t total)
{
    struct serve *s = arg;
    api_set_progress(s->api, done, total);
    progress_show(&s->progress, done, total);
    return atomic_load(&s->stop);
}

static void publish(struct serve *s)
{
    const struct runtime *rt = &s->rt;
    ASSERT(api_set_model(s->api, &rt->served) == 0);
    api_set_state(s->api, API_READY, NULL);
    LOG_INFO("ready", "model=%s context=%u weights_bytes=%llu after_ms=%llu", rt->model_id,
             rt->planning.plan.max_model_len, (unsigned long long)rt->served.shape->weight_bytes,
             (unsigned long long)((clock_now_ns() - s->started_ns) / NS_PER_MS));
}

static void *load(void *arg)
{
    struct serve *s = arg;
    struct err e = {{0}};
    progress_init(&s->progress, s->rt.model_id);
    int r = runtime_load(&s->rt, load_progress, s, &e);
    progress_done(&s->progress);
    if (r == 0) {
        publish(s);
        return NULL;
    }
    if (r != -ECANCELED)
        LOG_ERROR("load_failed", "model=%s error=\"%s\"", s->rt.model_dir, e.text);
    s->failed = r != -ECANCELED;
    api_set_state(s->api, API_FAILED, e.text);
    http_server_stop(s->http, 0);
    return NULL;
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
    bool again = atomic_exchange(&s->stop, true);
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
    service_reloaded(&s->service);
}

/* SIGHUP has two meanings: somebody wants settings to be read again, or the terminal is gone that this was started from. */
static void on_signal(void *arg, int fd)
{
    struct serve *s = arg;
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo != SIGHUP || (s->had_terminal && !has_terminal()))
        end(s, info.ssi_signo);
    else if (!atomic_load(&s->stop))
        reload(s);
}

static int catch_signals(struct serve *s, struct err *e)
{
    sigset_t set;
    struct sigaction hangup;
    /* nohup has it ignored: then the terminal's end is none of ours. */
    sigaction(SIGHUP, NULL, &hangup);
    s->had_terminal = hangup.sa_handler != SIG_IGN && has_terminal();
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    /* Before any thread exists: all inherit the mask. */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? err_set(e, -errno, "signals cannot be read") : 0;
}

/* Nobody reads signals any more, and what is closed now should take a moment: one that still comes ends the process. */
static void let_signals_end(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* --- opening and closing --- */

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
                            .requests_max = (uint32_t)o->max_requests,
                            .json_depth_max = (uint32_t)o->json_depth,
                            .prep_threads = (uint32_t)o->prep_threads,
                            .request_bytes_max = MIN_OF(o->max_request_bytes, texts),
                            .prep_queue_bytes_max = p->body_bytes,
                            .max_tokens_default = (uint32_t)o->max_tokens_default,
                            .keepalive_s = (uint32_t)o->keepalive_s,
                            .slow_client_s = (uint32_t)o->slow_client_s,
                            .stuck_s = (uint32_t)o->stuck_s,
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
    return r == 0 ? service_open(&s->service, s->api, s->http, e) : r;
}

static int serve_run(struct serve *s, struct err *e)
{
    bool v6 = strchr(s->live.started.host, ':') != NULL;
    printf("Plateau listens on http://%s%s%s:%u (model %s)\n", v6 ? "[" : "", s->live.started.host,
           v6 ? "]" : "", http_server_port(s->http), s->rt.model_id);
    fflush(stdout);
    int r = pthread_create(&s->loader, NULL, load, s);
    if (r)
        return err_set(e, -r, "the loading thread could not be started");
    s->loader_runs = true;
    r = http_server_run(s->http);
    return r < 0 ? err_set(e, r, "the network loop ended: %s", strerror(-r)) : 0;
}

/* Everything in order, whatever came before: the load ends at its next tensor, clients are let go, the engine's step ends at its next
 * layer, so nobody waits for it long who prepares a request; then what they used. */
static void serve_close(struct serve *s)
{
    atomic_store(&s->stop, true);
    let_signals_end();
    if (s->loader_runs)
        pthread_join(s->loader, NULL);
    service_close(&s->service);
    http_server_free(s->http);
    engine_stop(s->rt.hosted.engine);
    api_stop(s->api);
    hosted_close(&s->rt.hosted, NULL, NULL);
    api_free(s->api);
    runtime_close(&s->rt);
    if (s->signals >= 0)
        close(s->signals);
}

int command_serve(int argc, char **argv)
{
    struct serve s = {
        .signals = -1, .started_ns = clock_now_ns(), .service = {.timer = -1, .notify = {.fd = -1}}};
    struct err e = {{0}};
    const struct options *o = &s.live.started;
    int r = live_open(&s.live, argc, argv, &e);
    if (r < 0 || o->help) {
        if (r < 0)
            fprintf(stderr, "plateau: %s\n", e.text);
        else
            help_command(COMMAND_SERVE, stdout);
        live_close(&s.live);
        return r < 0 ? 2 : 0;
    }
    r = catch_signals(&s, &e);
    if (r == 0) {
        struct runtime_opts opts = {(uint32_t)o->max_num_seqs, (uint32_t)o->max_queue, true};
        r = runtime_open(o, &opts, &s.rt, &e);
    }
    if (r == 0) {
        r = runtime_guard(&s.rt, &e);
        if (r == 0)
            r = open_api(&s, &e);
        if (r == 0)
            r = open_http(&s, &e);
        if (r == 0)
            r = serve_run(&s, &e);
        serve_close(&s);
    }
    live_close(&s.live);
    if (r < 0)
        fprintf(stderr, "plateau: %s\n", e.text);
    return r < 0 || s.failed ? 1 : 0;
}
