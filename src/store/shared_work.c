/* shared_work.c - what the threads do: reads in batches of values, queries in batches of names, writes.
 *
 * A query names pages from the front until one is missing, so a chain that the store lacks costs one
 * question. Then it names snapshots from the end until one is there, and all pages of windows. */
#include "store/shared_state.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>

/* A call of the store by this thread: when it began is for others to see. */
#define CALL(t, w, name, ...)                                                                                \
    (atomic_store(&(w)->call_ns, clock_now_ns()),                                                            \
     (t)->backend.name((t)->backend.arg, (w)->number, __VA_ARGS__))

static void call_ended(struct shared_worker *w)
{
    atomic_store(&w->call_ns, 0);
}

static struct shared_op *pop(struct list *queue, uint32_t *count)
{
    struct shared_op *op = LIST_FIRST(queue, struct shared_op, link);
    ASSERT(*count > 0 && op->state == SHARED_OP_QUEUED);
    list_remove(&op->link);
    op->state = SHARED_OP_RUNNING;
    --*count;
    return op;
}

static struct store_header piece_header(const struct shared_tier *t, const struct shared_op *op,
                                        uint32_t piece)
{
    struct store_header h = op->header;
    h.payload_bytes = shared_piece_bytes(op->header.payload_bytes, piece);
    h.key = shared_value_name(&t->secret, &op->header, piece);
    return h;
}

/* ---- queries ---- */

struct query {
    struct shared_tier *t;
    struct shared_worker *w;
    struct shared_op *op;
    const struct prefix_key *keys;
};

/* Queries the entries of one kind of keys[at] to keys[at + count]. Without the lock. Sets has[]. */
static int ask(const struct query *l, enum tier_kind kind, uint32_t at, uint32_t count, bool *has)
{
    struct prefix_key names[SHARED_QUERY_MAX];
    struct store_header h = l->op->header;
    ASSERT(count > 0 && count <= SHARED_QUERY_MAX);
    h.kind = kind;
    for (uint32_t i = 0; i < count; i++) {
        h.key = l->keys[at + i];
        names[i] = shared_value_name(&l->t->secret, &h, 0);
        has[i] = false;
    }
    int r = CALL(l->t, l->w, has, names, count, has);
    call_ended(l->w);
    pthread_mutex_lock(&l->t->lock);
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        uint64_t now_ns = clock_now_ns();
        enum shared_presence was = shared_known_get(&l->t->known, &l->keys[at + i], kind, now_ns);
        if (has[i] || was == SHARED_UNKNOWN || was == SHARED_PRESENT)
            shared_known_set(&l->t->known, &l->keys[at + i], kind, has[i] ? SHARED_PRESENT : SHARED_ABSENT,
                             now_ns);
    }
    if (!l->op->client)
        r = -ECANCELED;
    pthread_mutex_unlock(&l->t->lock);
    return r;
}

/* Sets *end to the first key whose page is missing. */
static int query_pages(const struct query *l, uint32_t *end)
{
    bool has[SHARED_QUERY_MAX];
    uint32_t at = l->op->page_first, batch = 1;
    int r = 0;
    while (r == 0 && at < l->op->count) {
        uint32_t count = MIN_OF(batch, l->op->count - at), found = 0;
        r = ask(l, TIER_PAGE, at, count, has);
        while (r == 0 && found < count && has[found])
            found++;
        at += found;
        if (found < count)
            break;
        batch = l->t->backend.query_max;
    }
    *end = at;
    return r;
}

static int query_snapshot(const struct query *l, uint32_t end)
{
    bool has[SHARED_QUERY_MAX], any = false;
    int r = 0;
    while (r == 0 && !any && end > l->op->end_first) {
        uint32_t count = MIN_OF(l->t->backend.query_max, end - l->op->end_first);
        end -= count;
        r = ask(l, TIER_SNAPSHOT, end, count, has);
        for (uint32_t i = 0; i < count; i++)
            any |= has[i];
    }
    return r;
}

static int query_windows(const struct query *l, enum tier_kind kind, uint32_t end)
{
    bool has[SHARED_QUERY_MAX];
    int r = 0;
    for (uint32_t at = 0, count; r == 0 && at < end; at += count) {
        count = MIN_OF(l->t->backend.query_max, end - at);
        r = ask(l, kind, at, count, has);
    }
    return r;
}

