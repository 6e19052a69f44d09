/* shared_client.c - a model's interface to the shared tier. */
#include "store/shared_state.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>

#define FIRST_BYTE_NS 2.0 /* before anything was read: 500 MB/s */
#define ENTRY_NS      100000u
#define FORGET_NS     (30 * NS_PER_S) /* half-life of a measurement */

static uint32_t blocks_of(uint64_t bytes)
{
    return (uint32_t)DIV_UP(bytes, (uint64_t)STORE_BLOCK_BYTES);
}

static bool client_has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    struct shared_client *c = shared_lock_client(arg);
    bool has = shared_is_on(c->tier) &&
               shared_known_get(&c->tier->known, key, kind, clock_now_ns()) == SHARED_PRESENT;
    pthread_mutex_unlock(&c->tier->lock);
    return has;
}

static void client_used(void *arg, uint32_t share, const struct prefix_key *keys, uint32_t count,
                        const uint32_t first[TIER_KINDS])
{
    (void)arg, (void)share, (void)keys, (void)count, (void)first;
}

/* A measurement counts less and less, so the tier tries a slow store again. */
static double byte_ns_now(const struct shared_tier *t, uint64_t now_ns)
{
    double excess = t->read_byte_ns - FIRST_BYTE_NS;
    for (uint64_t age_ns = now_ns - t->read_last_ns; excess > 0.1 && age_ns >= FORGET_NS; age_ns -= FORGET_NS)
        excess /= 2;
    return FIRST_BYTE_NS + excess;
}

static uint64_t client_read_ns(void *arg, const struct prefix_key *keys, uint32_t count,
                               const uint32_t first[TIER_KINDS])
{
    struct shared_client *c = shared_lock_client(arg);
    uint64_t entries = 0, ns = UINT64_MAX;
    double bytes = 0;
    (void)keys;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
        ASSERT(first[kind] <= count);
        entries += count - first[kind];
        bytes += (double)(count - first[kind]) * (double)c->opts.bytes[kind];
    }
    if (shared_is_on(c->tier))
        ns = entries * ENTRY_NS / SHARED_BATCH_MAX + (uint64_t)(bytes * byte_ns_now(c->tier, clock_now_ns()));
    pthread_mutex_unlock(&c->tier->lock);
    return ns;
}

/* ---- queries ---- */

static bool begin_query(struct shared_client *c, const struct tier_query *l)
{
    struct shared_tier *t = c->tier;
    ASSERT(l->page_first <= l->count && l->end_first <= l->count);
    if (l->count == 0 || !shared_is_on(t))
        return false;
    size_t bytes = l->count * sizeof(*l->keys);
    struct shared_op *op = shared_op_take(t, SHARED_QUERY, blocks_of(bytes));
    if (!op)
        return false;
    memcpy(staging_at(&t->staging, op->first), l->keys, bytes);
    op->client = c;
    op->tag = l->tag;
    op->count = l->count;
    op->page_first = l->page_first;
    op->end_first = l->end_first;
    op->header = (struct store_header){.identity = c->opts.identity};
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        op->kinds |= (uint32_t)(c->opts.bytes[kind] > 0) << kind;
    shared_op_queue(t, op);
    return true;
}

static bool client_query(void *arg, const struct tier_query *l)
{
    struct shared_client *c = shared_lock_client(arg);
    bool began = begin_query(c, l);
    pthread_mutex_unlock(&c->tier->lock);
    return began;
}

static bool client_queries(void *arg, uint64_t tag)
{
    struct shared_client *c = shared_lock_client(arg);
    bool any = false;
    for (uint32_t i = 0; i < SHARED_OPS_MAX && !any; i++) {
        const struct shared_op *op = &c->tier->ops[i];
        any = op->state != SHARED_OP_FREE && op->what == SHARED_QUERY && op->client == c && op->tag == tag;
    }
    any = any && shared_is_on(c->tier);
    pthread_mutex_unlock(&c->tier->lock);
    return any;
}

/* ---- reading ---- */

static int begin_read(struct shared_client *c, const struct prefix_key *key, enum tier_kind kind,
                      uint64_t tag, uint32_t index)
{
    struct shared_tier *t = c->tier;
    ASSERT(kind < TIER_KINDS && c->opts.bytes[kind] > 0);
    if (!shared_is_on(t))
        return -ENODEV;
    if (shared_known_get(&t->known, key, kind, clock_now_ns()) != SHARED_PRESENT)
        return -ENOENT;
    struct shared_op *op = shared_op_take(t, SHARED_READ, blocks_of(c->opts.bytes[kind]));
    if (!op)
        return -EAGAIN;
    op->client = c;
    op->pending_max = kind == TIER_SNAPSHOT ? c->opts.pending_max : 0;
    op->tag = tag;
    op->index = index;
    op->header = (struct store_header){
        .kind = kind, .payload_bytes = c->opts.bytes[kind], .key = *key, .identity = c->opts.identity};
    shared_op_queue(t, op);
    return 0;
}

