/* test_registry.h - a registry of three small models, and what a test makes of its loads. */
#ifndef PLATEAU_TESTS_TEST_REGISTRY_H
#define PLATEAU_TESTS_TEST_REGISTRY_H

#include "test_rng.h"
#include "test_files.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/clock.h"
#include "compute/device.h"
#include "memory/footprint.h"
#include "memory/plan.h"
#include "registry/model_plan.h"
#include "registry/model_settings.h"
#include "registry/registry.h"
#include "weights/model_files.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#define GOLDEN(name) PLATEAU_SOURCE_DIR "/tests/golden/data/" name
#define MODELS       3
#define WAIT_NS      (60 * NS_PER_S)
#define MIB          ((uint64_t)1 << 20)

static struct device *device;

/* A registry of small models, and what a test makes of its loads. */
static struct scene {
    struct registry *registry;
    struct account *threads;
    uint64_t own_stack_bytes; /* the registry's thread's */
    struct model_settings models[MODELS];
    uint32_t models_max; /* 0: no more than those */
    /* Loads stop at their first progress until the gate opens. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool gate_closed;
    uint32_t at_gate;
    const char *failing_step;
    uint32_t steps_asked;
} scene;

static inline int plan(void *arg, struct model_settings *s, struct model_files **ret, struct err *e)
{
    struct model_plan p = {.name = s->id, .queue = 4, .workers = 2};
    struct plan_process process = {.ceiling_bytes = (uint64_t)1 << 30};
    struct plan_wish wish = {.max_model_len = 256};
    struct plan_refusal why;
    (void)arg;
    struct model_files *files = NULL;
    int r = model_files_open(s->dir, &files, e);
    if (r == 0)
        r = model_plan_probe(&p, files, e);
    if (r == 0)
        *ret = files;
    else
        model_files_close(files);
    if (r == 0)
        r = plan_make(&process, model_plan_numbers, &p, 2, &wish, &s->plan, &why);
    if (r < 0)
        return r;
    s->shape = p.shape;
    s->planned = true;
    return 0;
}

static inline void on_progress(void *arg, uint32_t index, uint64_t done, uint64_t total)
{
    (void)arg, (void)index, (void)done, (void)total;
    pthread_mutex_lock(&scene.lock);
    scene.at_gate++;
    pthread_cond_broadcast(&scene.changed);
    while (scene.gate_closed)
        pthread_cond_wait(&scene.changed, &scene.lock);
    scene.at_gate--;
    pthread_mutex_unlock(&scene.lock);
}

static inline void set_gate(bool closed)
{
    pthread_mutex_lock(&scene.lock);
    scene.gate_closed = closed;
    pthread_cond_broadcast(&scene.changed);
    pthread_mutex_unlock(&scene.lock);
}

static inline void wait_at_gate(uint32_t count)
{
    pthread_mutex_lock(&scene.lock);
    while (scene.at_gate < count)
        pthread_cond_wait(&scene.changed, &scene.lock);
    pthread_mutex_unlock(&scene.lock);
}

static inline void on_changed(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&scene.lock);
    pthread_cond_broadcast(&scene.changed);
    pthread_mutex_unlock(&scene.lock);
}

static inline int on_step(void *arg, const char *step)
{
    (void)arg;
    pthread_mutex_lock(&scene.lock);
    bool fails = scene.failing_step && strcmp(scene.failing_step, step) == 0;
    scene.steps_asked += fails;
    pthread_mutex_unlock(&scene.lock);
    return fails ? -EIO : 0;
}

static inline struct model_settings a_model(const char *id, const char *dir)
{
    struct model_settings s = {
        .shares = true,
        .tokens_max = model_plan_step_tokens(2, 0),
        .engine = model_plan_engine_opts(2, 4, 0, NULL),
        .sampling = {.temperature = NAN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN, .top_k = -1}};
    snprintf(s.id, sizeof(s.id), "%s", id);
    snprintf(s.dir, sizeof(s.dir), "%s", dir);
    s.engine.step_ns = 50 * NS_PER_MS;
    s.engine.step_alone_ns = 100 * NS_PER_MS;
    return s;
}

static inline void close_device(void)
{
    device_close(device);
}

/* Models a, b, c, none loaded; a test may change them before scene_open(). */
static inline void scene_set(void)
{
    if (!device) {
        assert_int_equal(device_open_cpu(2, NULL, &device), 0);
        atexit(close_device);
    }
    scene = (struct scene){.models = {a_model("a", GOLDEN("qwen3")), a_model("b", GOLDEN("llama")),
                                      a_model("c", GOLDEN("qwen3_5"))}};
    pthread_mutex_init(&scene.lock, NULL);
    pthread_cond_init(&scene.changed, NULL);
    scene.threads = test_account(ACCOUNT_NO_LIMIT);
}

static inline int scene_try(struct err *e)
{
    static const struct registry_faults faults = {on_step, NULL};
    struct registry_opts o = {.ledger = test_ledger(),
                              .threads = scene.threads,
                              .devices = {device},
                              .models = scene.models,
                              .model_count = MODELS,
                              .models_max = scene.models_max,
                              .plan = plan,
                              .drain_ns = 20 * NS_PER_MS,
                              .changed = on_changed,
                              .progress = on_progress,
                              .faults = &faults};
    int r = registry_create(&o, &scene.registry, e);
    return r == 0 ? registry_start(scene.registry, e) : r;
}

static inline void scene_open(void)
{
    struct err e = {""};
    if (scene_try(&e) < 0)
        fail_msg("%s", e.text);
    scene.own_stack_bytes = 2 * registry_stack_bytes(1) - registry_stack_bytes(2);
}

static inline void scene_close(void)
{
    registry_close(scene.registry);
    pthread_cond_destroy(&scene.changed);
    pthread_mutex_destroy(&scene.lock);
}

static inline struct registry_info info(uint32_t index)
{
    struct registry_info i;
    registry_info(scene.registry, index, &i);
    return i;
}

static inline void wait_state(uint32_t index, enum model_state state)
{
    uint64_t end_ns = clock_now_ns() + WAIT_NS;
    while (info(index).state != state) {
        assert_true(clock_now_ns() < end_ns);
        usleep(1000);
    }
}

/* Waits for the model's load; the lease is the caller's. */
static inline int wait_for(uint32_t index, struct model_lease *ret, struct registry_failure *why)
{
    int r;
    while ((r = registry_poll(scene.registry, index, ret, why)) == -EAGAIN)
        usleep(500);
    registry_unwant(scene.registry, index);
    return r;
}

static inline int use(uint32_t index, bool operator, struct model_lease * ret, struct registry_failure *why)
{
    int r = registry_lease(scene.registry, index, ret);
    if (r == 0)
        return 0;
    r = registry_want(scene.registry, index, operator, why);
    return r == 0 ? wait_for(index, ret, why) : r;
}

static inline void load(uint32_t index)
{
    struct registry_failure why = {0};
    struct model_lease l;
    if (use(index, false, &l, &why) < 0)
        fail_msg("%s", why.e.text);
    registry_release(&l);
}

static inline void unload(uint32_t index)
{
    struct registry_returned returned;
    struct err e = {""};
    struct registry_unloading u;
    struct footprint f;
    footprint_read(&f);
    assert_int_equal(registry_unload(scene.registry, index, false, &u, &e), 0);
    wait_state(index, MODEL_UNLOADED);
    assert_true(registry_unloaded(scene.registry, index, u.ticket, &returned));
    assert_in_range(returned.bytes, 0, f.rss_anon_bytes + f.rss_shmem_bytes + f.swap_bytes);
    assert_false(registry_unloaded(scene.registry, index, u.ticket + 1, &returned));
}

/* Once the threads of moves are joined. */
static inline uint64_t held(void)
{
    uint64_t end_ns = clock_now_ns() + WAIT_NS;
    while (account_numbers(scene.threads).reserved != scene.own_stack_bytes) {
        assert_true(clock_now_ns() < end_ns);
        usleep(500);
    }
    return account_numbers(ledger_root(test_ledger())).reserved;
}

static inline uint32_t entries_of(const char *dir)
{
    uint32_t count = 0;
    DIR *d = opendir(dir);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

/* A thread's end is seen here a moment after it was joined. */
static inline void wait_threads(uint32_t count)
{
    uint64_t end_ns = clock_now_ns() + WAIT_NS;
    while (entries_of("/proc/self/task") != count) {
        assert_true(clock_now_ns() < end_ns);
        usleep(1000);
    }
}

#endif
