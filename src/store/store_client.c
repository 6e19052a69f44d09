/* store_client.c - a model's side: requests, hands in, takes. Each call holds the lock for a look at tables
 * and waits for nothing else.
 *
 * Writes may fill three quarters of the staging, which leaves room for reads, because requests wait for
 * those. A larger entry may have all of it while nothing else is written. */
#include "store/store_state.h"
#include "store/store_table.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/none.h"

#include <errno.h>

#define FILE_NS 150000u /* for opening a file, in addition to its bytes */

static uint64_t payload_of(const struct store_client *c, enum tier_kind kind)
{
    ASSERT(kind < TIER_KINDS && c->opts.bytes[kind] > 0);
    return c->opts.bytes[kind];
}

static uint32_t blocks_of(uint64_t payload_bytes)
{
    return (uint32_t)(store_file_bytes(payload_bytes) / STORE_BLOCK_BYTES);
}

static uint32_t find_stored(const struct store *st, const struct prefix_key *key, enum tier_kind kind)
{
    uint32_t entry = store_table_find(st->table, key, kind);
    bool stored = entry != NONE && store_table_at(st->table, entry)->state == STORE_ENTRY_STORED;
    return stored ? entry : NONE;
}

static bool client_has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    struct store_client *c = store_lock_client(arg);
    bool has = store_is_on(c->store) && find_stored(c->store, key, kind) != NONE;
    pthread_mutex_unlock(&c->store->lock);
    return has;
}

static void touch(struct store *st, const struct prefix_key *key, enum tier_kind kind, uint32_t share,
                  uint64_t now_ns)
{
    uint32_t entry = find_stored(st, key, kind);
    if (entry != NONE)
        store_table_touch(st->table, entry, share, now_ns);
}

/* The page of the first group last: it stays longest, because the other entries of its key require it. */
static void client_used(void *arg, uint32_t share, const struct prefix_key *keys, uint32_t count,
                        const uint32_t first[TIER_KINDS])
{
    struct store_client *c = store_lock_client(arg);
    ASSERT(share < CACHE_SHARES);
    uint64_t now_ns = store_now_ns();
    for (uint32_t i = store_is_on(c->store) ? count : 0; i > 0; i--)
        for (enum tier_kind kind = TIER_KINDS; kind-- > 0;)
            if (c->opts.bytes[kind] > 0 && i - 1 >= first[kind])
                touch(c->store, &keys[i - 1], kind, share, now_ns);
    pthread_mutex_unlock(&c->store->lock);
}

static uint64_t client_read_ns(void *arg, const struct prefix_key *keys, uint32_t count,
                               const uint32_t first[TIER_KINDS])
{
    struct store_client *c = store_lock_client(arg);
    uint64_t files = 0, ns = UINT64_MAX;
    double bytes = 0;
    (void)keys; /* every file takes about as long */
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        ASSERT(first[kind] <= count);
        files += count - first[kind];
        bytes += (double)(count - first[kind]) * (double)c->opts.bytes[kind];
    }
    if (store_is_on(c->store))
        ns = files * FILE_NS + (uint64_t)(bytes * c->store->read_byte_ns);
    pthread_mutex_unlock(&c->store->lock);
    return ns;
}

/* ---- reading ---- */

static int begin_read(struct store_client *c, const struct prefix_key *key, enum tier_kind kind, uint64_t tag,
                      uint32_t index)
{
    struct store *st = c->store;
    if (!store_is_on(st))
        return -ENODEV;
    uint32_t entry = find_stored(st, key, kind);
    if (entry == NONE)
        return -ENOENT;
    struct store_op *op = store_op_take(st, blocks_of(payload_of(c, kind)));
    if (!op)
        return -EAGAIN;
    op->client = c;
    op->pending_max = c->opts.pending_max;
    op->tag = tag;
    op->index = index;
    op->header = (struct store_header){
        .kind = kind, .payload_bytes = payload_of(c, kind), .key = *key, .identity = c->opts.identity};
    op->state = STORE_OP_QUEUED;
    list_push_back(&st->reads, &op->link);
    st->read_count++;
    pthread_cond_signal(&st->work);
    return 0;
}

static int client_read(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag,
                       uint32_t index)
{
    struct store_client *c = store_lock_client(arg);
    int r = begin_read(c, key, kind, tag, index);
    pthread_mutex_unlock(&c->store->lock);
    return r;
}

/* Running reads continue without a client. */
static void forget(struct store_client *c, bool all, uint64_t tag)
{
    struct store *st = c->store;
    for (uint32_t i = 0; i < STORE_OPS_MAX; i++) {
        struct store_op *op = &st->ops[i];
        if (op->state == STORE_OP_FREE || op->client != c || (!all && op->tag != tag))
            continue;
        ASSERT(op->state != STORE_OP_TAKEN && (op->state != STORE_OP_QUEUED || st->read_count > 0));
        op->client = NULL;
        st->read_count -= op->state == STORE_OP_QUEUED;
        if (op->state != STORE_OP_RUNNING)
            store_op_free(st, op);
    }
}

static void client_cancel(void *arg, uint64_t tag)
{
    struct store_client *c = store_lock_client(arg);
    forget(c, false, tag);
    pthread_mutex_unlock(&c->store->lock);
}