static int client_read(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag,
                       uint32_t index)
{
    struct shared_client *c = shared_lock_client(arg);
    int r = begin_read(c, key, kind, tag, index);
    pthread_mutex_unlock(&c->tier->lock);
    return r;
}

/* Running operations continue without a client; writes do not need one. */
static void forget(struct shared_client *c, bool all, uint64_t tag)
{
    struct shared_tier *t = c->tier;
    for (uint32_t i = 0; i < SHARED_OPS_MAX; i++) {
        struct shared_op *op = &t->ops[i];
        if (op->state == SHARED_OP_FREE || op->client != c || (!all && op->tag != tag))
            continue;
        ASSERT(op->state != SHARED_OP_TAKEN && op->what != SHARED_WRITE);
        op->client = NULL;
        t->read_count -= op->state == SHARED_OP_QUEUED;
        if (op->state != SHARED_OP_RUNNING)
            shared_op_free(t, op);
    }
}

static void client_cancel(void *arg, uint64_t tag)
{
    struct shared_client *c = shared_lock_client(arg);
    forget(c, false, tag);
    pthread_mutex_unlock(&c->tier->lock);
}

static bool client_take(void *arg, struct tier_arrival *ret)
{
    struct shared_client *c = shared_lock_client(arg);
    (void)shared_is_on(c->tier); /* reads that wait for a hanging call arrive with an error */
    bool any = !list_empty(&c->arrivals);
    if (any) {
        struct shared_op *op = LIST_FIRST(&c->arrivals, struct shared_op, link);
        ASSERT(op->state == SHARED_OP_ARRIVED && op->client == c);
        list_remove(&op->link);
        op->state = SHARED_OP_TAKEN;
        *ret = (struct tier_arrival){.tag = op->tag,
                                     .index = op->index,
                                     .kind = op->header.kind,
                                     .status = op->status,
                                     .bytes = staging_at(&c->tier->staging, op->first),
                                     .handle = (uint32_t)(op - c->tier->ops),
                                     .pending = op->header.pending};
    }
    pthread_mutex_unlock(&c->tier->lock);
    return any;
}

static void client_give(void *arg, const struct tier_arrival *a)
{
    struct shared_client *c = shared_lock_client(arg);
    ASSERT(a->handle < SHARED_OPS_MAX);
    struct shared_op *op = &c->tier->ops[a->handle];
    ASSERT(op->state == SHARED_OP_TAKEN && op->client == c);
    shared_op_free(c->tier, op);
    pthread_mutex_unlock(&c->tier->lock);
}

/* ---- writing ---- */

static int begin_write(struct shared_client *c, const struct tier_offer *o, struct tier_write *ret)
{
    struct shared_tier *t = c->tier;
    uint64_t now_ns = clock_now_ns();
    uint32_t blocks = blocks_of(c->opts.bytes[o->kind]);
    enum shared_presence known = shared_known_get(&t->known, o->key, o->kind, now_ns);
    ASSERT(c->opts.bytes[o->kind] > 0);
    if (known == SHARED_PRESENT || known == SHARED_WRITING)
        return -EEXIST;
    if (t->closing || !t->ready || now_ns < t->writing_rest.until_ns || !shared_is_on(t))
        return -ENODEV;
    if (blocks > t->staging.blocks)
        return -EFBIG;
    if (t->written_blocks > 0 && t->written_blocks + blocks > t->staging.blocks / 4 * 3)
        return -EAGAIN;
    struct shared_op *op = shared_op_take(t, SHARED_WRITE, blocks);
    if (!op)
        return -EAGAIN;
    t->written_blocks += blocks;
    op->header = (struct store_header){.kind = o->kind,
                                       .payload_bytes = c->opts.bytes[o->kind],
                                       .key = *o->key,
                                       .identity = c->opts.identity};
    shared_known_set(&t->known, o->key, o->kind, SHARED_WRITING, now_ns);
    *ret =
        (struct tier_write){.bytes = staging_at(&t->staging, op->first), .handle = (uint32_t)(op - t->ops)};
    return 0;
}

static int client_write_begin(void *arg, const struct tier_offer *offer, struct tier_write *ret)
{
    struct shared_client *c = shared_lock_client(arg);
    int r = begin_write(c, offer, ret);
    c->tier->numbers.drops += r < 0 && r != -EEXIST && offer->why != TIER_LEAVING;
    pthread_mutex_unlock(&c->tier->lock);
    return r;
}

