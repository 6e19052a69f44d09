/* shared_tier.h - the tier that several servers share: one for the process, below the SSD tier.
 *
 * Owns a store (shared_backend.h), two threads, a fixed staging buffer, and a table of known entries.
 * A model opens a client and uses its tier_io, which never waits. The store may be gone, slow, full,
 * read-only, or lie: that costs cache hits only. After a failure the tier rests for a second, and twice as
 * long each time up to a minute. A thread then tries the store before any request does. A call that lasts
 * slow_ns counts as a failure while it lasts.
 *
 * An entry is written when memory evicts it, when an engine ends, and when a second request has it in
 * its prompt's head; never twice. The time of reads is measured. The estimate falls back to the first one
 * while nothing is read, so the tier tries a slow store again. */
#ifndef PLATEAU_STORE_SHARED_TIER_H
#define PLATEAU_STORE_SHARED_TIER_H

#include "base/err.h"
#include "memory/ledger.h"
#include "store/store.h"

struct shared_backend;
struct shared_tier;

#define SHARED_STACK_BYTES ((size_t)256 << 10)
#define SHARED_SIZE_LEAST  ((uint64_t)16 << 20)

struct shared_tier_opts {
    const char *address;     /* file:///DIR, or as shared_address.h says */
    const char *secret_file; /* NULL: values are not encrypted */
    uint64_t limit_bytes;    /* limit of a directory */
    size_t staging_bytes;
    struct account *memory;               /* pays for everything but the stacks */
    struct account *threads;              /* pays for the stacks */
    const struct shared_backend *backend; /* for tests: instead of the address's */
    uint64_t slow_ns;                     /* 0: 2 s */
    uint64_t close_ns; /* how long a close waits for writes, and then for threads; 0: 2 s */
};

/* Its bytes of `memory`. */
uint64_t shared_tier_bytes(const char *address, size_t staged_bytes);
/* 0; -EINVAL, -EACCES or another error of the address, the secret or the directory, which `e` names;
 * -ENOMEM, -EAGAIN (threads). A store that cannot be reached is tried again later. */
int shared_tier_open(const struct shared_tier_opts *opts, struct shared_tier **ret, struct err *e);
/* As `store_close()`, but for the shared tier. */
void shared_tier_close(struct shared_tier *t);

/* As `store_client_open()`, but the entries are shared. Without leases. */
int shared_client_open(struct shared_tier *t, const struct store_client_opts *opts, struct tier_io *ret);
void shared_client_close(struct tier_io *io);
/* Takes an entry of the client that a second request has used and the store lacks. False: none. */
bool shared_client_wants(struct tier_io *io, struct prefix_key *key, enum tier_kind *kind);

struct shared_numbers {
    char name[128];   /* the store's, without a password */
    char reason[160]; /* last failure; "" if the store can be used */
    bool off;
    uint64_t limit_bytes, bytes; /* a directory's; 0: unknown */
    uint64_t staging_bytes, staging_used_bytes;
    uint64_t reads, read_bytes, read_misses; /* entries */
    uint64_t writes, written_bytes;
    uint64_t drops;   /* entries that were not accepted, or not written */
    uint64_t errors;  /* failures of the store */
    uint64_t corrupt; /* values that were damaged or forged */
    uint32_t queued_reads, queued_writes;
};
/* Any thread. */
void shared_tier_numbers(struct shared_tier *t, struct shared_numbers *ret);
/* True if nothing waits to be written. Any thread. */
bool shared_tier_is_quiet(struct shared_tier *t);

#endif
