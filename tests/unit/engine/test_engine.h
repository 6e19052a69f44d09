/* test_engine.h - models loaded once, engines with few options, and a client that collects what streams
 * bring. */
#ifndef PLATEAU_TESTS_TEST_ENGINE_H
#define PLATEAU_TESTS_TEST_ENGINE_H

#include "model_path.h"
#include "test_device.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/threads/mailbox.h"
#include "engine/engine.h"
#include "engine/engine_opts.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "model/model.h"
#include "reclaim/holders.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <string.h>

#define TINY(name) PLATEAU_SOURCE_DIR "/tests/golden/data/" name
#define CANARY     PLATEAU_SOURCE_DIR "/models/canary"

#define TEST_TOKENS_MAX 128
#define TEST_SEQS_MAX   8
/* On the fake device quantised models compute in int16, so that tests of engines run in both modes. */
static inline enum compute_mode test_compute(void)
{
#ifdef TEST_SIMT
    return COMPUTE_BF16;
#endif
    return test_device_is_fake() ? COMPUTE_INT16 : COMPUTE_F32;
}

#ifndef TEST_DRAFTS_MAX
#define TEST_DRAFTS_MAX 0
#endif
#define TEST_WAIT_NS (120 * NS_PER_S)

/* ---- models: uncounted, loaded once, freed at the end of the program ---- */

struct test_model {
    char dir[256];
    struct model *model;
    struct tokenizer *tokenizer; /* NULL: the directory has none */
    struct arena *arena;
    bool used; /* an engine has it */
};
static struct test_model test_models[24];
static struct device *test_device;

static inline void test_models_free(void)
{
    for (size_t i = 0; i < COUNT_OF(test_models); i++) {
        model_free(test_models[i].model);
        arena_free(test_models[i].arena);
    }
    device_close(test_device);
}

static inline struct device *test_device_get(void)
{
    if (!test_device) {
        assert_int_equal(test_device_open(2, &test_device), 0);
        atexit(test_models_free);
    }
    return test_device;
}

static inline const struct domain *test_engine_domain(void)
{
    return test_device_get()->domain;
}

/* A list of holders that knows the device's memory; to be freed. */
static inline struct holders *test_holders(uint64_t cache_bytes_max)
{
    struct holders_opts opts = {test_ledger(), cache_bytes_max};
    struct holders *hs = NULL;
    assert_int_equal(holders_create(&opts, &hs), 0);
    if (test_device_is_fake()) {
        (void)test_root();
        holders_add_domain(hs, test_engine_domain(), cache_bytes_max);
    }
    return hs;
}

__attribute__((constructor)) static void test_engine_accounts(void)
{
    test_account_domain = test_engine_domain;
}

static inline void test_model_load(struct test_model *m, const char *dir)
{
    struct err e = {""};
    static char eagle[300]; /* used while the model is loaded */
    snprintf(eagle, sizeof(eagle), "%s/eagle", dir);
    const bool has_eagle = TEST_DRAFTS_MAX > 0 && strstr(dir, "_eagle");
    struct model_opts opts = {
        .tokens_max = TEST_TOKENS_MAX,
        .seqs_max = TEST_SEQS_MAX,
        .logits_max = engine_logits_max(TEST_SEQS_MAX, TEST_DRAFTS_MAX),
        .parts = {.compute = test_compute(),
                  .vision = true,
                  .mtp =
                      has_eagle || (TEST_DRAFTS_MAX > 0 && (strcmp(dir, CANARY) == 0 || strstr(dir, "_mtp"))),
                  .eagle = has_eagle ? eagle : NULL,
                  .drafts_max = TEST_DRAFTS_MAX},
        .device = test_device_get()};
    snprintf(m->dir, sizeof(m->dir), "%s", dir);
    if (model_load_at(dir, &opts, &m->model, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 256 << 20}, &m->arena), 0);
    int r = tokenizer_load_at(m->arena, dir, &m->tokenizer, &e);
    if (r < 0 && r != -ENOENT)
        fail_msg("%s", e.text);
}

/* `unused`: one that no engine has; a model has one engine at a time. */
static inline struct test_model *test_model_find(const char *dir, bool unused)
{
    size_t i = 0;
    while (test_models[i].model && (strcmp(test_models[i].dir, dir) != 0 || (unused && test_models[i].used)))
        i++;
    assert_true(i < COUNT_OF(test_models));
    if (!test_models[i].model)
        test_model_load(&test_models[i], dir);
    return &test_models[i];
}

static inline const struct test_model *test_model(const char *dir)
{
    return test_model_find(dir, false);
}

/* The bundled model's, for the tiny ones, which have none: their 512 ids are tokens of it. */
static inline const struct tokenizer *test_tokenizer(void)
{
    static struct test_model only;
    struct err e = {""};
    if (!only.tokenizer) {
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 256 << 20}, &only.arena), 0);
        if (tokenizer_load_at(only.arena, CANARY, &only.tokenizer, &e) < 0)
            fail_msg("%s", e.text);
    }
    return only.tokenizer;
}

