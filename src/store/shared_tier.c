/* shared_tier.c - making, serving, closing.
 *
 * Both threads read, because requests wait for that. One thread at a time writes. A call of a network file
 * system may never return. Meanwhile the tier rests, and a close abandons the thread. The memory that it may
 * touch stays mapped: one arena and one buffer. */
#include "store/shared_tier.h"

#include "store/shared_address.h"
#include "store/shared_backend.h"
#include "store/shared_dir.h"
#include "store/shared_redis.h"
#include "store/shared_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>

#define SLOW_NS  (2 * NS_PER_S)
#define CLOSE_NS (2 * NS_PER_S)

static size_t arena_bytes(void)
{
    return ROUND_UP(sizeof(struct shared_tier) + shared_known_bytes() +
                        SHARED_OPS_MAX * sizeof(struct shared_op) +
                        SHARED_WISHES_MAX * sizeof(struct shared_wish) + sizeof(struct shared_address) +
                        SHARED_THREADS * (SHARED_FILE_BYTES + SHARED_VALUE_BYTES + 128) +
                        shared_dir_arena_bytes() + shared_redis_arena_bytes() + 4096,
                    (size_t)65536);
}

/* libhiredis allocates from the general heap. Its bytes are charged here as a whole. */
static size_t reply_bytes(const char *address)
{
    return strncmp(address, "redis", 5) == 0 ? SHARED_THREADS * SHARED_REDIS_REPLY_BYTES : 0;
}

uint64_t shared_tier_bytes(const char *address, size_t staged_bytes)
{
    return arena_bytes() + staging_bytes(staged_bytes) + reply_bytes(address);
}

/* ---- the threads ---- */

static bool is_due(uint64_t at_ns)
{
    return clock_now_ns() >= at_ns;
}

/* Nothing waits for a store that rests. */
static uint64_t next_ns(const struct shared_tier *t)
{
    if (!t->ready)
        return t->readying ? UINT64_MAX : t->reading_rest.until_ns;
    return t->writing || !t->backend.tend ? UINT64_MAX : t->tend_ns;
}

static void wait_for_work(struct shared_tier *t)
{
    uint64_t at_ns = next_ns(t), now_ns = clock_now_ns();
    if (at_ns == UINT64_MAX) {
        pthread_cond_wait(&t->work, &t->lock);
        return;
    }
    struct timespec until = clock_deadline(at_ns - MIN_OF(now_ns, at_ns));
    pthread_cond_timedwait(&t->work, &t->lock, &until);
}

static void *serve(void *arg)
{
    struct shared_worker *w = arg;
    struct shared_tier *t = w->tier;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        bool may_write = t->ready && !t->writing;
        if (!t->ready && !t->readying && is_due(t->reading_rest.until_ns))
            shared_work_ready(t, w);
        else if (t->ready && !list_empty(&t->reads))
            shared_work_read(t, w);
        else if (may_write && t->backend.tend && is_due(t->tend_ns))
            shared_work_tend(t, w);
        else if (may_write && !list_empty(&t->writes))
            shared_work_write(t, w);
        else
            wait_for_work(t);
    }
    w->ended = true;
    pthread_cond_broadcast(&t->done);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- opening ---- */

static void init_lists(struct shared_tier *t)
{
    list_init(&t->free);
    list_init(&t->reads);
    list_init(&t->writes);
    for (uint32_t i = 0; i < SHARED_OPS_MAX; i++) {
        list_init(&t->ops[i].link);
        list_push_back(&t->free, &t->ops[i].link);
    }
}

