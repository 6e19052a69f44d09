/* api.c - creates, wakes and ends the parts of the API.
 *
 * Two mailboxes bring news to the network thread: prepared exchanges and streams with new tokens. That thread
 * handles all news in order of arrival, so no exchange needs a lock. Models come and go in the registry: an
 * exchange that needs one has a lease on it. */
#include "api/access/tenants.h"
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/prep.h"
#include "api/report/figures.h"
#include "api/report/metrics.h"
#include "api/report/watch.h"
#include "api/routes.h"
#include "api/turns/turn_memory.h"
#include "api/warm.h"
#include "api/wire/responses_rest.h"
#include "api/wire/wire.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/threads/thread_stack.h"
#include "engine/engine_numbers.h"
#include "gen/choice.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- creation ---- */

#define TEXTS_MAX 2048 /* texts of a request for vectors or scores; OpenAI's limit */

static uint32_t processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 1;
    return (uint32_t)CPU_COUNT(&set);
}

static void fill_live_defaults(struct api_live *l)
{
    l->requests_max = l->requests_max ? l->requests_max : 1024;
    l->request_bytes_max = l->request_bytes_max ? l->request_bytes_max : (size_t)256 << 20;
    l->keepalive_s = l->keepalive_s ? l->keepalive_s : 10;
    l->slow_client_s = l->slow_client_s ? l->slow_client_s : 30;
    l->stuck_s = l->stuck_s ? l->stuck_s : 30;
    l->load_timeout_s = l->load_timeout_s ? l->load_timeout_s : 600;
}

static void fill_defaults(struct api_opts *o)
{
    fill_live_defaults(&o->live);
    o->choices_max = o->choices_max ? o->choices_max : 128;
    o->json_depth_max = o->json_depth_max ? o->json_depth_max : 64;
    o->prep_threads = o->prep_threads ? o->prep_threads : processors() <= 4 ? 1 : 2;
    o->prep_threads = MIN_OF(o->prep_threads, (uint32_t)API_PREP_THREADS_MAX);
    o->prep_queue_bytes_max = o->prep_queue_bytes_max ? o->prep_queue_bytes_max : (size_t)64 << 20;
    o->response_ttl_ns = o->response_ttl_ns ? o->response_ttl_ns : 3600 * NS_PER_S;
    o->models_max = o->models_max ? o->models_max : 1;
}

static uint32_t streams_max(const struct api_opts *o)
{
    return o->live.requests_max + 8 * o->choices_max;
}

static uint32_t bucket_count(const struct api_opts *o)
{
    uint32_t buckets = 64;
    while (buckets < streams_max(o) && buckets < 1u << 16)
        buckets *= 2;
    return buckets;
}

/* Accounts of the process and of each model. */
static uint32_t accounts_max(const struct api_opts *o)
{
    return 64 + 32 * o->models_max;
}

static size_t table_bytes(const struct api_opts *o)
{
    return sizeof(struct api) + bucket_count(o) * sizeof(struct list) +
           API_JOBS_SHOWN_MAX * sizeof(struct job_numbers) +
           accounts_max(o) * sizeof(struct account_numbers) + API_REPORT_BYTES + tenants_bytes() +
           o->models_max * (sizeof(struct metrics) + sizeof(struct watch));
}

static struct mailbox_opts mailbox_of(uint32_t messages, bool eventfd, const struct charge *charge)
{
    return (struct mailbox_opts){messages, sizeof(void *), eventfd, charge};
}

/* One message per stream, and one more per stream that was released with a message under way. */
static struct mailbox_opts wakes_of(const struct api_opts *o, const struct charge *charge)
{
    return mailbox_of(2 * streams_max(o), true, charge);
}

uint64_t api_bytes(const struct api_opts *opts)
{
    struct api_opts o = *opts;
    fill_defaults(&o);
    struct mailbox_opts requests = mailbox_of(o.live.requests_max, false, NULL), wakes = wakes_of(&o, NULL);
    return table_bytes(&o) + mailbox_bytes(&requests) + mailbox_bytes(&wakes);
}

uint64_t api_stack_bytes(const struct api_opts *opts)
{
    struct api_opts o = *opts;
    fill_defaults(&o);
    return (prep_threads(&o) + o.warms) * (uint64_t)thread_stack_bytes(PREP_STACK_BYTES) +
           (o.media.on ? media_stack_bytes(&o.media) : 0);
}

static int make_mailboxes(struct api *a)
{
    struct mailbox_opts prepared = mailbox_of(a->opts.live.requests_max, true, &a->text);
    struct mailbox_opts wakes = wakes_of(&a->opts, &a->text);
    int r = mailbox_create(&prepared, &a->prepared);
    return r < 0 ? r : mailbox_create(&wakes, &a->wakes);
}

