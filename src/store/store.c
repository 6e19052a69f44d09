/* store.c - making, serving, closing.
 *
 * Reads go before writes, because requests wait for them. One thread at a time writes, so the other one
 * serves reads while the writer is busy. A hanging disk may block both; then the next caller turns the
 * tier off, and a close leaves the threads where they are. Memory that they may still touch stays mapped
 * until the process ends; for that reason all of it, this struct too, lies in one arena and one buffer. */
#include "store/store.h"

#include "store/store_state.h"
#include "store/store_sys.h"
#include "store/store_table.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>

#define HANG_NS       (10 * NS_PER_S)
#define CLOSE_NS      (2 * NS_PER_S)
#define CLEAR_NS      (3 * NS_PER_S)
#define OPEN_AGAIN_NS (5 * NS_PER_S)
#define REST_LEAST_NS NS_PER_S
#define REST_MOST_NS  (60 * NS_PER_S)
#define READ_BYTE_NS  2.0                  /* until it is measured: 500 MB/s */
#define ENTRY_PER     ((uint64_t)64 << 10) /* bytes of the limit */
#define ENTRIES_LEAST (2 * STORE_OPS_MAX)
#define ENTRIES_MOST  ((uint64_t)1 << 20)
#define FILE_NS       150000u /* time to open a file, equal to that of store_client.c */

const char *store_state_name(enum store_state s)
{
    static const char *const names[] = {"listing", "on", "off"};
    ASSERT((size_t)s < COUNT_OF(names));
    return names[s];
}

static uint32_t entries_max(uint64_t limit_bytes)
{
    return (uint32_t)MIN_OF(MAX_OF(limit_bytes / ENTRY_PER, (uint64_t)ENTRIES_LEAST), ENTRIES_MOST);
}

uint64_t store_table_bytes_max(uint64_t limit_bytes)
{
    return ROUND_UP(store_table_bytes(entries_max(limit_bytes)) + sizeof(struct store) +
                        STORE_OPS_MAX * sizeof(struct store_op) +
                        STORE_LEASES_MAX * sizeof(struct store_lease) + 1024,
                    (uint64_t)65536);
}

/* ---- the threads ---- */

static struct store_op *pop(struct list *queue, uint32_t *count)
{
    struct store_op *op = LIST_FIRST(queue, struct store_op, link);
    ASSERT(*count > 0 && op->state == STORE_OP_QUEUED);
    list_remove(&op->link);
    op->state = STORE_OP_RUNNING;
    (*count)--;
    return op;
}

static void measure_read(struct store *st, uint64_t bytes, uint64_t ns)
{
    ASSERT(bytes > 0);
    double byte_ns = (double)(ns > FILE_NS ? ns - FILE_NS : 0) / (double)bytes;
    st->read_byte_ns += (byte_ns - st->read_byte_ns) / 16;
}

/* Each with the lock held before and after. */

static void run_read(struct store *st, struct store_worker *w)
{
    struct store_op *op = pop(&st->reads, &st->read_count);
    uint64_t began_ns = clock_now_ns();
    pthread_mutex_unlock(&st->lock);
    int r = store_disk_read(st, w, op);
    pthread_mutex_lock(&st->lock);
    uint64_t bytes = (uint64_t)op->blocks * STORE_BLOCK_BYTES;
    if (r == 0) {
        st->numbers.reads++;
        st->numbers.read_bytes += bytes;
        measure_read(st, bytes, clock_now_ns() - began_ns);
    } else {
        st->numbers.read_misses++;
    }
    store_op_arrive(st, op, r);
}

/* After repeated errors the disk is used less and less often. */
static void rest(struct store *st, int r)
{
    if (r == 0) {
        st->rest_ns = 0;
        return;
    }
    st->rest_ns = MIN_OF(MAX_OF(2 * st->rest_ns, REST_LEAST_NS), REST_MOST_NS);
    st->rest_until_ns = clock_now_ns() + st->rest_ns;
}

static void run_write(struct store *st, struct store_worker *w)
{
    struct store_op *op = pop(&st->writes, &st->write_count);
    bool resting = clock_now_ns() < st->rest_until_ns;
    int r = -EAGAIN;
    pthread_mutex_unlock(&st->lock);
    if (!resting)
        r = store_disk_write(st, w, op);
    if (r < 0 && !resting)
        store_fail(st, "write", "", r);
    pthread_mutex_lock(&st->lock);
    if (!resting)
        rest(st, r);
    if (!resting)
        st->numbers.write_error = r;
    if (r == 0) {
        st->numbers.writes++;
        st->numbers.written_bytes += (uint64_t)op->blocks * STORE_BLOCK_BYTES;
    } else {
        st->numbers.drops++;
        store_table_remove(st->table, op->entry);
    }
    ASSERT(st->written_blocks >= op->blocks);
    st->written_blocks -= op->blocks;
    store_op_free(st, op);
    store_wake_clients(st);
}

