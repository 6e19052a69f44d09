/* weight_memory.c - one mapping, populated ahead of the packing. memory/units is for pools whose units come
 * and go; this only grows, once. */
#include "model/weight_memory.h"

#include "memory/units.h"

#include "base/check.h"
#include "base/pages.h"
#include "base/priority.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

uint64_t weight_memory_round(uint64_t bytes)
{
    return ROUND_UP(bytes, (uint64_t)UNIT_BYTES);
}

int weight_memory_init(struct weight_memory *m, struct account *account, uint64_t bytes)
{
    uint64_t rounded = weight_memory_round(bytes);
    if (rounded == 0 || rounded > SIZE_MAX / 2)
        return -ENOMEM;
    int r = account ? account_reserve(account, rounded) : 0;
    if (r < 0)
        return r;
    size_t map_bytes = (size_t)rounded + UNIT_BYTES;
    void *p = mmap(NULL, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        if (account)
            account_release(account, rounded);
        return -ENOMEM;
    }
    *m = (struct weight_memory){.account = account,
                                .base = {ROUND_UP((uintptr_t)p, UNIT_BYTES)},
                                .bytes = (size_t)rounded,
                                .map = p,
                                .map_bytes = map_bytes};
    (void)madvise((void *)(uintptr_t)m->base.at, m->bytes, MADV_HUGEPAGE);
    return 0;
}

/* Engines wait for the ledger's lock, so a thread of low priority must not be preempted while it has the
 * lock. */
static void count_unit(struct weight_memory *m)
{
    priority_raise();
    if (m->account)
        account_use(m->account, UNIT_BYTES);
    priority_restore();
}

int weight_memory_commit(struct weight_memory *m, size_t bytes)
{
    size_t want = ROUND_UP(bytes, UNIT_BYTES);
    ASSERT(want <= m->bytes);
    if (want <= m->committed)
        return 0;
    /* A unit at a time: the kernel's lock on the address space is held while a range is populated. Other
     * models' engines need it to commit a unit of their own. */
    for (int r; m->committed < want; m->committed += UNIT_BYTES) {
        if ((r = pages_commit((void *)(uintptr_t)(m->base.at + m->committed), UNIT_BYTES)) < 0)
            return r;
        count_unit(m);
    }
    return 0;
}

void weight_memory_put(struct weight_memory *m, dev_ptr to, const void *from, size_t bytes)
{
    (void)m;
    memcpy((void *)(uintptr_t)to.at, from, bytes);
}

void weight_memory_copy(struct weight_memory *m, dev_ptr to, dev_ptr from, size_t bytes)
{
    (void)m;
    memcpy((void *)(uintptr_t)to.at, (const void *)(uintptr_t)from.at, bytes);
}

void weight_memory_done(struct weight_memory *m)
{
    if (!m->map)
        return;
    pages_unmap(m->map, m->map_bytes, (void *)(uintptr_t)m->base.at, m->committed);
    if (m->account) {
        account_unuse(m->account, m->committed);
        account_release(m->account, m->bytes);
    }
    *m = (struct weight_memory){0};
}