static int create(const struct shared_tier_opts *opts, struct shared_tier **ret)
{
    struct charge memory = account_charge(opts->memory);
    struct arena *a = NULL;
    int r = arena_create(&(struct arena_opts){.bytes_max = arena_bytes(), .charge = &memory}, &a);
    struct shared_tier *t = r == 0 ? ARENA_NEW(a, struct shared_tier) : NULL;
    if (!t) {
        arena_free(a);
        return r < 0 ? r : -ENOMEM;
    }
    t->arena = a;
    t->memory = opts->memory;
    t->limit_bytes = opts->limit_bytes;
    t->slow_ns = opts->slow_ns ? opts->slow_ns : SLOW_NS;
    t->close_ns = opts->close_ns ? opts->close_ns : CLOSE_NS;
    t->read_byte_ns = 2;
    pthread_mutex_init(&t->lock, NULL);
    clock_cond_init(&t->work);
    clock_cond_init(&t->done);
    *ret = t;
    t->ops = ARENA_ARRAY(a, struct shared_op, SHARED_OPS_MAX);
    t->wishes = ARENA_ARRAY(a, struct shared_wish, SHARED_WISHES_MAX);
    if (!t->ops || !t->wishes)
        return -ENOMEM;
    init_lists(t);
    for (uint32_t i = 0; i < SHARED_THREADS; i++) {
        struct shared_worker *w = &t->workers[i];
        w->tier = t;
        w->number = i;
        w->file = arena_alloc(a, SHARED_FILE_BYTES);
        w->value = arena_alloc(a, SHARED_VALUE_BYTES);
        if (!w->file || !w->value)
            return -ENOMEM;
    }
    r = shared_known_init(&t->known, a);
    size_t replies = reply_bytes(opts->address);
    if (r == 0)
        r = charge_take(&memory, replies);
    t->reply_bytes = r == 0 ? replies : 0;
    return r == 0 ? staging_init(&t->staging, opts->staging_bytes, &memory) : r;
}

static int open_backend(struct shared_tier *t, const struct shared_tier_opts *opts, struct err *e)
{
    int r = shared_address_secret(opts->secret_file, &t->secret, e);
    if (r < 0)
        return r;
    if (opts->backend) {
        t->backend = *opts->backend;
        snprintf(t->name, sizeof(t->name), "test");
        return 0;
    }
    struct shared_address *at = ARENA_NEW(t->arena, struct shared_address);
    r = at ? shared_address_parse(opts->address, at, e) : -ENOMEM;
    if (r < 0)
        return r;
    if (at->host[0]) {
        snprintf(t->name, sizeof(t->name), "redis://%.90s:%u/%u", at->host, at->port, at->database);
        if (!t->secret.given && !shared_address_is_here(at))
            return err_set(e, -EACCES,
                           "--shared-cache %s: a server on another machine needs --shared-cache-secret-file: "
                           "others could read prompts there, or change answers",
                           t->name);
        r = shared_redis_create(t->arena, at, &t->backend, e);
        explicit_bzero(at->password, sizeof(at->password)); /* the backend has a copy, and wipes it */
        return r;
    }
    snprintf(t->name, sizeof(t->name), "%.120s", at->path);
    struct shared_dir_opts dir = {
        .path = at->path, .limit_bytes = opts->limit_bytes, .own = !t->secret.given};
    return shared_dir_create(t->arena, &dir, &t->backend, e);
}

static int start_threads(struct shared_tier *t, const struct shared_tier_opts *opts)
{
    struct charge threads = account_charge(opts->threads);
    int r = 0;
    for (uint32_t i = 0; i < SHARED_THREADS && r == 0; i++)
        r = thread_stack_init(&t->workers[i].stack, SHARED_STACK_BYTES, &threads);
    for (uint32_t i = 0; i < SHARED_THREADS && r == 0; i++) {
        struct shared_worker *w = &t->workers[i];
        r = thread_stack_start(&w->stack, serve, w, &w->thread);
        w->started = r == 0;
        if (r == 0)
            pthread_setname_np(w->thread, "shared-cache");
    }
    return r;
}

int shared_tier_open(const struct shared_tier_opts *opts, struct shared_tier **ret, struct err *e)
{
    struct shared_tier *t = NULL;
    struct err why = {0};
    if (opts->limit_bytes < SHARED_SIZE_LEAST)
        return err_set(e, -EINVAL, "--shared-cache-size: at least %llu bytes", (ull)SHARED_SIZE_LEAST);
    int r = create(opts, &t);
    if (r == 0)
        r = open_backend(t, opts, &why);
    if (r == 0)
        r = start_threads(t, opts);
    if (r < 0) {
        shared_tier_close(t);
        return why.text[0]
                   ? err_set(e, r, "%s", why.text)
                   : err_set(e, r, "the shared tier's buffer of %zu bytes and its threads could not be made",
                             opts->staging_bytes);
    }
    LOG_INFO("shared_cache", "store=\"%s\" encrypted=%s", t->name, t->secret.given ? "true" : "false");
    *ret = t;
    return 0;
}