static void run_clear(struct store *st, struct store_worker *w)
{
    struct store_cleared cleared;
    ASSERT(st->writing && !st->clearing);
    st->clear_wanted = false;
    st->clearing = true;
    pthread_mutex_unlock(&st->lock);
    store_disk_clear(st, w, &cleared);
    pthread_mutex_lock(&st->lock);
    st->cleared = cleared;
    st->clearing = false;
    st->clear_ended = true;
}

/* The directory is another process's for now, or its disk is not mounted yet. */
static void try_later(struct store *st)
{
    if (!st->off) /* it did not hang */
        st->open_again_ns = clock_now_ns() + st->open_again_after_ns;
}

static void try_again(struct store *st)
{
    if (st->open_again_ns == 0 || st->writing || st->closing || clock_now_ns() < st->open_again_ns)
        return;
    st->open_again_ns = 0;
    st->off = st->listed = false;
}

static void run_listing(struct store *st, struct store_worker *w)
{
    pthread_mutex_unlock(&st->lock);
    uint64_t began_ns = clock_now_ns();
    int r = store_disk_lock(st, w);
    const bool locked = r == 0;
    if (locked)
        r = store_disk_list(st, w);
    pthread_mutex_lock(&st->lock);
    st->listed = true;
    if (!locked)
        try_later(st);
    if (r < 0) {
        const char *why = strerrordesc_np(-r);
        store_turn_off(st, "%s",
                       r == -EWOULDBLOCK ? "another process uses the directory"
                       : why             ? why
                                         : "unknown");
        return;
    }
    if (st->off)
        return; /* it took too long */
    st->numbers.reason[0] = 0;
    struct store_table_numbers t;
    store_table_numbers(st->table, &t);
    LOG_INFO("ssd_ready", "dir=\"%s\" pages=%u snapshots=%u bytes=%llu limit_bytes=%llu after_ms=%llu",
             st->dir, store_table_pages(&t), t.stored[TIER_SNAPSHOT], (ull)store_disk_bytes(st),
             (ull)st->limit_bytes, (ull)((clock_now_ns() - began_ns) / NS_PER_MS));
    store_wake_clients(st);
}

static void run_writer(struct store *st, struct store_worker *w, bool list)
{
    ASSERT(!st->writing);
    st->writing = true;
    if (list)
        run_listing(st, w);
    else if (st->clear_wanted)
        run_clear(st, w);
    else
        run_write(st, w);
    st->writing = false;
    pthread_cond_broadcast(&st->done);
    /* Further work may be for another thread. */
    pthread_cond_signal(&st->work);
}

static bool has_writing(const struct store *st)
{
    return !st->writing && !st->off && (st->clear_wanted || !list_empty(&st->writes));
}

static void wait_for_work(struct store *st)
{
    uint64_t now_ns = clock_now_ns();
    if (st->open_again_ns == 0) {
        pthread_cond_wait(&st->work, &st->lock);
        return;
    }
    struct timespec until = clock_deadline(st->open_again_ns - MIN_OF(now_ns, st->open_again_ns));
    pthread_cond_timedwait(&st->work, &st->lock, &until);
}

static void *serve(void *arg)
{
    struct store_worker *w = arg;
    struct store *st = w->store;
    pthread_mutex_lock(&st->lock);
    while (!st->stop) {
        try_again(st);
        bool list = !st->listed && !st->writing;
        if (st->listed && !list_empty(&st->reads))
            run_read(st, w);
        else if (list || (st->listed && has_writing(st)))
            run_writer(st, w, list);
        else
            wait_for_work(st);
        atomic_store(&w->call_ns, 0);
    }
    w->ended = true;
    pthread_cond_broadcast(&st->done);
    pthread_mutex_unlock(&st->lock);
    return NULL;
}

/* ---- opening ---- */

