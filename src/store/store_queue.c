/* store_queue.c - queued operations, and how the tier stops when a disk does. All under the store's lock. */
#include "store/store_state.h"
#include "store/store_table.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/none.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define LOG_EVERY_NS (10 * NS_PER_S)

struct store_client *store_lock_client(void *arg)
{
    struct store_client *c = arg;
    pthread_mutex_lock(&c->store->lock);
    ASSERT(c->open);
    return c;
}

bool store_is_on(struct store *st)
{
    store_check_calls(st);
    return st->listed && !st->off && !st->closing;
}

char *store_op_file(const struct store *st, const struct store_op *op)
{
    return staging_at(&st->staging, op->first);
}

struct store_op *store_op_take(struct store *st, uint32_t blocks)
{
    if (list_empty(&st->free))
        return NULL;
    uint32_t first = staging_take(&st->staging, blocks);
    if (first == NONE)
        return NULL;
    struct store_op *op = LIST_FIRST(&st->free, struct store_op, link);
    ASSERT(op->state == STORE_OP_FREE);
    list_remove(&op->link);
    op->first = first;
    op->blocks = blocks;
    op->client = NULL;
    op->entry = NONE;
    return op;
}

void store_op_free(struct store *st, struct store_op *op)
{
    ASSERT(op->state != STORE_OP_FREE);
    list_remove(&op->link);
    staging_give(&st->staging, op->first, op->blocks);
    op->state = STORE_OP_FREE;
    list_push_back(&st->free, &op->link);
}

void store_op_arrive(struct store *st, struct store_op *op, int status)
{
    struct store_client *c = op->client;
    ASSERT(op->state == STORE_OP_QUEUED || op->state == STORE_OP_RUNNING);
    op->status = status;
    if (!c) {
        store_op_free(st, op);
        return;
    }
    op->state = STORE_OP_ARRIVED;
    list_remove(&op->link);
    list_push_back(&c->arrivals, &op->link);
    c->opts.wake(c->opts.arg);
}

void store_wake_clients(struct store *st)
{
    for (uint32_t i = 0; i < STORE_CLIENTS_MAX; i++)
        if (st->clients[i].open)
            st->clients[i].opts.wake(st->clients[i].opts.arg);
}

static void drop_write(struct store *st, struct store_op *op)
{
    ASSERT(st->write_count > 0 && st->written_blocks >= op->blocks);
    st->write_count--;
    st->written_blocks -= op->blocks;
    st->numbers.drops++;
    store_table_remove(st->table, op->entry);
    store_op_free(st, op);
}

void store_drop_writes(struct store *st)
{
    LIST_EACH(it, &st->writes) {
        struct store_op *op = LIST_ENTRY(it, struct store_op, link);
        ASSERT(op->state == STORE_OP_QUEUED);
        if (store_table_at(st->table, op->entry)->leases == 0)
            drop_write(st, op);
    }
}

/* ---- trouble ---- */

void store_turn_off(struct store *st, const char *format, ...)
{
    if (st->off)
        return;
    char reason[sizeof(st->numbers.reason)];
    va_list ap;
    va_start(ap, format);
    vsnprintf(reason, sizeof(reason), format, ap);
    va_end(ap);
    st->off = true;
    /* A directory is tried again and again. */
    if (strcmp(reason, st->numbers.reason) != 0)
        LOG_WARN("ssd_off", "dir=\"%s\" reason=\"%s\"", st->dir, reason);
    memcpy(st->numbers.reason, reason, sizeof(reason));
    LIST_EACH(it, &st->reads) {
        struct store_op *op = LIST_ENTRY(it, struct store_op, link);
        ASSERT(st->read_count > 0);
        st->read_count--;
        store_op_arrive(st, op, -ENODEV);
    }
    LIST_EACH(it, &st->writes) {
        drop_write(st, LIST_ENTRY(it, struct store_op, link));
    }
    ASSERT(st->read_count == 0 && st->write_count == 0);
    pthread_cond_broadcast(&st->done);
}

void store_check_calls(struct store *st)
{
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < STORE_THREADS && !st->off; i++) {
        uint64_t call_ns = atomic_load(&st->workers[i].call_ns);
        if (call_ns > 0 && now_ns > call_ns && now_ns - call_ns >= st->hang_ns)
            store_turn_off(st, "a call took longer than %.1f s", (double)st->hang_ns / (double)NS_PER_S);
    }
}

void store_fail(struct store *st, const char *what, const char *path, int error)
{
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&st->lock);
    st->numbers.errors++;
    bool say = st->logged_ns == 0 || now_ns - st->logged_ns >= LOG_EVERY_NS;
    uint64_t unlogged = st->unlogged;
    st->logged_ns = say ? now_ns : st->logged_ns;
    st->unlogged = say ? 0 : unlogged + 1;
    pthread_mutex_unlock(&st->lock);
    if (say)
        LOG_WARN("ssd_error", "what=%s file=\"%s/%s\" error=\"%s\" not_logged_before=%llu", what, st->dir,
                 path, strerrordesc_np(-error) ? strerrordesc_np(-error) : "unknown", (ull)unlogged);
}