/* Without the lock. */
static int run_queries(const struct query *l)
{
    uint32_t end = 0;
    int r = query_pages(l, &end);
    if (r < 0 || end <= l->op->end_first)
        return r;
    for (enum tier_kind kind = TIER_WINDOW; r == 0 && kind < TIER_KINDS; kind++)
        if (l->op->kinds >> kind & 1)
            r = query_windows(l, kind, end);
    return r == 0 && l->op->kinds >> TIER_SNAPSHOT & 1 ? query_snapshot(l, end) : r;
}

static void run_query(struct shared_tier *t, struct shared_worker *w, struct shared_op *op)
{
    struct query l = {t, w, op, (const struct prefix_key *)(const void *)staging_at(&t->staging, op->first)};
    pthread_mutex_unlock(&t->lock);
    int r = run_queries(&l);
    pthread_mutex_lock(&t->lock);
    if (r == 0)
        shared_succeeded(t, true);
    shared_op_end(t, op, r);
    if (r < 0 && r != -ECANCELED)
        shared_failed(t, true, false, "query", r);
}

/* ---- reads ---- */

/* Values that one call of the store reads: pieces of one or more entries. */
struct batch {
    struct shared_tier *t;
    struct shared_worker *w;
    struct shared_op *ops[SHARED_BATCH_MAX];
    uint32_t pieces[SHARED_BATCH_MAX];
    struct prefix_key names[SHARED_BATCH_MAX];
    bool came[SHARED_BATCH_MAX];
    uint32_t count;
};

static void take_value(void *arg, uint32_t i, const char *value, size_t len)
{
    struct batch *b = arg;
    ASSERT(i < b->count);
    struct shared_op *op = b->ops[i];
    struct store_header h = piece_header(b->t, op, b->pieces[i]);
    uint32_t pending = 0;
    b->came[i] = true;
    if (op->status < 0)
        return;
    op->status = shared_value_open(&b->t->secret, &h, value, len, b->w->file, &pending);
    /* All pieces of a snapshot are of one writing, and its writer had no more room than we have. */
    if (op->status == 0 && (pending > op->pending_max || (b->pieces[i] > 0 && pending != op->header.pending)))
        op->status = -EBADMSG;
    if (op->status < 0)
        return;
    op->header.pending = pending;
    memcpy(staging_at(&b->t->staging, op->first) + b->pieces[i] * SHARED_PIECE_BYTES,
           b->w->file + STORE_BLOCK_BYTES, h.payload_bytes);
}

/* Reads the values of the batch, whose first pieces come first. Without the lock. Entries of which a value
 * is missing or bad have a status. */
static int read_batch(struct batch *b)
{
    int r = CALL(b->t, b->w, get, b->names, b->count, take_value, b);
    call_ended(b->w);
    for (uint32_t i = 0; r == 0 && i < b->count; i++) {
        if (!b->came[i] && b->ops[i]->status == 0)
            b->ops[i]->status = -ENOENT;
        if (b->came[i] && b->ops[i]->status == -EBADMSG)
            CALL(b->t, b->w, drop, &b->names[i]);
    }
    call_ended(b->w);
    b->count = 0;
    memset(b->came, 0, sizeof(b->came));
    return r;
}

static int read_pieces(struct batch *b, struct shared_op *op)
{
    int r = 0;
    for (uint32_t piece = 0; r == 0 && piece < shared_pieces(op->header.payload_bytes); piece++) {
        struct store_header h = piece_header(b->t, op, piece);
        b->ops[b->count] = op;
        b->pieces[b->count] = piece;
        b->names[b->count++] = h.key;
        if (b->count == SHARED_BATCH_MAX)
            r = read_batch(b);
    }
    return r;
}

static void measure(struct shared_tier *t, uint64_t bytes, uint64_t ns)
{
    double byte_ns = (double)ns / (double)bytes;
    t->read_byte_ns += (byte_ns - t->read_byte_ns) / 4;
    t->read_last_ns = clock_now_ns();
}

static void end_read(struct shared_tier *t, struct shared_op *op, int r)
{
    int status = r < 0 ? r : op->status;
    t->numbers.reads += status == 0;
    t->numbers.read_bytes += status == 0 ? op->header.payload_bytes : 0;
    t->numbers.read_misses += status < 0;
    t->numbers.corrupt += status == -EBADMSG;
    shared_op_end(t, op, status);
}