static int make_tables(struct api *a)
{
    uint32_t buckets = bucket_count(&a->opts);
    a->own_bytes = table_bytes(&a->opts);
    int r = charge_take(&a->text, a->own_bytes);
    if (r < 0) {
        a->own_bytes = 0;
        return r;
    }
    a->streams = calloc(buckets, sizeof(*a->streams));
    a->jobs = calloc(API_JOBS_SHOWN_MAX, sizeof(*a->jobs));
    a->accounts_max = accounts_max(&a->opts);
    a->accounts = calloc(a->accounts_max, sizeof(*a->accounts));
    a->metrics = calloc(a->opts.models_max, sizeof(*a->metrics));
    a->watches = calloc(a->opts.models_max, sizeof(*a->watches));
    buf_init(&a->report, API_REPORT_BYTES, NULL); /* part of own_bytes */
    if (tenants_create(&a->tenants) < 0)
        return -ENOMEM;
    if (!a->streams || !a->jobs || !a->accounts || !a->metrics || !a->watches)
        return -ENOMEM;
    for (uint32_t i = 0; i < buckets; i++)
        list_init(&a->streams[i]);
    for (uint32_t i = 0; i < a->opts.models_max; i++)
        metrics_init(&a->metrics[i]);
    a->bucket_mask = buckets - 1;
    return 0;
}

static void media_done(void *arg)
{
    api_models_changed(arg);
}

static int open_media(struct api *a, struct err *e)
{
    struct media_opts opts = a->opts.media;
    if (!opts.on)
        return 0;
    opts.threads = a->opts.threads;
    opts.done = media_done;
    opts.arg = a;
    return media_create(&opts, &a->media, e);
}

int api_create(const struct api_opts *opts, struct api **ret, struct err *e)
{
    int r = 0;
    if (!opts->ledger || !opts->text || !opts->registry ||
        opts->models_max < registry_models_max(opts->registry))
        return err_set(e, -EINVAL, "the api needs a ledger, an account for texts, and a registry of models");
    struct api *a = calloc(1, sizeof(*a));
    if (!a)
        return err_set(e, -ENOMEM, "no memory for the api");
    a->opts = *opts;
    fill_defaults(&a->opts);
    a->text = account_charge(opts->text);
    a->limits = (struct request_limits){.json_depth_max = a->opts.json_depth_max,
                                        .choices_max = a->opts.choices_max,
                                        .texts_max = TEXTS_MAX,
                                        .elsewhere = wire_has_elsewhere};
    a->streams_max = streams_max(&a->opts);
    api_set_live(a, &a->opts.live);
    a->started_ns = clock_now_ns();
    a->started_s = (int64_t)clock_wall_s();
    pthread_mutex_init(&a->lock, NULL);
    prep_queue_init(&a->to_prepare);
    list_init(&a->exchanges);
    a->models_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = a->models_fd < 0 ? -errno : make_tables(a);
    if (r == 0)
        r = make_mailboxes(a);
    if (r == 0)
        r = turn_memory_open(a);
    if (r == 0)
        r = api_history_open(a);
    if (r == 0)
        r = open_media(a, e);
    if (r == 0)
        r = warm_create(a, &a->warm, e);
    a->text_fixed_bytes = account_numbers(opts->text).reserved;
    if (r == 0)
        r = prep_start(a);
    if (r == 0)
        r = warm_start(a->warm);
    if (r < 0) {
        api_stop(a);
        api_free(a);
        return e->text[0] ? r : err_set(e, r, "the api does not start: %s", strerror(-r));
    }
    *ret = a;
    return 0;
}

/* ---- news from other threads ---- */

static void take_prepared(void *arg, int fd)
{
    struct api *a = arg;
    struct exchange *x;
    (void)fd;
    mailbox_fd_clear(a->prepared);
    while (mailbox_take(a->prepared, &x))
        exchange_prepared(x);
}

static void take_wakes(void *arg, int fd)
{
    struct api *a = arg;
    struct stream *s;
    (void)fd;
    mailbox_fd_clear(a->wakes);
    while (mailbox_take(a->wakes, &s)) {
        struct choice *c = exchange_find_choice(a, s);
        if (!c)
            continue;
        stream_wake_clear(s);
        exchange_pump(CONTAINER(c->gen, struct exchange, gen));
    }
}

/* Every model that is loaded at the start is ready, or has failed. */
static void look_at_start(struct api *a)
{
    struct registry_failure why = {0};
    uint32_t index = 0;
    int r = registry_started(a->opts.registry, &index, &why);
    if (r == -EAGAIN)
        return;
    if (r == 0) {
        LOG_INFO("ready", "models=%u after_ms=%llu", api_model_count(a),
                 (ull)((clock_now_ns() - a->started_ns) / NS_PER_MS));
        api_set_state(a, API_READY, NULL);
        return;
    }
    api_set_state(a, API_FAILED, why.e.text);
    http_server_stop(a->server, 0);
}

static void take_changes(void *arg, int fd)
{
    struct api *a = arg;
    uint64_t changes, now_ns = clock_now_ns();
    if (read(fd, &changes, sizeof(changes)) < 0)
        return;
    if (api_state_now(a) == API_LOADING)
        look_at_start(a);
    pulls_poll(a);
    LIST_EACH(it, &a->exchanges)
        exchange_poll(LIST_ENTRY(it, struct exchange, all), now_ns);
}