/* ---- closing ---- */

static bool has_writes(const struct shared_tier *t)
{
    return t->ready && (t->writing || t->write_count > 0);
}

/* Until nothing is to be written, or nothing can be, or it has taken too long. */
static void drain(struct shared_tier *t)
{
    struct timespec until = clock_deadline(t->close_ns);
    int r = 0;
    pthread_mutex_lock(&t->lock);
    t->closing = true;
    for (uint32_t i = 0; i < STORE_CLIENTS_MAX; i++)
        ASSERT(!t->clients[i].open);
    while (r == 0 && has_writes(t))
        r = pthread_cond_timedwait(&t->done, &t->lock, &until);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
}

/* False: one of them hangs. */
static bool join(struct shared_tier *t)
{
    struct timespec until = clock_deadline(t->close_ns);
    bool all = true;
    for (uint32_t i = 0; i < SHARED_THREADS; i++) {
        struct shared_worker *w = &t->workers[i];
        int r = 0;
        pthread_mutex_lock(&t->lock);
        while (w->started && !w->ended && r == 0)
            r = pthread_cond_timedwait(&t->done, &t->lock, &until);
        bool ended = !w->started || w->ended;
        pthread_mutex_unlock(&t->lock);
        if (w->started && ended)
            pthread_join(w->thread, NULL);
        else if (w->started)
            pthread_detach(w->thread);
        all = all && ended;
    }
    return all;
}

/* Its memory leaves all accounts but stays mapped: the thread may wake up in it later. */
static void leave_behind(struct shared_tier *t)
{
    struct charge memory = account_charge(t->memory);
    size_t staged = staging_bytes((size_t)t->staging.blocks * STORE_BLOCK_BYTES);
    LOG_ERROR("shared_cache_thread_hangs", "store=\"%s\" left_behind_bytes=%zu", t->name,
              arena_committed_bytes(t->arena) + staged);
    charge_give(&t->staging.charge, staged);
    charge_give(&memory, t->reply_bytes);
    charge_give(&memory, arena_committed_bytes(t->arena));
    for (uint32_t i = 0; i < SHARED_THREADS; i++)
        charge_give(&t->workers[i].stack.charge, t->workers[i].stack.bytes);
}

void shared_tier_close(struct shared_tier *t)
{
    if (!t)
        return;
    if (t->workers[0].started)
        drain(t);
    if (!join(t)) {
        leave_behind(t);
        return;
    }
    if (t->backend.close)
        t->backend.close(t->backend.arg);
    for (uint32_t i = 0; i < SHARED_THREADS; i++)
        thread_stack_done(&t->workers[i].stack);
    staging_done(&t->staging);
    struct charge memory = account_charge(t->memory);
    charge_give(&memory, t->reply_bytes);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    explicit_bzero(&t->secret, sizeof(t->secret));
    arena_free(t->arena);
}

/* ---- asked from outside ---- */

bool shared_tier_is_quiet(struct shared_tier *t)
{
    pthread_mutex_lock(&t->lock);
    bool quiet = !has_writes(t);
    pthread_mutex_unlock(&t->lock);
    return quiet;
}

void shared_tier_numbers(struct shared_tier *t, struct shared_numbers *ret)
{
    pthread_mutex_lock(&t->lock);
    bool off = !shared_is_on(t);
    *ret = t->numbers;
    snprintf(ret->name, sizeof(ret->name), "%s", t->name);
    ret->off = off;
    ret->limit_bytes = t->limit_bytes;
    ret->staging_bytes = (uint64_t)t->staging.blocks * STORE_BLOCK_BYTES;
    ret->staging_used_bytes = (uint64_t)t->staging.used * STORE_BLOCK_BYTES;
    ret->queued_reads = t->read_count;
    ret->queued_writes = t->write_count + t->writing;
    pthread_mutex_unlock(&t->lock);
    ret->bytes = t->backend.bytes ? t->backend.bytes(t->backend.arg) : 0;
}
