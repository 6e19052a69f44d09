/* shared_state.h - shared by the files of the shared tier only.
 *
 * One lock for everything in memory; the store is never called under it. Both threads read and query; one
 * at a time writes or tends. */
#ifndef PLATEAU_STORE_SHARED_STATE_H
#define PLATEAU_STORE_SHARED_STATE_H

#include "store/shared_backend.h"
#include "store/shared_known.h"
#include "store/shared_tier.h"
#include "store/shared_value.h"
#include "store/staging.h"

#include "base/arena.h"
#include "base/list.h"
#include "base/threads/thread_stack.h"

#include <stdatomic.h>

#define SHARED_OPS_MAX    1024u
#define SHARED_WISHES_MAX 4096u

enum shared_op_kind { SHARED_READ, SHARED_QUERY, SHARED_WRITE };
enum shared_op_state {
    SHARED_OP_FREE,
    SHARED_OP_FILLING,
    SHARED_OP_QUEUED,
    SHARED_OP_RUNNING,
    SHARED_OP_ARRIVED,
    SHARED_OP_TAKEN
};

struct shared_op {
    struct list link;
    struct shared_client *client; /* NULL: it has closed, or given this up */
    enum shared_op_kind what;
    enum shared_op_state state;
    struct store_header header; /* header of the entry; its key is the page's */
    uint32_t pending_max;
    uint64_t tag;
    uint32_t index, first, blocks;         /* blocks of the staging: the payload, or a query's keys */
    uint32_t count, page_first, end_first; /* a query's keys */
    uint32_t kinds;                        /* a query's: a bit for each kind that the model has */
    int status;
};

struct shared_client {
    struct shared_tier *tier;
    bool open;
    struct store_client_opts opts;
    struct list arrivals;
};

struct shared_wish {
    struct shared_client *client;
    struct prefix_key key;
    enum tier_kind kind;
};

struct shared_rest {
    uint64_t until_ns, ns;
};

struct shared_worker {
    struct shared_tier *tier;
    uint32_t number;
    struct thread_stack stack;
    pthread_t thread;
    bool started, ended;
    char *file, *value;       /* [SHARED_FILE_BYTES], [SHARED_VALUE_BYTES] */
    _Atomic uint64_t call_ns; /* when the call that it is in began; 0: it is in none */
};

struct shared_tier {
    /* Constant. */
    struct arena *arena;
    struct account *memory;
    uint64_t reply_bytes; /* charged for what the store's library holds */
    struct shared_backend backend;
    struct shared_secret secret;
    char name[128];
    uint64_t limit_bytes, slow_ns, close_ns;
    struct shared_worker workers[SHARED_THREADS];

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct staging staging;
    struct shared_known known;
    struct shared_op *ops;           /* [SHARED_OPS_MAX] */
    struct list free, reads, writes; /* queries stand among the reads */
    uint32_t read_count, write_count, written_blocks;
    struct shared_client clients[STORE_CLIENTS_MAX];
    struct shared_wish *wishes; /* [SHARED_WISHES_MAX], a ring */
    uint32_t wish_first, wish_count;
    bool writing, ready, readying, closing, stop;
    struct shared_rest reading_rest, writing_rest;
    uint64_t tend_ns;      /* when the next tend is due */
    double read_byte_ns;   /* measured */
    uint64_t read_last_ns; /* when it was */
    uint64_t logged_ns;
    bool failing; /* a failure was logged, and no success since */
    struct shared_numbers numbers;
};

/* ---- shared_work.c: what the threads do; each with the lock held before and after ---- */

void shared_work_read(struct shared_tier *t, struct shared_worker *w);
void shared_work_write(struct shared_tier *t, struct shared_worker *w);
void shared_work_ready(struct shared_tier *t, struct shared_worker *w);
void shared_work_tend(struct shared_tier *t, struct shared_worker *w);

/* ---- shared_queue.c: under the lock ---- */

struct shared_client *shared_lock_client(void *arg);
/* True if requests may use the store. */
bool shared_is_on(struct shared_tier *t);
struct shared_op *shared_op_take(struct shared_tier *t, enum shared_op_kind what, uint32_t blocks);
void shared_op_free(struct shared_tier *t, struct shared_op *op);
void shared_op_queue(struct shared_tier *t, struct shared_op *op);
/* The operation is over: a read's arrival waits for its client. */
void shared_op_end(struct shared_tier *t, struct shared_op *op, int status);
/* The store failed: reads, writes or both rest, and all that waits for it ends. */
void shared_failed(struct shared_tier *t, bool reads, bool writes, const char *what, int error);
void shared_succeeded(struct shared_tier *t, bool reads);

#endif