static void on_writable(void *arg, struct http_request *r)
{
    struct exchange *x = http_request_user(r);
    (void)arg;
    if (x)
        exchange_pump(x);
}

static void on_ended(void *arg, struct http_request *r, bool completed)
{
    struct exchange *x = http_request_user(r);
    (void)arg;
    if (x)
        exchange_ended(x, completed);
}

static void on_tick(void *arg, uint64_t now_ns)
{
    struct api *a = arg;
    watch_models(a, now_ns);
    responses_rest(a, now_ns);
    pulls_tick(a, now_ns);
    figures_tick(a->figures, a, now_ns);
    trace_tick(a->trace, now_ns);
    LIST_EACH(it, &a->exchanges)
        exchange_tick(LIST_ENTRY(it, struct exchange, all), now_ns);
}

/* The drain's time is up: clients whose requests still wait get an answer. */
static void on_stopping(void *arg)
{
    struct api *a = arg;
    struct reject why = {.retry_after_s = 1};
    reject_as(&why, REJECT_SHUTTING_DOWN);
    pulls_drain(a);
    LIST_EACH(it, &a->exchanges) {
        struct exchange *x = LIST_ENTRY(it, struct exchange, all);
        if (x->phase != EXCHANGE_SENDING)
            exchange_cancel(x, &why);
    }
}

struct http_handler api_handler(struct api *a)
{
    (void)a;
    return (struct http_handler){
        .begin = routes_begin,
        .ready = routes_ready,
        .writable = on_writable,
        .ended = on_ended,
        .tick = on_tick,
        .stopping = on_stopping,
        .refusing = routes_refusing,
    };
}

int api_attach(struct api *a, struct http_server *s)
{
    int r = http_server_watch(s, mailbox_fd(a->prepared), take_prepared, a);
    if (r == 0)
        r = http_server_watch(s, mailbox_fd(a->wakes), take_wakes, a);
    if (r == 0)
        r = http_server_watch(s, a->models_fd, take_changes, a);
    a->server = r == 0 ? s : NULL;
    return r;
}

/* ---- the end ---- */

void api_stop(struct api *a)
{
    struct exchange *x;
    if (!a || a->stopped)
        return;
    a->stopped = true;
    a->server = NULL;
    pulls_close(a);
    warm_stop(a->warm);
    prep_stop(a);
    /* The server has closed their connections: no answer is sent, every exchange is freed. */
    while (a->prepared && mailbox_take(a->prepared, &x))
        exchange_prepared(x);
    ASSERT(list_empty(&a->exchanges));
    media_stop(a->media);
}

void api_free(struct api *a)
{
    if (!a)
        return;
    api_stop(a);
    warm_free(a->warm);
    media_free(a->media);
    turn_memory_close(a);
    api_history_close(a);
    prep_queue_done(&a->to_prepare);
    mailbox_free(a->prepared);
    mailbox_free(a->wakes);
    pthread_mutex_destroy(&a->lock);
    free(a->streams);
    free(a->jobs);
    free(a->accounts);
    free(a->metrics);
    free(a->watches);
    tenants_free(a->tenants);
    if (a->models_fd >= 0)
        close(a->models_fd);
    buf_done(&a->report);
    struct charge text = a->text;
    size_t bytes = a->own_bytes;
    free(a);
    charge_give(&text, bytes);
}

/* ---- models and state ---- */

void api_models_changed(struct api *a)
{
    uint64_t one = 1;
    warm_wake(a->warm);
    /* Full means that the network thread has not looked yet: it will. */
    if (write(a->models_fd, &one, sizeof(one)) < 0)
        return;
}

void api_pulled(struct api *a, const char *id, const char *why)
{
    pthread_mutex_lock(&a->lock);
    a->served.is_told = true;
    snprintf(a->served.id, sizeof(a->served.id), "%s", id ? id : "");
    snprintf(a->served.why, sizeof(a->served.why), "%s", id ? "" : why);
    pthread_mutex_unlock(&a->lock);
    api_models_changed(a);
}

void api_glance(struct api *a, struct api_glance *ret)
{
    struct api_progress p = api_progress(a);
    *ret = (struct api_glance){
        .state = api_state_now(a), .stuck = api_stuck_model(a), .load_done = p.done, .load_total = p.total};
}

void api_set_live(struct api *a, const struct api_live *live)
{
    a->live = *live;
    fill_live_defaults(&a->live);
    a->live.requests_max = MIN_OF(a->live.requests_max, a->opts.live.requests_max);
    atomic_store(&a->max_tokens_default, live->max_tokens_default);
}

void api_set_keys(struct api *a, const struct keyring *keys)
{
    a->opts.keys = keys;
}

void api_set_origins(struct api *a, const char *const *origins)
{
    a->opts.origins = origins;
}

uint32_t api_requests_now(struct api *a)
{
    return atomic_load(&a->requests_now);
}
