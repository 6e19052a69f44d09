/* workers.c - a word with the number of tiles left, so a run ends without the arrival of each thread.
 *
 * A worker claims by taking one off, and has a tile if any was left. A worker that slept through a run takes
 * one off the next run's, or off nothing. So run() waits for tiles, never for threads, and a step stays short
 * when another process occupies one of the cores. The function, its argument and the number of tiles are
 * written before the word is published and change only when no tile is left. So a worker that has a tile
 * reads its own run's.
 *
 * Waiting is the same on both sides: poll for at most 20 us, announce a sleeper, read once more, sleep on the
 * futex. */
#include "kernel/workers.h"

#include "kernel/cpus.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/threads/thread_stack.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORKERS_MAX     256
#define WORKERS_SPIN_NS (20 * NS_PER_US)
#define WORKERS_BUSY_NS (20 * NS_PER_MS) /* a stream's engine does other things between two turns */

/* Both words are futexes. */
struct gate {
    _Atomic uint32_t value, sleepers;
};

struct worker {
    struct workers *pool;
    uint32_t index;
    pthread_t thread;
    struct thread_stack stack;
};

struct workers {
    /* Set by workers_create, then constant. */
    uint32_t count;
    struct account *stacks;
    /* Creating and freeing thread only. */
    uint32_t started; /* threads started of workers[], from index 1 */
    /* The run: written by the caller inside its turn. */
    _Atomic(workers_fn *) fn;
    _Atomic(void *) arg;
    _Atomic uint32_t tiles;
    atomic_bool stopping;
    _Alignas(64) _Atomic int64_t left; /* tiles that no one has claimed; 0 or less: none */
    _Alignas(64) struct gate run;      /* value: the run's number */
    _Alignas(64) struct gate done;     /* value: tiles of this run that are done */
    /* Under `lock`. */
    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t turn_changed;
    uint64_t turn_next, turn_now;
    /* For workers_busy(). */
    _Atomic uint32_t turns_open;
    _Atomic uint64_t turn_ended_ns;
    struct worker workers[];
};

