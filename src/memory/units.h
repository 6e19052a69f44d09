/* units.h - memory that is committed and given back 2 MiB at a time.
 *
 * A pool reserves its whole address range once and then commits units of it. Committing reserves the bytes in
 * the account first, asks for a huge page, and populates: a step never faults and never finds the memory
 * missing half-way. Decommitting gives the unit back to the system at once. A huge page takes some ms to come
 * where a hypervisor has to find it first. What grows by many units while others wait has small ones: of 128
 * KiB, in small pages. One thread at a time (the engine's). */
#ifndef PLATEAU_MEMORY_UNITS_H
#define PLATEAU_MEMORY_UNITS_H

#include "memory/ledger.h"

#define UNIT_BYTES       ((size_t)2 << 20)
#define UNIT_SMALL_BYTES ((size_t)128 << 10)

struct units;

/* An address range of `units_max` units charged to `account` as they are committed. Nothing is committed.
 * 0, -EINVAL, -ENOMEM. */
int units_create(struct account *account, uint32_t units_max, struct units **ret);
/* The same in units of UNIT_SMALL_BYTES. */
int units_create_small(struct account *account, uint32_t units_max, struct units **ret);
/* Decommits everything. 0; NULL is fine. Or what the system said, and `u` is still there with what it would
 * not take: to be freed again. */
int units_free(struct units *u);
/* As units_free() to the account, but the address range stays as it is until the process ends. NULL is
 * fine. */
void units_abandon(struct units *u);
/* The account that pays from now on; the bytes move there whatever its limit. */
void units_charge_to(struct units *u, struct account *account);

/* First byte of the range, 2 MiB aligned; constant. */
char *units_base(const struct units *u);
uint32_t units_max(const struct units *u);
uint32_t units_committed(const struct units *u);
bool unit_is_committed(const struct units *u, uint32_t index);

/* 0, or -ENOMEM (the account or the system said no) and nothing has changed. Committed already: 0. */
int unit_commit(struct units *u, uint32_t index);
/* Threads that may populate several units at once: zeroing is what a commit takes, and one thread zeroes less
 * than memory can take. */
struct units_crew {
    /* Calls task(task_arg, i) once for each i < count, on any threads, and returns when all are done. False:
     * the threads do other things; nothing was called. */
    bool (*run)(void *arg, void (*task)(void *task_arg, uint32_t i), void *task_arg, uint32_t count);
    void *arg;
};
#define UNITS_AT_ONCE 64
/* Commits those of the `count` <= UNITS_AT_ONCE units that account and system give, in their order; none is
 * committed already. Returns how many those are: the first ones. 0 also when the crew does other things. */
uint32_t units_commit_many(struct units *u, const uint32_t *indices, uint32_t count,
                           const struct units_crew *crew);
/* Gives the unit back; its bytes are gone. Not committed: nothing. 0, or what the system said and nothing has
 * changed. */
int unit_decommit(struct units *u, uint32_t index);

/* For tests: asked before each unit is given back, of any range and on its thread; nonzero: the system says
 * that. */
struct units_faults {
    int (*decommit)(void *arg);
    void *arg;
};
/* While no other thread uses units. NULL: nothing goes wrong. */
void units_set_faults(const struct units_faults *f);

/* Asserts that as many units are committed as are counted, and that the account has them. */
void units_check(const struct units *u);

#endif
