/* store_state.h - shared by the files of the store only.
 *
 * One lock for everything in memory; no system call is made under it. One of the two threads at a time has
 * the writer's part (`writing`): it lists, writes, evicts and clears, so one thread knows the directory's
 * size. Both read. */
#ifndef PLATEAU_STORE_STORE_STATE_H
#define PLATEAU_STORE_STORE_STATE_H

#include "store/staging.h"
#include "store/store.h"
#include "store/store_file.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/threads/thread_stack.h"
#include "cache/share_list.h"

#include <pthread.h>
#include <stdatomic.h>

struct store_table;

#define STORE_OPS_MAX  2048u
#define STORE_LEAVES   256u
#define STORE_SECTOR   512u
#define STORE_PATH_MAX 4096
#define STORE_TMP      "tmp"
#define STORE_LOCK     "lock"

enum store_op_state {
    STORE_OP_FREE,
    STORE_OP_FILLING,
    STORE_OP_QUEUED,
    STORE_OP_RUNNING,
    STORE_OP_ARRIVED,
    STORE_OP_TAKEN
};

/* A file on its way. */
struct store_op {
    struct list link;            /* among the free ones, in a queue, or in a client's arrivals */
    struct store_client *client; /* client of a read; NULL: the client has closed */
    struct store_header header;  /* header that the file has or must have; a read's `pending` is the file's */
    uint32_t pending_max;        /* largest `pending` that a read accepts */
    uint64_t tag;
    uint32_t index, first, blocks; /* blocks of the staging */
    uint32_t entry;                /* entry of a write */
    int status;
    enum store_op_state state;
};

struct store_client {
    struct store *store;
    bool open;
    struct store_client_opts opts;
    struct list arrivals;
};

/* A lease: chains of entries in the table. */
struct store_lease {
    struct store_client *client; /* NULL: free */
    uint32_t share;
    uint64_t promised, bytes; /* bytes: of its entries, as they were taken */
    struct store_chain {
        uint32_t last, count; /* the last entry, from which the others are found */
    } chains[TIER_KINDS];
    /* The look under way, and what the last one found. */
    enum tier_kind kind;
    struct store_chain at;
    bool lacks;
    uint64_t seen_bytes, stored_bytes;
};

/* One of the threads. */
struct store_worker {
    struct store *store;
    struct thread_stack stack;
    pthread_t thread;
    bool started, ended;      /* ended: under the lock */
    _Atomic uint64_t call_ns; /* when the call that it is in began; 0: it is in none */
};

struct store {
    /* Constant. */
    char dir[STORE_PATH_MAX];
    const struct store_sys *sys;
    uint64_t limit_bytes, hang_ns, close_ns, open_again_after_ns;
    struct account *table_account;
    struct arena *arena; /* arena on the table's account: this struct, the operations, the table */
    struct store_worker workers[STORE_THREADS];
    atomic_bool buffered; /* the file system refuses O_DIRECT */

    /* The writer's part. */
    int dir_fd, lock_fd;
    uint64_t leaf_sectors[STORE_LEAVES],
        other_sectors;  /* sectors of directories, and of files that could not be removed */
    uint64_t temporary; /* files begun; makes their names */

    /* Under `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* done: something that close or clear waits for */
    struct staging staging;
    struct store_table *table;
    struct store_op *ops; /* [STORE_OPS_MAX] */
    struct list free, reads, writes;
    uint32_t read_count, write_count; /* queued */
    uint32_t written_blocks;          /* blocks of the staging that writes have taken */
    struct store_client clients[STORE_CLIENTS_MAX];
    struct store_lease *leases; /* [STORE_LEASES_MAX] */
    uint64_t promised_bytes, promised_of[CACHE_SHARES];
    uint32_t lease_count;
    bool writing, listed, closing, stop;
    bool clear_wanted, clearing, clear_ended;
    struct store_cleared cleared;
    bool off;
    uint64_t open_again_ns;          /* with off: when the directory is tried once more; 0: never */
    uint64_t directory_sectors;      /* leaf_sectors and other_sectors together */
    uint64_t rest_until_ns, rest_ns; /* after a failed write */
    double read_byte_ns;             /* measured */
    uint64_t logged_ns, unlogged;
    struct store_numbers numbers; /* counters, and the reason */
};

/* The time of uses, since 1970: files keep it. */
static inline uint64_t store_now_ns(void)
{
    return (uint64_t)(clock_wall_s() * (double)NS_PER_S);
}

/* ---- store_disk.c: the writer's part, and reads ---- */

/* Makes, opens and locks the directory. 0, or why the tier is off for now. */
int store_disk_lock(struct store *st, struct store_worker *w);
/* Lists the locked directory. 0, or why the tier stays off. */
int store_disk_list(struct store *st, struct store_worker *w);
void store_disk_close(struct store *st);
/* The file of an operation whose bytes are in the staging. 0, or negative: it is not there. */
int store_disk_write(struct store *st, struct store_worker *w, struct store_op *op);
int store_disk_read(struct store *st, struct store_worker *w, struct store_op *op);
void store_disk_clear(struct store *st, struct store_worker *w, struct store_cleared *ret);
/* Returns the bytes of the directory on disk. Under the lock. */
uint64_t store_disk_bytes(const struct store *st);

/* ---- store_lease.c ---- */

/* Fills in the functions for leases. */
void store_lease_io(struct tier_io *ret);
/* The client closes: its leases end. Under the lock. */
void store_lease_end_all(struct store_client *c);

/* ---- store_queue.c ---- */

/* Takes the lock of the client's store. */
struct store_client *store_lock_client(void *arg);
/* Under the lock. */
bool store_is_on(struct store *st);
char *store_op_file(const struct store *st, const struct store_op *op);
struct store_op *store_op_take(struct store *st, uint32_t blocks);
void store_op_free(struct store *st, struct store_op *op);
/* Drops the queued writes of entries without a lease. */
void store_drop_writes(struct store *st);
/* A read is over: to its client, if that is still there. */
void store_op_arrive(struct store *st, struct store_op *op, int status);
/* Clients may retry: there is room. */
void store_wake_clients(struct store *st);
/* A call that hangs turns the tier off. */
void store_check_calls(struct store *st);
void store_turn_off(struct store *st, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A call failed: counted, and said unless another was within ten seconds. Takes the lock. */
void store_fail(struct store *st, const char *what, const char *path, int error);

#endif
