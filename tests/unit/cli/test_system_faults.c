/* The system refuses every creation once: memory, mappings, threads, descriptors. Everything made before that
 * is closed, in whichever module, and the next attempt is as good as the first.
 *
 * The linker puts __wrap_NAME in place of NAME (--wrap, see tests.cmake): one call of the testing thread
 * fails, or all from there on. */
#include "model_path.h"
#include "unit/engine/test_engine.h"

#include "api/api.h"
#include "cli/options.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "host/models/models.h"
#include "host/runtime.h"
#include "host/settings.h"
#include "http/http_server.h"
#include "kernel/workers.h"
#include "registry/loaded_model.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* ---- calls that fail ---- */

static _Thread_local struct {
    unsigned count, from; /* from 0: none fails */
    bool lasts;
} faults;

static bool fails(int error)
{
    faults.count += faults.from > 0;
    if (faults.from == 0 || (faults.lasts ? faults.count < faults.from : faults.count != faults.from))
        return false;
    errno = error;
    return true;
}

#define WRAP(type, name, parameters, arguments, error, failure)                                              \
    type __real_##name parameters;                                                                           \
    type __wrap_##name parameters;                                                                           \
    type __wrap_##name parameters                                                                            \
    {                                                                                                        \
        return fails(error) ? failure : __real_##name arguments;                                             \
    }

WRAP(void *, malloc, (size_t n), (n), ENOMEM, NULL)
WRAP(void *, calloc, (size_t n, size_t bytes), (n, bytes), ENOMEM, NULL)
WRAP(void *, realloc, (void *p, size_t n), (p, n), ENOMEM, NULL)
WRAP(void *, aligned_alloc, (size_t align, size_t n), (align, n), ENOMEM, NULL)
WRAP(int, eventfd, (unsigned n, int flags), (n, flags), EMFILE, -1)
WRAP(int, epoll_create1, (int flags), (flags), EMFILE, -1)
WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE, -1)
WRAP(void *, mmap, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at),
     ENOMEM, MAP_FAILED)
WRAP(int, pthread_create, (pthread_t * t, const pthread_attr_t *a, void *(*main)(void *), void *arg),
     (t, a, main, arg), EAGAIN, EAGAIN)

int __real_mprotect(void *p, size_t n, int prot);
int __wrap_mprotect(void *p, size_t n, int prot);
int __wrap_mprotect(void *p, size_t n, int prot)
{
    /* Taking access away may not fail: see base/pages.c. */
    return prot != PROT_NONE && fails(ENOMEM) ? -1 : __real_mprotect(p, n, prot);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    return fails(EMFILE) ? -1 : __real_open(path, flags, 0);
}

/* jansson cannot be refused while it parses: see gen/request_memory.c. Its blocks are not ours to refuse
 * here. */
static void spare_jansson(void)
{
    json_set_alloc_funcs(__real_malloc, free);
}

/* ---- creations ---- */

/* One at a time. */
static struct {
    struct account *account, *other;
    struct workers *workers;
    struct model *model;
    struct arena *arena;
    struct tokenizer *tokenizer;
    struct engine *engine;
    struct api *api;
    struct http_server *http;
    struct runtime runtime;
    struct models models;
    struct loaded_model loaded;
    struct registry *registry;
    struct settings settings;
} made;

static int make_workers(struct err *e)
{
    int r = workers_create(3, made.account, &made.workers);
    return r < 0 ? err_set(e, r, "workers could not be made") : 0;
}

static void close_workers(void)
{
    workers_free(made.workers);
}

static int make_model(struct err *e)
{
    struct model_opts o = {
        .tokens_max = 64, .seqs_max = 4, .logits_max = 8, .device = test_device, .parent = made.account};
    return model_load_at(TINY("qwen3_5"), &o, &made.model, e);
}

static void close_model(void)
{
    model_free(made.model);
}

static void close_text(void)
{
    arena_free(made.arena);
    made.tokenizer = NULL;
    made.arena = NULL;
}

