/* domain.h - a kind of memory with its own ceiling: the machine's, pinned memory, one per device.
 *
 * A domain commits parts of reserved address ranges and copies bytes. Its ceiling is the limit of its root
 * account in the ledger. Only the domain's own copies follow an address of it. */
#ifndef PLATEAU_MEMORY_DOMAIN_H
#define PLATEAU_MEMORY_DOMAIN_H

#include "memory/dev.h"
#include "memory/ledger.h"

#define UNIT_BYTES       ((size_t)2 << 20)
#define UNIT_SMALL_BYTES ((size_t)128 << 10)

/* A device's memory by the driver's figures. */
struct domain_figures {
    uint64_t total_bytes, free_bytes;
    /* Taken now, and neither committed by this process nor its context's: of other programs, and the driver's
     * own. */
    uint64_t others_bytes;
    /* By how much more is taken than when the device was opened, less what has been committed since: by the
     * driver itself, and by other programs. */
    int64_t unaccounted_bytes;
};

/* Any thread. Sizes of reserve are multiples of UNIT_SMALL_BYTES, places and sizes of open, populate and
 * decommit multiples of 4096. */
struct domain_ops {
    /* Addresses for `bytes`, aligned to UNIT_BYTES; nothing is committed. `small`: it will be committed in
     * small units. 0 or -ENOMEM. */
    int (*reserve)(void *arg, uint64_t bytes, bool small, dev_ptr *ret);
    /* The whole range of a reserve, decommitted as far as the system took it back. 0, or the system's error
     * and it is still there. */
    int (*release)(void *arg, dev_ptr base, uint64_t bytes);
    /* Commits the bytes, zeroed if they were not committed; the system may fill them in populate() only. What
     * fails in either is the caller's to decommit. 0 or -ENOMEM. */
    int (*open)(void *arg, dev_ptr at, uint64_t bytes);
    /* After open; several threads may populate parts of a range. 0 or -ENOMEM. */
    int (*populate)(void *arg, dev_ptr at, uint64_t bytes);
    /* The bytes are gone. 0, or the system's error and nothing has gone. */
    int (*decommit)(void *arg, dev_ptr at, uint64_t bytes);

    /* In the order of the calls and of the steps of that device. A failure shows at the end of the device's
     * next step, or in get(). */
    void (*copy)(void *arg, dev_ptr to, dev_ptr from, uint64_t bytes);    /* they do not overlap */
    void (*put)(void *arg, dev_ptr to, const void *from, uint64_t bytes); /* `from` is read on return */
    int (*get)(void *arg, void *to, dev_ptr from, uint64_t bytes);        /* complete on return; 0 or -EIO */

    /* Committed bytes by the driver's own count, a device's context counted, to compare with the accounts.
     * NULL: the driver has none. */
    uint64_t (*committed)(void *arg);
    /* 0, -ENODEV: the device is lost, or -ENODATA: the driver does not say. Waits for no step. NULL: the
     * driver has none. */
    int (*figures)(void *arg, struct domain_figures *ret);
};

#define DOMAINS_MAX 18 /* domains of a process: the machine, pinned memory, 16 devices */

struct domain {
    const char *name; /* "machine", "pinned", "fake:0" */
    enum account_class class;
    const struct domain_ops *ops;
    void *arg;     /* for ops */
    bool resident; /* committed bytes are resident memory of this process */
};

/* The memory of the machine. Addresses are those of plain memory. */
const struct domain *domain_machine(void);

/* For messages: which part of the server holds memory of the domain ("the server", "device fake:0"), and the
 * option that sets its ceiling. */
#define DOMAIN_HOLDER_BYTES 96
const char *domain_holder(const struct domain *d, char ret[DOMAIN_HOLDER_BYTES]);
const char *domain_limit_option(const struct domain *d);

static inline int domain_reserve(const struct domain *d, uint64_t bytes, bool small, dev_ptr *ret)
{
    return d->ops->reserve(d->arg, bytes, small, ret);
}

static inline int domain_release(const struct domain *d, dev_ptr base, uint64_t bytes)
{
    return d->ops->release(d->arg, base, bytes);
}

static inline int domain_open(const struct domain *d, dev_ptr at, uint64_t bytes)
{
    return d->ops->open(d->arg, at, bytes);
}

static inline int domain_populate(const struct domain *d, dev_ptr at, uint64_t bytes)
{
    return d->ops->populate(d->arg, at, bytes);
}

static inline int domain_decommit(const struct domain *d, dev_ptr at, uint64_t bytes)
{
    return d->ops->decommit(d->arg, at, bytes);
}

/* Opens and populates the bytes. 0, or -ENOMEM and they are not committed. */
static inline int domain_commit(const struct domain *d, dev_ptr at, uint64_t bytes)
{
    int r = domain_open(d, at, bytes);
    if (r == 0)
        r = domain_populate(d, at, bytes);
    if (r < 0)
        (void)domain_decommit(d, at, bytes);
    return r;
}

static inline void domain_copy(const struct domain *d, dev_ptr to, dev_ptr from, uint64_t bytes)
{
    d->ops->copy(d->arg, to, from, bytes);
}

static inline void domain_put(const struct domain *d, dev_ptr to, const void *from, uint64_t bytes)
{
    d->ops->put(d->arg, to, from, bytes);
}

static inline int domain_get(const struct domain *d, void *to, dev_ptr from, uint64_t bytes)
{
    return d->ops->get(d->arg, to, from, bytes);
}

static inline bool domain_figures(const struct domain *d, struct domain_figures *ret)
{
    return d->ops->figures && d->ops->figures(d->arg, ret) == 0;
}

#endif