static void init_lists(struct store *st)
{
    list_init(&st->free);
    list_init(&st->reads);
    list_init(&st->writes);
    for (uint32_t i = 0; i < STORE_OPS_MAX; i++) {
        list_init(&st->ops[i].link);
        list_push_back(&st->free, &st->ops[i].link);
    }
    for (uint32_t i = 0; i < STORE_CLIENTS_MAX; i++) {
        st->clients[i].store = st;
        list_init(&st->clients[i].arrivals);
    }
}

static void init_locks(struct store *st)
{
    pthread_mutex_init(&st->lock, NULL);
    clock_cond_init(&st->work);
    clock_cond_init(&st->done);
}

static int create(const struct store_opts *opts, struct store **ret)
{
    struct charge table = account_charge(opts->table);
    struct arena *a = NULL;
    int r = arena_create(
        &(struct arena_opts){.bytes_max = store_table_bytes_max(opts->limit_bytes), .charge = &table}, &a);
    struct store *st = r == 0 ? ARENA_NEW(a, struct store) : NULL;
    if (!st) {
        arena_free(a);
        return r < 0 ? r : -ENOMEM;
    }
    st->arena = a;
    st->table_account = opts->table;
    st->sys = opts->sys ? opts->sys : &store_sys_real;
    st->limit_bytes = opts->limit_bytes;
    st->hang_ns = opts->hang_ns ? opts->hang_ns : HANG_NS;
    st->close_ns = opts->close_ns ? opts->close_ns : CLOSE_NS;
    st->open_again_after_ns = opts->open_again_ns ? opts->open_again_ns : OPEN_AGAIN_NS;
    st->dir_fd = st->lock_fd = -1;
    st->read_byte_ns = READ_BYTE_NS;
    snprintf(st->dir, sizeof(st->dir), "%s", opts->dir);
    init_locks(st);
    *ret = st;
    st->ops = ARENA_ARRAY(a, struct store_op, STORE_OPS_MAX);
    st->leases = ARENA_ARRAY(a, struct store_lease, STORE_LEASES_MAX);
    if (!st->ops || !st->leases)
        return -ENOMEM;
    init_lists(st);
    return store_table_create(a, entries_max(opts->limit_bytes), &st->table);
}

static int start_threads(struct store *st, const struct store_opts *opts)
{
    struct charge threads = account_charge(opts->threads);
    int r = 0;
    for (uint32_t i = 0; i < STORE_THREADS && r == 0; i++)
        r = thread_stack_init(&st->workers[i].stack, STORE_STACK_BYTES, &threads);
    for (uint32_t i = 0; i < STORE_THREADS && r == 0; i++) {
        struct store_worker *w = &st->workers[i];
        w->store = st;
        r = thread_stack_start(&w->stack, serve, w, &w->thread);
        w->started = r == 0;
        if (r == 0)
            pthread_setname_np(w->thread, "ssd");
    }
    return r;
}

int store_open(const struct store_opts *opts, struct store **ret, struct err *e)
{
    struct store *st = NULL;
    if (opts->limit_bytes < STORE_LIMIT_LEAST)
        return err_set(e, -EINVAL, "a limit of %llu bytes is too little for the SSD tier: at least %llu",
                       (ull)opts->limit_bytes, (ull)STORE_LIMIT_LEAST);
    if (strlen(opts->dir) >= STORE_PATH_MAX)
        return err_set(e, -EINVAL, "the SSD tier's path is longer than %d bytes", STORE_PATH_MAX - 1);
    int r = create(opts, &st);
    if (r == 0) {
        struct charge staging = account_charge(opts->staging);
        r = staging_init(&st->staging, opts->staging_bytes, &staging);
    }
    if (r == 0)
        r = start_threads(st, opts);
    if (r < 0) {
        store_close(st);
        return err_set(e, r, "the SSD tier's buffer of %zu bytes, its table and threads could not be made",
                       opts->staging_bytes);
    }
    *ret = st;
    return 0;
}

/* ---- closing ---- */

/* Until nothing is to be written, or nothing can be, or it has taken too long. */
static void drain(struct store *st)
{
    struct timespec until = clock_deadline(st->close_ns);
    pthread_mutex_lock(&st->lock);
    st->closing = true;
    for (uint32_t i = 0; i < STORE_CLIENTS_MAX; i++)
        ASSERT(!st->clients[i].open);
    int r = 0;
    while (r == 0 && !st->off && (st->writing || !list_empty(&st->writes)))
        r = pthread_cond_timedwait(&st->done, &st->lock, &until);
    st->stop = true;
    pthread_cond_broadcast(&st->work);
    pthread_mutex_unlock(&st->lock);
}