static int make_text(struct err *e)
{
    struct charge charge = account_charge(made.account);
    struct chat_template *template = NULL;
    int r = arena_create(&(struct arena_opts){64 << 20, 0, &charge}, &made.arena);
    if (r < 0)
        return err_set(e, r, "no memory for an arena");
    r = tokenizer_load_at(made.arena, CANARY, &made.tokenizer, e);
    if (r == 0)
        r = chat_template_load_at(made.arena, CANARY, &template, e);
    if (r < 0)
        close_text();
    return r;
}

static int make_engine(struct err *e)
{
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    o.parent = made.account;
    o.prefix_cache_bytes = 1 << 20;
    int r = engine_create(&o, &made.engine, e);
    if (r < 0)
        return r;
    r = engine_start(made.engine);
    if (r < 0)
        engine_close(made.engine);
    return r < 0 ? err_set(e, r, "its thread did not start") : 0;
}

static void close_engine(void)
{
    engine_close(made.engine);
}

static int plan_nothing(void *arg, struct model_settings *s, struct model_files **ret, struct err *e)
{
    (void)arg, (void)s, (void)ret;
    return err_set(e, -ENOENT, "there is no model");
}

/* With a registry of one model that is not loaded. */
static int make_api(struct err *e)
{
    static const struct model_settings model = {.id = "none", .dir = "/nowhere"};
    struct registry_opts registry = {.ledger = test_ledger(),
                                     .threads = made.other,
                                     .devices = {test_device},
                                     .models = &model,
                                     .model_count = 1,
                                     .plan = plan_nothing};
    int r = registry_create(&registry, &made.registry, e);
    if (r == 0)
        r = registry_start(made.registry, e);
    struct api_opts o = {.ledger = test_ledger(),
                         .text = made.account,
                         .threads = made.other,
                         .prep_threads = 2,
                         .registry = made.registry,
                         .models_max = 1};
    if (r == 0)
        r = api_create(&o, &made.api, e);
    if (r < 0) {
        registry_close(made.registry);
        made.registry = NULL;
    }
    return r;
}

static void close_api(void)
{
    api_stop(made.api);
    registry_close(made.registry);
    made.registry = NULL;
    api_free(made.api);
}

static int begin(void *arg, struct http_request *r)
{
    (void)arg, (void)r;
    return 0;
}

static void ready(void *arg, struct http_request *r)
{
    (void)arg, (void)r;
}

static void ended(void *arg, struct http_request *r, bool completed)
{
    (void)arg, (void)r, (void)completed;
}

static int make_http(struct err *e)
{
    struct http_server_opts o = {.host = "127.0.0.1",
                                 .connections_max = 8,
                                 .network = made.account,
                                 .handler = {.begin = begin, .ready = ready, .ended = ended}};
    return http_server_create(&o, e, &made.http);
}

static void close_http(void)
{
    http_server_free(made.http);
}

static int make_runtime(struct err *e)
{
    struct models *m = &made.models;
    int r = models_find(&made.settings, m, e);
    if (r == 0)
        r = models_plan(m, e);
    if (r == 0)
        r = runtime_open_process(&made.settings, &m->process, &m->devices, runtime_workers(&made.settings),
                                 &made.runtime, e);
    device_choices_close(&m->devices);
    if (r == 0) {
        struct loaded_model_opts o = {.settings = &m->list[0],
                                      .ledger = made.runtime.ledger,
                                      .holders = made.runtime.holders,
                                      .device = made.runtime.devices[m->list[0].device]};
        r = loaded_model_load(&o, &made.loaded, e);
        if (r < 0)
            runtime_close(&made.runtime);
    }
    if (r < 0)
        models_done(m);
    return r;
}

static void close_runtime(void)
{
    loaded_model_close(&made.loaded, NULL, NULL);
    runtime_close(&made.runtime);
    models_done(&made.models);
}

/* ---- at every place ---- */

static void expect_nothing(struct account *a)
{
    assert_int_equal(account_numbers(a).reserved, 0);
    assert_int_equal(account_numbers(a).used, 0);
    assert_int_equal(account_numbers(a).children, 0);
}

/* How many attempts failed. */
static unsigned make_at_every_place(int (*make)(struct err *e), void (*undo)(void), bool lasts)
{
    unsigned failures = 0, n = 1;
    for (bool met = true; met; n++) {
        struct err e = {""};
        faults.count = 0;
        faults.lasts = lasts;
        faults.from = n;
        int r = make(&e);
        faults.from = 0;
        met = faults.count >= n;
        assert_true(r == 0 || (met && strlen(e.text) > 10));
        failures += r < 0;
        if (r == 0)
            undo();
        expect_nothing(made.account);
        expect_nothing(made.other);
        assert_true(n < 5000);
    }
    return failures;
}

