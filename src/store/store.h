/* store.h - the SSD service: one for the process, below all models' pools.
 *
 * Owns a directory of content-addressed files (store_file.h), two threads, a fixed staging buffer and an
 * index of the files. A model opens a client and uses its tier_io; it hands in copies and is handed copies,
 * so it has no thread, buffer or file in flight, and closing a client waits for nothing. Losing a file, the
 * disk or the whole tier costs cache hits only.
 *
 * The limit counts blocks of files and directories, as `du` does. It holds before a write: files make room
 * in the order of store_table.h. HEADROOM of the file system stays free. Files are written aside and
 * renamed when complete, and never synced. After the process is killed every file is complete, for the
 * kernel still has its bytes; after a power loss an incomplete one fails its sum and is removed. A failing
 * call is a miss, a counter and at most one log line in ten seconds. After a failed write, writes pause
 * for a second, and twice as long each time up to a minute. A call that lasts hang_ns turns the tier off
 * until the process ends. The directory has one process at a time (a lock that dies with it). For other
 * processes the tier is off until they find it free; so is it while the directory cannot be opened.
 *
 * Leases have at most half of the limit and of the table's entries, so their writes always find files that
 * make room. A tenant has at most half of what the leases of others leave. */
#ifndef PLATEAU_STORE_STORE_H
#define PLATEAU_STORE_STORE_H

#include "base/err.h"
#include "cache/tier_io.h"
#include "memory/ledger.h"
#include "store/store_identity.h"

struct store;
struct store_sys;

/* A file beside those of the tier: its blocks count at the start, and its owner writes it. */
#define STORE_BESIDE        "conversations"
#define STORE_CLIENTS_MAX   64
#define STORE_LEASES_MAX    1024
#define STORE_LIMIT_LEAST   ((uint64_t)4 << 20) /* directories alone may take one and a half */
#define STORE_HEADROOM_MOST ((uint64_t)1 << 30) /* at most a twentieth of the file system */
#define STORE_STACK_BYTES   ((size_t)128 << 10)
#define STORE_THREADS       2

struct store_opts {
    const char *dir;      /* made if its parent is there; copied */
    uint64_t limit_bytes; /* limit of disk blocks; >= STORE_LIMIT_LEAST */
    size_t staging_bytes;
    struct account *staging;     /* pays for the buffer */
    struct account *table;       /* charged for the table, the queue, and the struct itself */
    struct account *threads;     /* pays for the stacks */
    const struct store_sys *sys; /* NULL: the system's */
    uint64_t hang_ns;            /* 0: 10 s */
    uint64_t open_again_ns;      /* between tries of a directory that cannot be used; 0: 5 s */
    uint64_t close_ns;           /* how long a close waits for writes, and once more for threads; 0: 2 s */
};

/* Its most bytes of `table`: 64 for each 64 KiB of the limit, up to 64 MiB, and the queue. */
uint64_t store_table_bytes_max(uint64_t limit_bytes);
/* The threads list the directory and then serve. While a directory cannot be used the tier is off, with the
 * reason in the log, and the directory is tried again. 0, -EINVAL, -ENOMEM, -EAGAIN (threads). */
int store_open(const struct store_opts *opts, struct store **ret, struct err *e);
/* All clients are closed. Writes the accepted entries as far as close_ns goes. A hanging thread is left
 * behind, with the memory that it may touch; the accounts are given back. NULL is fine. */
void store_close(struct store *st);

struct store_client_opts {
    struct store_identity identity;
    size_t bytes[TIER_KINDS]; /* bytes of an entry; 0: the model has none of this kind */
    void (*wake)(
        void *arg); /* an arrival, or room in the staging. Any of the store's threads; short, never waits */
    void *arg;
    /* Limit for snapshots: a file with more pending tokens counts as damaged. The bytes of pages and
     * snapshots are for arithmetic only. */
    uint32_t pending_max;
};
/* 0, or -ENOSPC: there are STORE_CLIENTS_MAX. `ret` is good until the close. */
int store_client_open(struct store *st, const struct store_client_opts *opts, struct tier_io *ret);
/* Accepted entries will still be written, pending reads are forgotten; wake is not called from here on.
 * Waits for nothing. Fine on a zeroed struct. */
void store_client_close(struct tier_io *io);

struct store_cleared {
    uint64_t entries, bytes_reclaimed; /* by how much the directory's blocks have fallen */
    uint64_t failed;                   /* files that could not be removed */
    uint64_t kept, bytes_kept;         /* files of leases */
};
/* Removes every file that no lease has, and drops their writes in the queue. Waits for it: 0, -ETIMEDOUT
 * (after three seconds: it goes on), -ENODEV (the tier is off), -EBUSY (another one is under way). Any thread
 * but the store's. */
int store_clear(struct store *st, struct store_cleared *ret);

enum store_state { STORE_LISTING, STORE_ON, STORE_OFF };
const char *store_state_name(enum store_state s);

/* Counters since the start, gauges as of now. */
struct store_numbers {
    enum store_state state;
    char reason[160];                       /* with STORE_OFF */
    uint64_t limit_bytes, bytes;            /* disk blocks */
    uint32_t pages, snapshots, entries_max; /* pages: of all groups */
    uint32_t queued_reads, queued_writes;
    uint64_t staging_bytes, staging_used_bytes;
    uint64_t reads, read_bytes, read_misses; /* counts of files; misses: missing or damaged */
    uint64_t writes, written_bytes;
    uint64_t drops;     /* copies that were not accepted, or not written because there was no room */
    uint64_t errors;    /* calls that failed */
    uint64_t corrupt;   /* files that were removed because they are not what their name says */
    uint64_t evictions; /* files that made room */
    uint64_t foreign;   /* names in the directory that are not ours; left alone */
    uint32_t leases;
    uint64_t leased_bytes, lease_bytes_max; /* also promised ones, and without a file yet */
    int write_error;                        /* error of the last write; 0: it succeeded */
};
/* Any thread. */
void store_numbers(struct store *st, struct store_numbers *ret);

#endif