static bool client_take(void *arg, struct tier_arrival *ret)
{
    struct store_client *c = store_lock_client(arg);
    store_check_calls(c->store);
    bool any = !list_empty(&c->arrivals);
    if (any) {
        struct store_op *op = LIST_FIRST(&c->arrivals, struct store_op, link);
        ASSERT(op->state == STORE_OP_ARRIVED && op->client == c);
        list_remove(&op->link);
        op->state = STORE_OP_TAKEN;
        *ret = (struct tier_arrival){.tag = op->tag,
                                     .index = op->index,
                                     .kind = op->header.kind,
                                     .status = op->status,
                                     .bytes = store_op_file(c->store, op) + STORE_BLOCK_BYTES,
                                     .handle = (uint32_t)(op - c->store->ops),
                                     .pending = op->header.pending};
    }
    pthread_mutex_unlock(&c->store->lock);
    return any;
}

static void client_give(void *arg, const struct tier_arrival *a)
{
    struct store_client *c = store_lock_client(arg);
    ASSERT(a->handle < STORE_OPS_MAX);
    struct store_op *op = &c->store->ops[a->handle];
    ASSERT(op->state == STORE_OP_TAKEN && op->client == c);
    store_op_free(c->store, op);
    pthread_mutex_unlock(&c->store->lock);
}

/* ---- writing ---- */

static bool may_write(const struct store *st, uint32_t blocks)
{
    return st->written_blocks == 0 || st->written_blocks + blocks <= st->staging.blocks / 4 * 3;
}

static int begin_write(struct store_client *c, const struct tier_offer *o, struct tier_write *ret)
{
    struct store *st = c->store;
    uint32_t blocks = blocks_of(payload_of(c, o->kind));
    if (!store_is_on(st))
        return -ENODEV;
    uint32_t entry = store_table_find(st->table, o->key, o->kind);
    bool reserved = entry != NONE && store_table_at(st->table, entry)->state == STORE_ENTRY_RESERVED;
    if (entry != NONE && !reserved) {
        if (store_table_at(st->table, entry)->state == STORE_ENTRY_STORED)
            store_table_touch(st->table, entry, o->share, store_now_ns());
        return -EEXIST;
    }
    if (blocks > st->staging.blocks || (uint64_t)blocks * STORE_BLOCK_BYTES > st->limit_bytes / 2)
        return -EFBIG;
    if (clock_now_ns() < st->rest_until_ns || !may_write(st, blocks))
        return -EAGAIN;
    struct store_op *op = store_op_take(st, blocks);
    if (!op)
        return -EAGAIN;
    if (reserved)
        store_table_begin(st->table, entry);
    op->entry = reserved ? entry : store_table_add(st->table, o->key, o->kind, o->share);
    op->state = STORE_OP_FILLING;
    if (op->entry == NONE) {
        store_op_free(st, op);
        return -EAGAIN;
    }
    st->written_blocks += blocks;
    op->header = (struct store_header){.kind = o->kind,
                                       .payload_bytes = payload_of(c, o->kind),
                                       .key = *o->key,
                                       .identity = c->opts.identity};
    *ret = (struct tier_write){.bytes = store_op_file(st, op) + STORE_BLOCK_BYTES,
                               .handle = (uint32_t)(op - st->ops)};
    return 0;
}

static int client_write_begin(void *arg, const struct tier_offer *offer, struct tier_write *ret)
{
    struct store_client *c = store_lock_client(arg);
    int r = begin_write(c, offer, ret);
    c->store->numbers.drops += r < 0 && r != -EEXIST && offer->why != TIER_IDLE &&
                               offer->why != TIER_LEASED && offer->why != TIER_LEAVING;
    pthread_mutex_unlock(&c->store->lock);
    return r;
}

static void client_write_end(void *arg, const struct tier_write *w, bool whole)
{
    struct store_client *c = store_lock_client(arg);
    struct store *st = c->store;
    ASSERT(w->handle < STORE_OPS_MAX);
    struct store_op *op = &st->ops[w->handle];
    ASSERT(op->state == STORE_OP_FILLING && st->written_blocks >= op->blocks);
    ASSERT(w->pending <= (op->header.kind == TIER_SNAPSHOT ? c->opts.pending_max : 0));
    op->header.pending = w->pending;
    if (whole && !st->off) {
        op->state = STORE_OP_QUEUED;
        list_push_back(&st->writes, &op->link);
        st->write_count++;
        pthread_cond_signal(&st->work);
    } else {
        st->written_blocks -= op->blocks;
        st->numbers.drops += whole;
        store_table_remove(st->table, op->entry);
        store_op_free(st, op);
    }
    pthread_mutex_unlock(&st->lock);
}

/* ---- opening ---- */

int store_client_open(struct store *st, const struct store_client_opts *opts, struct tier_io *ret)
{
    struct store_client *c = NULL;
    ASSERT(opts->wake);
    pthread_mutex_lock(&st->lock);
    for (uint32_t i = 0; i < STORE_CLIENTS_MAX && !c; i++)
        c = st->clients[i].open ? NULL : &st->clients[i];
    if (c) {
        c->open = true;
        c->opts = *opts;
        list_init(&c->arrivals);
    }
    pthread_mutex_unlock(&st->lock);
    if (!c)
        return -ENOSPC;
    *ret = (struct tier_io){.arg = c,
                            .has = client_has,
                            .used = client_used,
                            .read_ns = client_read_ns,
                            .read = client_read,
                            .cancel = client_cancel,
                            .take = client_take,
                            .give = client_give,
                            .write_begin = client_write_begin,
                            .write_end = client_write_end};
    store_lease_io(ret);
    return 0;
}

void store_client_close(struct tier_io *io)
{
    if (!io->arg)
        return;
    struct store_client *c = store_lock_client(io->arg);
    forget(c, true, 0);
    store_lease_end_all(c);
    c->open = false;
    pthread_mutex_unlock(&c->store->lock);
    *io = (struct tier_io){0};
}
