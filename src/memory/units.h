/* units.h - memory that is committed and decommitted in commit units of 2 MiB.
 *
 * A pool reserves its whole address range once and then commits units of it. Committing reserves the bytes in
 * the account first, requests a huge page, and populates: a step never faults and never runs out of memory
 * half-way. Decommitting returns the unit to the system at once. A huge page takes some ms where a hypervisor
 * has to find it first. Pools that grow by many units during a step use small units: 128 KiB, in small pages.
 * One thread at a time (the engine's). */
#ifndef PLATEAU_MEMORY_UNITS_H
#define PLATEAU_MEMORY_UNITS_H

#include "memory/dev.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct account;
struct domain;
struct units;

/* An address range of `units_max` units of `unit_bytes` (UNIT_BYTES or UNIT_SMALL_BYTES) in the domain of
 * `account`, which commits are charged to. Nothing is committed yet. 0, -EINVAL, -ENOMEM. */
int units_create(struct account *account, size_t unit_bytes, uint32_t units_max, struct units **ret);
/* Decommits everything. 0; NULL is fine. Or the system's error: `u` is still valid with the ranges that the
 * system refused, and can be freed again. */
int units_free(struct units *u);
/* As `units_free()` for the account, but the address range stays mapped until the process ends. NULL is
 * fine. */
void units_abandon(struct units *u);
/* `account`, of the same domain, pays from now on; the bytes move there whatever its limit. */
void units_charge_to(struct units *u, struct account *account);

/* First byte of the range, 2 MiB aligned; constant. */
dev_ptr units_base(const struct units *u);
const struct domain *units_domain(const struct units *u);
uint32_t units_max(const struct units *u);
uint32_t units_committed(const struct units *u);
/* Calls of unit_commit() that the system refused, and not the account. */
uint64_t units_refused(const struct units *u);
bool unit_is_committed(const struct units *u, uint32_t index);

/* 0, or -ENOMEM (the account or the system refused) and nothing has changed. 0 when committed already. */
int unit_commit(struct units *u, uint32_t index);
/* Threads that may populate several units at once: zeroing dominates a commit, and one thread does not reach
 * the memory bandwidth. */
struct units_crew {
    /* Calls task(task_arg, i) once for each i < count, on any threads, and returns when all are done. False:
     * the threads are busy; nothing was called. */
    bool (*run)(void *arg, void (*task)(void *task_arg, uint32_t i), void *task_arg, uint32_t count);
    void *arg;
};
#define UNITS_AT_ONCE 64
/* Commits the units of `indices` in order until account or system refuses; count <= UNITS_AT_ONCE, and none
 * is committed already. Returns the length of the committed prefix; 0 also when the crew is busy. */
uint32_t units_commit_many(struct units *u, const uint32_t *indices, uint32_t count,
                           const struct units_crew *crew);
/* Decommits the unit; its bytes are gone. A unit that is not committed is left alone. 0, or the system's
 * error and nothing has changed. */
int unit_decommit(struct units *u, uint32_t index);

/* For tests: called before each decommit, of any range and on its thread; nonzero: the decommit fails with
 * that error. */
struct units_faults {
    int (*decommit)(void *arg);
    void *arg;
    int (*commit)(void *arg); /* called before each commit, which fails with -ENOMEM if it is nonzero; NULL:
                               * no commit fails */
};
/* While no other thread uses units. NULL: no faults. */
void units_set_faults(const struct units_faults *f);

/* Asserts that the count of committed units is right, and that the account has their bytes. */
void units_check(const struct units *u);

#endif