static void expect_closed(int (*make)(struct err *e), void (*undo)(void), unsigned least)
{
    spare_jansson();
    made.account = test_account(ACCOUNT_NO_LIMIT);
    made.other = test_account(ACCOUNT_NO_LIMIT);
    assert_true(make_at_every_place(make, undo, false) >= least);
    assert_true(make_at_every_place(make, undo, true) >= least);
}

TEST(a_buffer_that_cannot_grow_keeps_its_text_and_its_charge)
{
    static const char more[1000] = {0};
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    struct charge charge = account_charge(a);
    struct buf b;
    buf_init(&b, 1 << 20, &charge);
    buf_puts(&b, "text");
    uint64_t used = account_numbers(a).used;
    faults.count = 0;
    faults.lasts = false;
    faults.from = 1;
    buf_put(&b, more, sizeof(more));
    faults.from = 0;
    assert_int_equal(b.error, -ENOMEM);
    assert_true(used > 0 && account_numbers(a).used == used);
    assert_true(slice_eq(buf_slice(&b), SLICE("text")));
    buf_clear(&b);
    buf_put(&b, more, sizeof(more));
    assert_true(b.error == 0 && b.len == sizeof(more));
    buf_done(&b);
    assert_int_equal(account_numbers(a).used, 0);
}

TEST(workers_that_cannot_be_made)
{
    expect_closed(make_workers, close_workers, 5);
}

TEST(a_model_that_cannot_be_loaded)
{
    test_model(TINY("qwen3_5"));
    expect_closed(make_model, close_model, 15);
}

TEST(a_tokenizer_and_a_template_that_cannot_be_loaded)
{
    expect_closed(make_text, close_text, 5);
}

TEST(an_engine_that_cannot_be_made)
{
    expect_closed(make_engine, close_engine, 15);
}

TEST(an_api_that_cannot_be_made)
{
    expect_closed(make_api, close_api, 10);
}

TEST(a_server_that_cannot_be_made)
{
    expect_closed(make_http, close_http, 4);
}

TEST(a_runtime_that_cannot_be_made)
{
    /* Small pools: their tables are made at every one of the places. */
    char *argv[] = {(char[]){"serve"},
                    (char[]){TINY("qwen3_5")},
                    (char[]){"--host-cache"},
                    (char[]){"1M"},
                    (char[]){"--max-model-len"},
                    (char[]){"512"},
                    (char[]){"--memory-limit"},
                    (char[]){"1G"},
                    NULL};
    struct err e = {""};
    assert_int_equal(options_parse(COMMAND_SERVE, COUNT_OF(argv) - 1, argv, &made.settings, &e), 0);
    expect_closed(make_runtime, close_runtime, 40);
}

/* A request's two halves, on an engine that runs. */
static struct fixture running;

static int make_request(struct err *e)
{
    struct job_spec s = greedy((uint32_t[]){1, 2, 3}, 3, 4);
    struct charge charge = account_charge(running.text);
    struct client *c = __real_calloc(1, sizeof(*c));
    struct stream_opts o = {.id = request_id_new(), .wake = running.mailbox, .user = c, .charge = &charge};
    int r = stream_create(&o, &c->stream);
    if (r == 0)
        return client_submit(&running, c, &s, NULL, e);
    free(c);
    return err_set(e, r, "no memory for a stream");
}

static void finish_request(void)
{
    wait_all(&running);
    assert_int_equal(running.clients[0]->finish.reason, FINISH_LENGTH);
    free_clients(&running);
}

TEST(a_request_that_cannot_be_made)
{
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    o.prefix_cache_bytes = 1 << 20;
    o.max_num_seqs = o.max_queue = 1; /* a place that is not given back is missed */
    test_engine_start(&running, TINY("qwen3_5"), &o);
    expect_closed(make_request, finish_request, 3);
    assert_int_equal(account_numbers(account_find(running.account, "requests")).reserved, 0);
    test_engine_close(&running);
}

TEST_MAIN()