static void gate_sleep(struct gate *g, uint32_t value)
{
    syscall(SYS_futex, &g->value, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void gate_wake(struct gate *g)
{
    if (atomic_load(&g->sleepers) > 0)
        syscall(SYS_futex, &g->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void pause_once(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Returns when the gate's value differs from `old`: within the spin, or after a sleep that may end early. */
static void gate_wait(struct gate *g, uint32_t old)
{
    uint64_t end = clock_now_ns() + WORKERS_SPIN_NS;
    do {
        for (int i = 0; i < 16; i++) {
            if (atomic_load_explicit(&g->value, memory_order_acquire) != old)
                return;
            pause_once();
        }
    } while (clock_now_ns() < end);
    /* The other side writes the value, then reads `sleepers`; this side adds to `sleepers`, then reads the
     * value. */
    atomic_fetch_add(&g->sleepers, 1);
    if (atomic_load(&g->value) == old)
        gate_sleep(g, old);
    atomic_fetch_sub(&g->sleepers, 1);
}

/* Claims and computes tiles until none is left. They are of one run, the present one: it cannot end, nor its
 * function, argument and number of tiles change, before what is finished here is added. */
static void work(struct workers *w, uint32_t worker)
{
    uint32_t finished = 0, tiles = 0;
    int64_t left;
    while ((left = atomic_fetch_sub_explicit(&w->left, 1, memory_order_acq_rel)) > 0) {
        workers_fn *fn = atomic_load_explicit(&w->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&w->arg, memory_order_relaxed);
        tiles = atomic_load_explicit(&w->tiles, memory_order_relaxed);
        fn(arg, tiles - (uint32_t)left, worker);
        finished++;
    }
    if (finished > 0 && atomic_fetch_add(&w->done.value, finished) + finished == tiles)
        gate_wake(&w->done);
}

static void *thread_main(void *arg)
{
    struct worker *self = arg;
    struct workers *w = self->pool;
    uint32_t seen = 0;
    for (;;) {
        uint32_t number = atomic_load(&w->run.value);
        if (atomic_load(&w->stopping))
            return NULL;
        if (number != seen) {
            seen = number;
            work(w, self->index);
        } else {
            gate_wait(&w->run, seen);
        }
    }
}

void workers_run(struct workers *w, workers_fn *fn, void *arg, uint32_t tiles)
{
    if (tiles == 0)
        return;
    uint32_t number = atomic_load_explicit(&w->run.value, memory_order_relaxed) + 1;
    atomic_store_explicit(&w->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&w->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&w->tiles, tiles, memory_order_relaxed);
    atomic_store_explicit(&w->done.value, 0, memory_order_relaxed);
    atomic_store_explicit(&w->left, (int64_t)tiles, memory_order_release);
    atomic_store(&w->run.value, number);
    if (tiles > 1) /* the caller takes a single tile itself */
        gate_wake(&w->run);
    work(w, 0);
    uint32_t done;
    while ((done = atomic_load_explicit(&w->done.value, memory_order_acquire)) != tiles)
        gate_wait(&w->done, done);
}

static int worker_start(struct workers *w, struct worker *worker)
{
    struct charge charge = w->stacks ? account_charge(w->stacks) : (struct charge){0};
    int r = thread_stack_init(&worker->stack, WORKERS_STACK_BYTES, w->stacks ? &charge : NULL);
    return r < 0 ? r : thread_stack_start(&worker->stack, thread_main, worker, &worker->thread);
}

int workers_create(uint32_t count, struct account *stacks, struct workers **ret)
{
    if (count == 0 || count > WORKERS_MAX)
        return -EINVAL;
    size_t bytes = ROUND_UP(sizeof(struct workers) + count * sizeof(struct worker), (size_t)64);
    struct workers *w = aligned_alloc(64, bytes);
    if (!w)
        return -ENOMEM;
    memset(w, 0, bytes);
    w->count = count;
    w->stacks = stacks;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->turn_changed, NULL);
    int r = 0;
    for (uint32_t i = 1; i < count && r == 0; i++) {
        w->workers[i] = (struct worker){.pool = w, .index = i};
        r = worker_start(w, &w->workers[i]);
        w->started += r == 0;
    }
    if (r < 0) {
        workers_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

void workers_free(struct workers *w)
{
    if (!w)
        return;
    ASSERT(w->turn_now == w->turn_next);
    atomic_store(&w->stopping, true);
    atomic_fetch_add(&w->run.value, 1);
    gate_wake(&w->run);
    for (uint32_t i = 1; i <= w->started; i++)
        pthread_join(w->workers[i].thread, NULL);
    for (uint32_t i = 1; i < w->count; i++)
        thread_stack_done(&w->workers[i].stack);
    pthread_cond_destroy(&w->turn_changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

uint32_t workers_count(const struct workers *w)
{
    return w->count;
}

uint32_t workers_default_count(void)
{
    static atomic_uint known; /* a plan and its run ask several times, and mean one number */
    uint32_t count = atomic_load(&known);
    if (count == 0) {
        uint32_t physical = cpus_physical(), quota = cpus_quota();
        count = MIN_OF(MIN_OF(physical, quota), WORKERS_MAX);
        atomic_store(&known, count);
    }
    return count;
}

void workers_turn_begin(struct workers *w)
{
    atomic_fetch_add(&w->turns_open, 1);
    pthread_mutex_lock(&w->lock);
    uint64_t mine = w->turn_next++;
    while (w->turn_now != mine)
        pthread_cond_wait(&w->turn_changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

bool workers_turn_try(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    bool free = w->turn_now == w->turn_next;
    w->turn_next += free;
    pthread_mutex_unlock(&w->lock);
    atomic_fetch_add(&w->turns_open, free);
    return free;
}

void workers_turn_end(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->turn_now++;
    pthread_cond_broadcast(&w->turn_changed);
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->turn_ended_ns, clock_now_ns());
    atomic_fetch_sub(&w->turns_open, 1);
}

bool workers_busy(const struct workers *w)
{
    if (atomic_load(&w->turns_open) > 0)
        return true;
    uint64_t ended_ns = atomic_load(&w->turn_ended_ns);
    return ended_ns > 0 && clock_now_ns() < ended_ns + WORKERS_BUSY_NS;
}