/* ---- clients ---- */

#define CLIENT_TOKENS_MAX 4096

struct client {
    struct stream *stream; /* NULL: never opened, or released after its end */
    bool deaf;             /* does not take */
    bool over;
    uint32_t ids[CLIENT_TOKENS_MAX];
    float logprobs[CLIENT_TOKENS_MAX];
    struct sampler_alternative top[CLIENT_TOKENS_MAX]; /* the best one */
    uint32_t count;
    struct stream_finish finish;
};

struct fixture {
    struct test_model *m;
    struct engine *engine;
    struct account *account, *text;
    uint64_t reserved_before; /* bytes of `account` before: its model may be below it, too */
    struct mailbox *mailbox;
    struct client *clients[512];
    uint32_t client_count;
};

static inline struct engine_opts test_engine_opts(const char *dir)
{
    const struct test_model *m = test_model(dir);
    const struct model_shape *shape = model_shape(m->model);
    return (struct engine_opts){
        .name = "test",
        .model = m->model,
        .tokenizer = m->tokenizer,
        .device = test_device,
        .max_num_seqs = TEST_SEQS_MAX,
        .max_model_len = 2048,
        .max_queue = 400,
        .tokens_max = TEST_TOKENS_MAX,
        .kv_bytes_max = 200 * shape->page_bytes,
        .slow_client_ns = 60 * NS_PER_S,
        .step_ns = 50 * NS_PER_MS,
        .step_alone_ns = 100 * NS_PER_MS,
    };
}

static inline void test_engine_open(struct fixture *f, const char *dir, const struct engine_opts *opts)
{
    struct err e = {""};
    struct engine_opts o = *opts;
    bool own = o.model != test_model(dir)->model;
    *f = (struct fixture){.m = test_model_find(dir, true)};
    f->m->used = true;
    if (!own)
        o.model = f->m->model;
    f->account = o.parent = opts->parent ? opts->parent : test_account(ACCOUNT_NO_LIMIT);
    f->reserved_before = account_numbers(f->account).reserved;
    f->text = test_account(ACCOUNT_NO_LIMIT);
    struct mailbox_opts mailbox = {.messages_max = COUNT_OF(f->clients), .message_bytes = sizeof(void *)};
    assert_int_equal(mailbox_create(&mailbox, &f->mailbox), 0);
    if (engine_create(&o, &f->engine, &e) < 0)
        fail_msg("%s", e.text);
}

static inline void test_engine_start(struct fixture *f, const char *dir, const struct engine_opts *opts)
{
    test_engine_open(f, dir, opts);
    assert_int_equal(engine_start(f->engine), 0);
}

static inline struct job_spec greedy(const uint32_t *prompt, uint32_t count, uint32_t max_tokens)
{
    struct job_spec s = {.prompt = prompt, .prompt_count = count, .max_tokens = max_tokens};
    sampler_params_default(&s.sampling);
    s.sampling.temperature = 0;
    return s;
}

static inline struct client *client_create(struct fixture *f, uint32_t top_max)
{
    struct charge charge = account_charge(f->text);
    struct client *c = calloc(1, sizeof(*c));
    assert_true(c && f->client_count < COUNT_OF(f->clients));
    struct stream_opts opts = {
        .id = request_id_new(), .top_max = top_max, .wake = f->mailbox, .user = c, .charge = &charge};
    assert_int_equal(stream_create(&opts, &c->stream), 0);
    return c;
}

/* The client is the fixture's from here on, or gone. */
static inline int client_submit(struct fixture *f, struct client *c, const struct job_spec *spec,
                                uint32_t *retry_after_s, struct err *e)
{
    int r = engine_submit(f->engine, spec, c->stream, retry_after_s, e);
    if (r < 0) {
        stream_release(c->stream);
        stream_release(c->stream);
        free(c);
        return r;
    }
    f->clients[f->client_count++] = c;
    return 0;
}

static inline int try_submit(struct fixture *f, const struct job_spec *spec, struct client **ret,
                             uint32_t *retry_after_s, struct err *e)
{
    struct client *c = client_create(f, spec->sampling.top_logprobs);
    int r = client_submit(f, c, spec, retry_after_s, e);
    if (r == 0)
        *ret = c;
    return r;
}

static inline struct client *submit(struct fixture *f, const struct job_spec *spec)
{
    struct client *c = NULL;
    struct err e = {""};
    if (try_submit(f, spec, &c, NULL, &e) < 0)
        fail_msg("%s", e.text);
    return c;
}

static inline void drain(struct client *c)
{
    struct stream_token t;
    while (stream_take(c->stream, &t)) {
        assert_false(c->over);
        assert_true(c->count < CLIENT_TOKENS_MAX);
        c->ids[c->count] = t.id;
        c->logprobs[c->count] = t.logprob;
        if (t.top_count)
            c->top[c->count] = t.top[0];
        c->count++;
    }
    if (!stream_finished(c->stream, &c->finish))
        return;
    assert_false(c->over);
    c->over = true;
    stream_release(c->stream);
    c->stream = NULL;
}