static void client_write_end(void *arg, const struct tier_write *w, bool whole)
{
    struct shared_client *c = shared_lock_client(arg);
    struct shared_tier *t = c->tier;
    ASSERT(w->handle < SHARED_OPS_MAX);
    struct shared_op *op = &t->ops[w->handle];
    ASSERT(op->state == SHARED_OP_FILLING && t->written_blocks >= op->blocks);
    ASSERT(w->pending <= (op->header.kind == TIER_SNAPSHOT ? c->opts.pending_max : 0));
    op->header.pending = w->pending;
    if (whole && clock_now_ns() >= t->writing_rest.until_ns) {
        shared_op_queue(t, op);
    } else {
        t->written_blocks -= op->blocks;
        t->numbers.drops += whole;
        shared_known_set(&t->known, &op->header.key, op->header.kind, SHARED_UNKNOWN, clock_now_ns());
        shared_op_free(t, op);
    }
    pthread_mutex_unlock(&t->lock);
}

/* ---- wishes ---- */

static void wish(struct shared_client *c, const struct prefix_key *key, enum tier_kind kind)
{
    struct shared_tier *t = c->tier;
    uint64_t now_ns = clock_now_ns();
    enum shared_presence known = shared_known_get(&t->known, key, kind, now_ns);
    if (known >= SHARED_WANTED || t->wish_count == SHARED_WISHES_MAX)
        return;
    t->wishes[(t->wish_first + t->wish_count++) % SHARED_WISHES_MAX] = (struct shared_wish){c, *key, kind};
    shared_known_set(&t->known, key, kind, SHARED_WANTED, now_ns);
}

static void client_common(void *arg, const struct prefix_key *keys, uint32_t count,
                          const uint32_t first[TIER_KINDS])
{
    struct shared_client *c = shared_lock_client(arg);
    for (enum tier_kind kind = 0; shared_is_on(c->tier) && kind < TIER_KINDS; kind++)
        for (uint32_t i = first[kind]; i < count; i++)
            if (c->opts.bytes[kind] > 0)
                wish(c, &keys[i], kind);
    pthread_mutex_unlock(&c->tier->lock);
}

/* The ring's head moves past wishes without a client: taken ones, or the client has closed. */
static void drop_taken(struct shared_tier *t)
{
    while (t->wish_count > 0 && !t->wishes[t->wish_first].client) {
        t->wish_first = (t->wish_first + 1) % SHARED_WISHES_MAX;
        t->wish_count--;
    }
}

bool shared_client_wants(struct tier_io *io, struct prefix_key *key, enum tier_kind *kind)
{
    if (!io->arg)
        return false;
    struct shared_client *c = shared_lock_client(io->arg);
    struct shared_tier *t = c->tier;
    bool own = false;
    drop_taken(t);
    if (t->written_blocks < t->staging.blocks / 2)
        for (uint32_t i = 0; i < t->wish_count && !own; i++) {
            struct shared_wish *w = &t->wishes[(t->wish_first + i) % SHARED_WISHES_MAX];
            own = w->client == c;
            if (!own)
                continue;
            *key = w->key;
            *kind = w->kind;
            w->client = NULL;
        }
    pthread_mutex_unlock(&t->lock);
    return own;
}

/* ---- opening ---- */

int shared_client_open(struct shared_tier *t, const struct store_client_opts *opts, struct tier_io *ret)
{
    struct shared_client *c = NULL;
    ASSERT(opts->wake);
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < STORE_CLIENTS_MAX && !c; i++)
        c = t->clients[i].open ? NULL : &t->clients[i];
    if (c) {
        *c = (struct shared_client){.tier = t, .open = true, .opts = *opts};
        list_init(&c->arrivals);
    }
    pthread_mutex_unlock(&t->lock);
    if (!c)
        return -ENOSPC;
    *ret = (struct tier_io){.arg = c,
                            .has = client_has,
                            .used = client_used,
                            .read_ns = client_read_ns,
                            .query = client_query,
                            .queries = client_queries,
                            .common = client_common,
                            .read = client_read,
                            .cancel = client_cancel,
                            .take = client_take,
                            .give = client_give,
                            .write_begin = client_write_begin,
                            .write_end = client_write_end};
    return 0;
}

void shared_client_close(struct tier_io *io)
{
    if (!io->arg)
        return;
    struct shared_client *c = shared_lock_client(io->arg);
    struct shared_tier *t = c->tier;
    forget(c, true, 0);
    for (uint32_t i = 0; i < SHARED_WISHES_MAX; i++)
        if (t->wishes[i].client == c)
            t->wishes[i].client = NULL;
    c->open = false;
    pthread_mutex_unlock(&t->lock);
    *io = (struct tier_io){0};
}
