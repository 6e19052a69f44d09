/* weight_memory.c - one range, populated ahead of the packing. memory/units is for pools whose units come
 * and go; this only grows, once. */
#include "model/load/weight_memory.h"

#include "model/load/packers.h"

#include "base/check.h"
#include "base/threads/priority.h"
#include "memory/domain.h"
#include "memory/ledger.h"

#include <errno.h>

struct weight_staging;

#define FILLED_AT_ONCE 32u /* that are filled together */

uint64_t weight_memory_round(uint64_t bytes)
{
    return ROUND_UP(bytes, (uint64_t)UNIT_BYTES);
}

int weight_memory_init(struct weight_memory *m, const struct domain *domain, struct account *account,
                       uint64_t bytes)
{
    uint64_t rounded = weight_memory_round(bytes);
    if (rounded == 0 || rounded > SIZE_MAX / 2)
        return -ENOMEM;
    int r = account ? account_reserve(account, rounded) : 0;
    if (r < 0)
        return r;
    *m = (struct weight_memory){.domain = domain, .account = account, .bytes = (size_t)rounded};
    r = domain_reserve(domain, rounded, false, &m->base);
    if (r == 0)
        return 0;
    if (account)
        account_release(account, rounded);
    *m = (struct weight_memory){0};
    return r;
}

int weight_memory_map(struct weight_memory *m, struct mapped_file *mapped, uint64_t used,
                      struct account *account)
{
    const uint64_t rounded = weight_memory_round(used);
    ASSERT(used <= mapped->bytes);
    int r = account ? account_reserve(account, rounded) : 0;
    if (r < 0) {
        mapped_file_close(mapped);
        return r;
    }
    if (account)
        account_use(account, rounded);
    *m = (struct weight_memory){.domain = domain_machine(),
                                .account = account,
                                .base = {(uintptr_t)mapped->at},
                                .bytes = (size_t)rounded,
                                .committed = (size_t)rounded,
                                .mapped = *mapped};
    *mapped = (struct mapped_file){0};
    return 0;
}

int weight_memory_check(const struct weight_memory *m)
{
    return m->mapped.at ? mapped_file_check(&m->mapped, NULL) : 0;
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

static dev_ptr next_unit(const struct weight_memory *m, uint32_t unit)
{
    ASSERT(m->committed + (unit + 1) * UNIT_BYTES <= m->bytes);
    return dev_add(m->base, m->committed + unit * UNIT_BYTES);
}

/* A unit at a time: the kernel's lock on the address space is held while a range is populated. Other models'
 * engines need it to commit a unit of their own. */
static int fill_unit(void *arg, uint32_t unit, struct weight_staging *stage, struct err *e)
{
    const struct weight_memory *m = arg;
    (void)stage, (void)e;
    return domain_populate(m->domain, next_unit(m, unit), UNIT_BYTES);
}

/* The next units; all of them or none. */
static int commit_units(struct weight_memory *m, uint32_t count, struct packers *packers)
{
    const struct packers_work fill = {.tile = fill_unit, .arg = m};
    uint32_t opened = 0;
    int r = 0;
    while (r == 0 && opened < count)
        r = domain_open(m->domain, next_unit(m, opened++), UNIT_BYTES);
    if (r == 0)
        r = packers_run(packers, &fill, count, NULL);
    for (uint32_t i = 0; r < 0 && i < opened; i++)
        (void)domain_decommit(m->domain, next_unit(m, i), UNIT_BYTES);
    for (uint32_t i = 0; r == 0 && i < count; i++, m->committed += UNIT_BYTES)
        count_unit(m);
    return r;
}

int weight_memory_commit(struct weight_memory *m, size_t bytes, struct packers *packers)
{
    size_t want = ROUND_UP(bytes, UNIT_BYTES);
    int r = 0;
    ASSERT(want <= m->bytes);
    while (r == 0 && m->committed < want)
        r = commit_units(m, (uint32_t)MIN_OF((want - m->committed) / UNIT_BYTES, (size_t)FILLED_AT_ONCE),
                         packers);
    return r;
}

void weight_memory_done(struct weight_memory *m)
{
    if (!m->domain)
        return;
    const bool own = !m->mapped.at;
    for (size_t at = 0; own && at < m->committed; at += UNIT_BYTES)
        (void)domain_decommit(m->domain, dev_add(m->base, at), UNIT_BYTES);
    if (own)
        (void)domain_release(m->domain, m->base, m->bytes);
    mapped_file_close(&m->mapped);
    if (m->account) {
        account_unuse(m->account, m->committed);
        account_release(m->account, m->bytes);
    }
    *m = (struct weight_memory){0};
}