void shared_work_read(struct shared_tier *t, struct shared_worker *w)
{
    struct batch b = {.t = t, .w = w};
    struct shared_op *ops[SHARED_BATCH_MAX];
    uint32_t count = 0, pieces = 0;
    uint64_t bytes = 0, began_ns = clock_now_ns();
    while (!list_empty(&t->reads) && pieces < SHARED_BATCH_MAX) {
        struct shared_op *op = LIST_FIRST(&t->reads, struct shared_op, link);
        if (op->what == SHARED_QUERY && count > 0)
            break;
        op = pop(&t->reads, &t->read_count);
        if (op->what == SHARED_QUERY) {
            run_query(t, w, op);
            return;
        }
        ops[count++] = op;
        pieces += shared_pieces(op->header.payload_bytes);
        bytes += op->header.payload_bytes;
    }
    int r = 0;
    bool lies = false;
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = read_pieces(&b, ops[i]);
    if (r == 0 && b.count > 0)
        r = read_batch(&b);
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < count; i++) {
        lies |= ops[i]->status == -EBADMSG;
        end_read(t, ops[i], r);
    }
    if (r == 0)
        measure(t, bytes, clock_now_ns() - began_ns);
    if (r < 0 || lies)
        shared_failed(t, true, false, r < 0 ? "read" : "a value is damaged or forged", r < 0 ? r : -EBADMSG);
    else
        shared_succeeded(t, true);
}

/* ---- writes ---- */

/* Without the lock. The first piece goes last: entries without it count as missing. 0, -EEXIST (another
 * server has written it), or what the store said. */
static int write_entry(struct shared_tier *t, struct shared_worker *w, const struct shared_op *op)
{
    struct store_header h = piece_header(t, op, 0);
    bool has = false;
    int r = CALL(t, w, has, &h.key, 1, &has);
    for (uint32_t piece = shared_pieces(op->header.payload_bytes); r == 0 && !has && piece > 0; piece--) {
        h = piece_header(t, op, piece - 1);
        memcpy(w->file + STORE_BLOCK_BYTES,
               staging_at(&t->staging, op->first) + (piece - 1) * SHARED_PIECE_BYTES, h.payload_bytes);
        size_t len = shared_value_seal(&t->secret, &h, w->file, w->value);
        r = len > 0 ? CALL(t, w, put, &h.key, w->value, len) : -ENOMEM;
    }
    call_ended(w);
    return r == 0 && has ? -EEXIST : r;
}

void shared_work_write(struct shared_tier *t, struct shared_worker *w)
{
    ASSERT(!t->writing);
    struct shared_op *op = pop(&t->writes, &t->write_count);
    t->writing = true;
    pthread_mutex_unlock(&t->lock);
    int r = write_entry(t, w, op);
    pthread_mutex_lock(&t->lock);
    t->writing = false;
    shared_op_end(t, op, r);
    if (r == -EDQUOT)
        t->tend_ns = 0; /* a sweep may make room */
    else if (r < 0 && r != -EEXIST)
        shared_failed(t, r == -ETIMEDOUT || r == -ENOTCONN, true, "write", r);
    else
        shared_succeeded(t, false);
    pthread_cond_broadcast(&t->done);
    pthread_cond_signal(&t->work);
}

/* ---- the store itself ---- */

void shared_work_ready(struct shared_tier *t, struct shared_worker *w)
{
    ASSERT(!t->readying);
    t->readying = true;
    pthread_mutex_unlock(&t->lock);
    atomic_store(&w->call_ns, clock_now_ns());
    int r = t->backend.ready(t->backend.arg, w->number);
    call_ended(w);
    pthread_mutex_lock(&t->lock);
    t->readying = false;
    if (r < 0) {
        shared_failed(t, true, false, "open", r);
        return;
    }
    t->ready = true;
    pthread_cond_signal(&t->work);
}

void shared_work_tend(struct shared_tier *t, struct shared_worker *w)
{
    ASSERT(!t->writing);
    t->writing = true;
    t->tend_ns = UINT64_MAX;
    pthread_mutex_unlock(&t->lock);
    /* A sweep of a large directory takes long, and other calls go on: it does not count as slow. */
    uint64_t after_ns = t->backend.tend(t->backend.arg, w->number);
    pthread_mutex_lock(&t->lock);
    t->writing = false;
    t->tend_ns = clock_now_ns() + after_ns;
    pthread_cond_signal(&t->work);
}
