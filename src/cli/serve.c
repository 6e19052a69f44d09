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
#include "cli/keys.h"
#include "cli/progress.h"
#include "cli/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct serve {
    struct options options;
    struct runtime rt;
    struct api *api;
    struct http_server *http;
    struct keyring *keys;
    int signals; /* signalfd */
    pthread_t loader;
    bool loader_runs, failed;
    struct progress progress; /* the loader's */
    atomic_bool stop;         /* ends a load */
    uint64_t started_ns;
};

static int check_options(const struct options *o, struct err *e)
{
    if (strcmp(o->trim, "on") != 0 && strcmp(o->trim, "off") != 0)
        return err_set(e, -EINVAL, "--trim %s: on or off is expected", o->trim);
    return options_log_level(o, LOG_LEVEL_INFO, e);
}

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

/* --- the end --- */

static void on_signal(void *arg, int fd)
{
    struct serve *s = arg;
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof(info)) != sizeof(info))
        return;
    bool again = atomic_exchange(&s->stop, true);
    LOG_INFO("stopping", "signal=%u open_requests=%u drain_s=%llu", info.ssi_signo, api_requests_now(s->api),
             again ? 0ull : (unsigned long long)s->options.drain_s);
    api_set_state(s->api, API_DRAINING, NULL);
    http_server_stop(s->http, again ? 0 : s->options.drain_s * NS_PER_S);
}

static int catch_signals(struct serve *s, struct err *e)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    /* Before any thread exists: all inherit the mask. */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? err_set(e, -errno, "signals cannot be read") : 0;
}

static int open_api(struct serve *s, struct err *e)
{
    const struct options *o = &s->options;
    const struct plan_process *p = &s->rt.process;
    uint64_t texts = p->text_bytes - p->text_floor_bytes;
    struct api_opts opts = {.ledger = s->rt.ledger,
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
                            .keys = s->keys};
    return api_create(&opts, &s->api, e);
}

/* Without keys only this machine's own pages and programs may ask. */
static bool is_guarded(const struct serve *s)
{
    return keys_host_is_loopback(s->options.host) && keyring_count(s->keys, KEYRING_MODELS) == 0;
}

static int open_http(struct serve *s, struct err *e)
{
    const struct options *o = &s->options;
    struct http_server_opts opts = {.host = o->host,
                                    .port = (uint16_t)o->port,
                                    .connections_max = (uint32_t)o->max_connections,
                                    .header_bytes_max = o->max_header_bytes,
                                    .body_bytes_max = MIN_OF(o->max_body_bytes, s->rt.process.body_bytes),
                                    .idle_timeout_s = (uint32_t)o->idle_timeout_s,
                                    .network = s->rt.network,
                                    .loopback_host_only = is_guarded(s),
                                    .handler = api_handler(s->api),
                                    .arg = s->api};
    int r = http_server_create(&opts, e, &s->http);
    if (r == 0 && (r = api_attach(s->api, s->http)) < 0)
        return err_set(e, r, "the server's queues cannot be watched");
    if (r == 0 && (r = http_server_watch(s->http, s->signals, on_signal, s)) < 0)
        return err_set(e, r, "signals cannot be watched");
    return r;
}

static int serve_run(struct serve *s, struct err *e)
{
    bool v6 = strchr(s->options.host, ':') != NULL;
    printf("Plateau listens on http://%s%s%s:%u (model %s)\n", v6 ? "[" : "", s->options.host, v6 ? "]" : "",
           http_server_port(s->http), s->rt.model_id);
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
    if (s->loader_runs)
        pthread_join(s->loader, NULL);
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
    struct serve s = {.signals = -1, .started_ns = clock_now_ns()};
    struct err e = {{0}};
    int r = options_parse(COMMAND_SERVE, argc, argv, &s.options, &e);
    if (r == 0 && s.options.help) {
        help_command(COMMAND_SERVE, stdout);
        return 0;
    }
    if (r == 0)
        r = check_options(&s.options, &e);
    if (r == 0)
        r = keys_open(&s.options, &s.keys, &e);
    if (r == 0)
        r = keys_check(&s.options, s.keys, &e);
    if (r < 0) {
        keyring_free(s.keys);
        fprintf(stderr, "plateau: %s\n", e.text);
        return 2;
    }
    r = catch_signals(&s, &e);
    if (r == 0) {
        struct runtime_opts opts = {(uint32_t)s.options.max_num_seqs, (uint32_t)s.options.max_queue, true};
        r = runtime_open(&s.options, &opts, &s.rt, &e);
    }
    if (r == 0) {
        r = open_api(&s, &e);
        if (r == 0)
            r = open_http(&s, &e);
        if (r == 0)
            r = serve_run(&s, &e);
        serve_close(&s);
    }
    keyring_free(s.keys);
    if (r < 0)
        fprintf(stderr, "plateau: %s\n", e.text);
    return r < 0 || s.failed ? 1 : 0;
}