/* False: one of them hangs. */
static bool join(struct store *st)
{
    struct timespec until = clock_deadline(st->close_ns);
    bool all = true;
    for (uint32_t i = 0; i < STORE_THREADS; i++) {
        struct store_worker *w = &st->workers[i];
        int r = 0;
        pthread_mutex_lock(&st->lock);
        while (w->started && !w->ended && r == 0)
            r = pthread_cond_timedwait(&st->done, &st->lock, &until);
        bool ended = !w->started || w->ended;
        pthread_mutex_unlock(&st->lock);
        if (w->started && ended)
            pthread_join(w->thread, NULL);
        else if (w->started)
            pthread_detach(w->thread);
        all = all && ended;
    }
    return all;
}

/* Its memory leaves all accounts but stays mapped: the thread may wake up in it later. */
static void leave_behind(struct store *st)
{
    struct charge table = account_charge(st->table_account);
    LOG_ERROR("ssd_thread_hangs", "dir=\"%s\" left_behind_bytes=%zu", st->dir,
              arena_committed_bytes(st->arena) +
                  staging_bytes((size_t)st->staging.blocks * STORE_BLOCK_BYTES));
    charge_give(&st->staging.charge, staging_bytes((size_t)st->staging.blocks * STORE_BLOCK_BYTES));
    charge_give(&table, arena_committed_bytes(st->arena));
    for (uint32_t i = 0; i < STORE_THREADS; i++)
        charge_give(&st->workers[i].stack.charge, st->workers[i].stack.bytes);
}

void store_close(struct store *st)
{
    if (!st)
        return;
    if (st->workers[0].started)
        drain(st);
    if (!join(st)) {
        leave_behind(st);
        return;
    }
    store_disk_close(st);
    for (uint32_t i = 0; i < STORE_THREADS; i++)
        thread_stack_done(&st->workers[i].stack);
    staging_done(&st->staging);
    pthread_cond_destroy(&st->done);
    pthread_cond_destroy(&st->work);
    pthread_mutex_destroy(&st->lock);
    arena_free(st->arena);
}

/* ---- asked from outside ---- */

static int wait_cleared(struct store *st, struct store_cleared *ret)
{
    struct timespec until = clock_deadline(CLEAR_NS);
    int r = 0;
    while (r == 0 && !st->clear_ended && !st->off)
        r = pthread_cond_timedwait(&st->done, &st->lock, &until);
    if (!st->clear_ended)
        return st->off ? -ENODEV : -ETIMEDOUT;
    *ret = st->cleared;
    return 0;
}

int store_clear(struct store *st, struct store_cleared *ret)
{
    pthread_mutex_lock(&st->lock);
    store_check_calls(st);
    int r = st->off ? -ENODEV : st->clear_wanted || st->clearing ? -EBUSY : 0;
    if (r == 0) {
        st->clear_wanted = true;
        st->clear_ended = false;
        /* Else they would be files again right after it. */
        store_drop_writes(st);
        pthread_cond_signal(&st->work);
        r = wait_cleared(st, ret);
    }
    pthread_mutex_unlock(&st->lock);
    return r;
}

void store_numbers(struct store *st, struct store_numbers *ret)
{
    struct store_table_numbers t;
    pthread_mutex_lock(&st->lock);
    store_check_calls(st);
    store_table_numbers(st->table, &t);
    *ret = st->numbers;
    ret->state = st->off ? STORE_OFF : st->listed ? STORE_ON : STORE_LISTING;
    ret->limit_bytes = st->limit_bytes;
    ret->bytes = store_disk_bytes(st);
    ret->pages = store_table_pages(&t);
    ret->snapshots = t.stored[TIER_SNAPSHOT];
    ret->entries_max = t.entries_max;
    ret->leases = st->lease_count;
    ret->leased_bytes = t.leased_sectors * STORE_SECTOR + st->promised_bytes;
    ret->lease_bytes_max = st->limit_bytes / 2;
    ret->queued_reads = st->read_count;
    ret->queued_writes = st->write_count;
    ASSERT(st->written_blocks <= st->staging.used && st->staging.used <= st->staging.blocks);
    ret->staging_bytes = (uint64_t)st->staging.blocks * STORE_BLOCK_BYTES;
    ret->staging_used_bytes = (uint64_t)st->staging.used * STORE_BLOCK_BYTES;
    pthread_mutex_unlock(&st->lock);
}