/* Takes one message. False: none came in `ns`. */
static inline bool listen_once(struct fixture *f, uint64_t ns)
{
    struct stream *s = NULL;
    if (!mailbox_wait(f->mailbox, &s, ns))
        return false;
    struct client *c = stream_user(s);
    assert_ptr_equal(c->stream, s);
    stream_wake_clear(s);
    if (!c->deaf)
        drain(c);
    return true;
}

/* A client that did not take begins to. */
static inline void undeafen(struct client *c)
{
    c->deaf = false;
    if (c->stream)
        drain(c);
}

static inline void wait_over(struct fixture *f, struct client *c)
{
    while (!c->over)
        assert_true(listen_once(f, TEST_WAIT_NS));
}

static inline void wait_all(struct fixture *f)
{
    for (uint32_t i = 0; i < f->client_count; i++)
        wait_over(f, f->clients[i]);
}

static inline void wait_tokens(struct fixture *f, struct client *c, uint32_t count)
{
    while (!c->over && c->count < count)
        assert_true(listen_once(f, TEST_WAIT_NS));
}

static inline void free_clients(struct fixture *f)
{
    for (uint32_t i = 0; i < f->client_count; i++) {
        assert_true(f->clients[i]->over);
        free(f->clients[i]);
    }
    f->client_count = 0;
}

/* Everything there is must end now, by itself or by the shutdown. */
static inline void test_engine_close(struct fixture *f)
{
    engine_close(f->engine);
    f->engine = NULL;
    f->m->used = false;
    for (uint32_t i = 0; i < f->client_count; i++)
        f->clients[i]->deaf = false;
    wait_all(f);
    assert_false(listen_once(f, 0));
    free_clients(f);
    mailbox_free(f->mailbox);
    assert_int_equal(account_numbers(f->text).used, 0);
    assert_int_equal(account_numbers(f->account).reserved, f->reserved_before);
}

static inline void expect_tokens(const struct client *c, const uint32_t *ids, uint32_t count)
{
    assert_int_equal(c->count, count);
    assert_memory_equal(c->ids, ids, count * sizeof(ids[0]));
    assert_int_equal(c->finish.completion_tokens, count);
}

static inline void expect_same(const struct client *a, const struct client *b)
{
    assert_int_equal(a->finish.reason, b->finish.reason);
    expect_tokens(a, b->ids, b->count);
}

/* Waits until `holds(f, arg)`; time out fails the test. */
static inline void wait_until(struct fixture *f, bool (*holds)(struct fixture *f, void *arg), void *arg)
{
    uint64_t until = clock_now_ns() + TEST_WAIT_NS;
    while (!holds(f, arg)) {
        assert_true(clock_now_ns() < until);
        listen_once(f, NS_PER_MS);
    }
}

/* ---- a gate in front of every step ---- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut, waiting; /* waiting: a step is stopped at it */
    uint32_t passes;    /* this many steps may pass though it is shut */
    int result;         /* result of the next step */
};

static inline int gate_step(void *arg)
{
    struct gate *g = arg;
    pthread_mutex_lock(&g->lock);
    while (g->shut && g->passes == 0) {
        g->waiting = true;
        pthread_cond_broadcast(&g->changed);
        pthread_cond_wait(&g->changed, &g->lock);
    }
    g->passes -= g->passes > 0;
    g->waiting = false;
    int r = g->result;
    g->result = 0;
    pthread_mutex_unlock(&g->lock);
    return r;
}

static inline void gate_set(struct gate *g, bool shut, int result)
{
    pthread_mutex_lock(&g->lock);
    g->shut = shut;
    g->passes = 0;
    g->result = result;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Waits until a step is stopped at it. */
static inline void gate_wait(struct gate *g)
{
    struct timespec until;
    int r = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += TEST_WAIT_NS / NS_PER_S;
    pthread_mutex_lock(&g->lock);
    while (!g->waiting && r == 0)
        r = pthread_cond_timedwait(&g->changed, &g->lock, &until);
    pthread_mutex_unlock(&g->lock);
    assert_int_equal(r, 0);
}

/* Releases the step stopped there, and waits for the next. */
static inline void gate_pass(struct gate *g)
{
    gate_wait(g);
    pthread_mutex_lock(&g->lock);
    g->passes = 1;
    g->waiting = false;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    gate_wait(g);
}

/* ---- golden answers ---- */

static inline json_t *golden_load(const char *name)
{
    char path[512];
    json_error_t e;
    snprintf(path, sizeof(path), TINY("%s") "/golden.json", name);
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &e);
    assert_non_null(j);
    return j;
}

static inline uint32_t golden_ids(const json_t *list, uint32_t *ret, uint32_t max)
{
    uint32_t count = (uint32_t)json_array_size(list);
    assert_true(count > 0 && count <= max);
    for (uint32_t i = 0; i < count; i++)
        ret[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return count;
}

#endif
