/* shared_queue.c - queued operations, and how the shared tier rests. All under the tier's lock. */
#include "store/shared_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/none.h"

#include <errno.h>
#include <stdio.h>

#define REST_LEAST_NS NS_PER_S
#define REST_MOST_NS  (60 * NS_PER_S)
#define LOG_EVERY_NS  (10 * NS_PER_S)

struct shared_client *shared_lock_client(void *arg)
{
    struct shared_client *c = arg;
    pthread_mutex_lock(&c->tier->lock);
    ASSERT(c->open);
    return c;
}

/* True if a call has lasted too long: it may never return. */
static bool is_slow(const struct shared_tier *t, uint64_t now_ns)
{
    for (uint32_t i = 0; i < SHARED_THREADS; i++) {
        uint64_t call_ns = atomic_load(&t->workers[i].call_ns);
        if (call_ns > 0 && now_ns > call_ns && now_ns - call_ns >= t->slow_ns)
            return true;
    }
    return false;
}

bool shared_is_on(struct shared_tier *t)
{
    uint64_t now_ns = clock_now_ns();
    if (!t->ready || t->closing || now_ns < t->reading_rest.until_ns)
        return false;
    if (!is_slow(t, now_ns))
        return true;
    shared_failed(t, true, false, "call", -ETIMEDOUT);
    return false;
}

struct shared_op *shared_op_take(struct shared_tier *t, enum shared_op_kind what, uint32_t blocks)
{
    uint32_t first = list_empty(&t->free) ? NONE : staging_take(&t->staging, blocks);
    if (first == NONE)
        return NULL;
    struct shared_op *op = LIST_FIRST(&t->free, struct shared_op, link);
    ASSERT(op->state == SHARED_OP_FREE);
    list_remove(&op->link);
    *op = (struct shared_op){.what = what, .state = SHARED_OP_FILLING, .first = first, .blocks = blocks};
    list_init(&op->link);
    return op;
}

void shared_op_free(struct shared_tier *t, struct shared_op *op)
{
    ASSERT(op->state != SHARED_OP_FREE);
    list_remove(&op->link);
    staging_give(&t->staging, op->first, op->blocks);
    op->state = SHARED_OP_FREE;
    list_push_back(&t->free, &op->link);
}

void shared_op_queue(struct shared_tier *t, struct shared_op *op)
{
    ASSERT(op->state == SHARED_OP_FILLING);
    op->state = SHARED_OP_QUEUED;
    list_push_back(op->what == SHARED_WRITE ? &t->writes : &t->reads, &op->link);
    *(op->what == SHARED_WRITE ? &t->write_count : &t->read_count) += 1;
    pthread_cond_signal(&t->work);
}

static void wake_all(struct shared_tier *t)
{
    for (uint32_t i = 0; i < STORE_CLIENTS_MAX; i++)
        if (t->clients[i].open)
            t->clients[i].opts.wake(t->clients[i].opts.arg);
}

static void end_write(struct shared_tier *t, struct shared_op *op, int status)
{
    ASSERT(t->written_blocks >= op->blocks);
    t->written_blocks -= op->blocks;
    t->numbers.writes += status == 0;
    t->numbers.written_bytes += status == 0 ? op->header.payload_bytes : 0;
    t->numbers.drops += status < 0 && status != -EEXIST;
    shared_known_set(&t->known, &op->header.key, op->header.kind,
                     status == 0 || status == -EEXIST ? SHARED_PRESENT : SHARED_UNKNOWN, clock_now_ns());
    shared_op_free(t, op);
    wake_all(t);
}

void shared_op_end(struct shared_tier *t, struct shared_op *op, int status)
{
    struct shared_client *c = op->client;
    ASSERT(op->state == SHARED_OP_QUEUED || op->state == SHARED_OP_RUNNING);
    if (op->what == SHARED_WRITE) {
        end_write(t, op, status);
        return;
    }
    if (op->what == SHARED_READ && status != 0 && status != -EAGAIN)
        shared_known_set(&t->known, &op->header.key, op->header.kind, SHARED_ABSENT, clock_now_ns());
    op->status = status;
    if (!c || op->what == SHARED_QUERY) {
        shared_op_free(t, op);
    } else {
        op->state = SHARED_OP_ARRIVED;
        list_remove(&op->link);
        list_push_back(&c->arrivals, &op->link);
    }
    if (c)
        c->opts.wake(c->opts.arg);
}

/* ---- failures ---- */

static void rest(struct shared_rest *r, uint64_t now_ns)
{
    r->ns = MIN_OF(MAX_OF(2 * r->ns, REST_LEAST_NS), REST_MOST_NS);
    r->until_ns = now_ns + r->ns;
}

static void end_all(struct shared_tier *t, struct list *queue, uint32_t *count)
{
    LIST_EACH(it, queue) {
        ASSERT(*count > 0);
        --*count;
        shared_op_end(t, LIST_ENTRY(it, struct shared_op, link), -ENODEV);
    }
    ASSERT(*count == 0);
}

void shared_failed(struct shared_tier *t, bool reads, bool writes, const char *what, int error)
{
    uint64_t now_ns = clock_now_ns();
    const char *why = strerrordesc_np(-error);
    t->numbers.errors++;
    snprintf(t->numbers.reason, sizeof(t->numbers.reason), "%s: %s", what, why ? why : "unknown");
    if (reads) {
        rest(&t->reading_rest, now_ns);
        /* A thread tries the store when the rest is over, before any request does. */
        t->ready = false;
        end_all(t, &t->reads, &t->read_count);
    }
    if (writes) {
        rest(&t->writing_rest, now_ns);
        end_all(t, &t->writes, &t->write_count);
    }
    if (t->logged_ns == 0 || now_ns - t->logged_ns >= LOG_EVERY_NS) {
        LOG_WARN("shared_cache_error", "store=\"%s\" what=\"%s\" rests_ms=%llu", t->name, t->numbers.reason,
                 (ull)(MAX_OF(reads ? t->reading_rest.ns : 0, writes ? t->writing_rest.ns : 0) / NS_PER_MS));
        t->logged_ns = now_ns;
    }
    t->failing = true;
    pthread_cond_broadcast(&t->done);
}

void shared_succeeded(struct shared_tier *t, bool reads)
{
    *(reads ? &t->reading_rest : &t->writing_rest) = (struct shared_rest){0};
    if (t->reading_rest.ns > 0 || t->writing_rest.ns > 0)
        return;
    t->numbers.reason[0] = 0;
    t->failing = false;
}
