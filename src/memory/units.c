/* units.c - a flag per unit over a range of a domain. */
#include "memory/units.h"

#include "memory/domain.h"
#include "memory/ledger.h"

#include "base/check.h"

#include <errno.h>
#include <stdlib.h>

struct units {
    const struct domain *domain;
    struct account *account;
    size_t unit_bytes;
    uint32_t units_max, committed;
    uint64_t refused;
    dev_ptr base;
    bool is_committed[];
};

static struct units_faults faults;

void units_set_faults(const struct units_faults *f)
{
    faults = f ? *f : (struct units_faults){0};
}

int units_create(struct account *account, size_t unit_bytes, uint32_t units_max, struct units **ret)
{
    const struct domain *domain = account_domain(account);
    ASSERT(UNIT_BYTES % unit_bytes == 0 && unit_bytes % UNIT_SMALL_BYTES == 0);
    if (units_max == 0)
        return -EINVAL;
    struct units *u = calloc(1, sizeof(*u) + units_max * sizeof(u->is_committed[0]));
    if (!u)
        return -ENOMEM;
    u->domain = domain;
    u->account = account;
    u->units_max = units_max;
    u->unit_bytes = unit_bytes;
    int r = domain_reserve(domain, (uint64_t)units_max * unit_bytes, unit_bytes < UNIT_BYTES, &u->base);
    if (r < 0) {
        free(u);
        return r;
    }
    ASSERT(u->base.at % UNIT_BYTES == 0 && !dev_is_null(u->base));
    *ret = u;
    return 0;
}

int units_free(struct units *u)
{
    int failed = 0;
    if (!u)
        return 0;
    for (uint32_t i = 0; i < u->units_max; i++) {
        int r = unit_decommit(u, i);
        failed = failed ? failed : r;
    }
    ASSERT(failed < 0 || u->committed == 0);
    if (failed == 0)
        failed = domain_release(u->domain, u->base, (uint64_t)u->units_max * u->unit_bytes);
    if (failed == 0)
        free(u);
    return failed;
}

void units_abandon(struct units *u)
{
    if (!u)
        return;
    ASSERT(u->committed <= u->units_max);
    account_unuse(u->account, (uint64_t)u->committed * u->unit_bytes);
    account_release(u->account, (uint64_t)u->committed * u->unit_bytes);
    free(u);
}

void units_charge_to(struct units *u, struct account *account)
{
    ASSERT(account_domain(account) == u->domain);
    account_move(u->account, account, (uint64_t)u->committed * u->unit_bytes);
    u->account = account;
    ASSERT(account_numbers(account).used >= (uint64_t)u->committed * u->unit_bytes);
}

dev_ptr units_base(const struct units *u)
{
    return u->base;
}

const struct domain *units_domain(const struct units *u)
{
    return u->domain;
}

uint32_t units_max(const struct units *u)
{
    return u->units_max;
}

uint32_t units_committed(const struct units *u)
{
    return u->committed;
}

uint64_t units_refused(const struct units *u)
{
    return u->refused;
}

bool unit_is_committed(const struct units *u, uint32_t index)
{
    ASSERT(index < u->units_max);
    return u->is_committed[index];
}

static dev_ptr unit_start(const struct units *u, uint32_t index)
{
    return dev_add(u->base, (uint64_t)index * u->unit_bytes);
}

int unit_commit(struct units *u, uint32_t index)
{
    ASSERT(index < u->units_max);
    if (u->is_committed[index])
        return 0;
    int r = account_reserve(u->account, u->unit_bytes);
    if (r < 0)
        return r;
    r = faults.commit && faults.commit(faults.arg)
            ? -ENOMEM
            : domain_commit(u->domain, unit_start(u, index), u->unit_bytes);
    if (r < 0) {
        u->refused++;
        account_release(u->account, u->unit_bytes);
        return r;
    }
    account_use(u->account, u->unit_bytes);
    u->is_committed[index] = true;
    u->committed++;
    ASSERT(u->committed <= u->units_max);
    return 0;
}

/* ---- many at once ---- */

struct populating {
    struct units *units;
    const uint32_t *indices;
    bool failed[UNITS_AT_ONCE];
};

static void populate_one(void *arg, uint32_t i)
{
    struct populating *p = arg;
    const struct units *u = p->units;
    ASSERT(i < UNITS_AT_ONCE);
    p->failed[i] = domain_populate(u->domain, unit_start(u, p->indices[i]), u->unit_bytes) < 0;
}

/* Charges units and makes them accessible; returns how many of them. */
static uint32_t open_many(struct units *u, const uint32_t *indices, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(indices[i] < u->units_max && !u->is_committed[indices[i]]);
        if (account_reserve(u->account, u->unit_bytes) < 0)
            return i;
        if (domain_open(u->domain, unit_start(u, indices[i]), u->unit_bytes) < 0) {
            (void)domain_decommit(u->domain, unit_start(u, indices[i]), u->unit_bytes);
            account_release(u->account, u->unit_bytes);
            return i;
        }
    }
    return count;
}

/* Undoes open_many() for indices from `from` on. */
static void close_many(struct units *u, const uint32_t *indices, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        ASSERT(!u->is_committed[indices[i]]);
        (void)domain_decommit(u->domain, unit_start(u, indices[i]), u->unit_bytes);
        account_release(u->account, u->unit_bytes);
    }
}

uint32_t units_commit_many(struct units *u, const uint32_t *indices, uint32_t count,
                           const struct units_crew *crew)
{
    ASSERT(count <= UNITS_AT_ONCE);
    if (faults.commit && faults.commit(faults.arg))
        return 0;
    struct populating p = {.units = u, .indices = indices};
    uint32_t opened = open_many(u, indices, count), done = 0;
    if (opened > 0 && crew->run(crew->arg, populate_one, &p, opened)) {
        while (done < opened && !p.failed[done])
            done++;
    }
    ASSERT(done <= opened && opened <= count);
    close_many(u, indices, done, opened);
    for (uint32_t i = 0; i < done; i++)
        u->is_committed[indices[i]] = true;
    u->committed += done;
    account_use(u->account, done * u->unit_bytes);
    return done;
}

int unit_decommit(struct units *u, uint32_t index)
{
    ASSERT(index < u->units_max);
    if (!u->is_committed[index])
        return 0;
    int r = faults.decommit ? faults.decommit(faults.arg) : 0;
    if (r == 0)
        r = domain_decommit(u->domain, unit_start(u, index), u->unit_bytes);
    if (r < 0)
        return r;
    ASSERT(u->committed > 0);
    u->is_committed[index] = false;
    u->committed--;
    account_unuse(u->account, u->unit_bytes);
    account_release(u->account, u->unit_bytes);
    return 0;
}

void units_check(const struct units *u)
{
    uint32_t committed = 0;
    for (uint32_t i = 0; i < u->units_max; i++)
        committed += u->is_committed[i];
    struct account_numbers n = account_numbers(u->account);
    ASSERT_OF(committed == u->committed, "account %s: %u units are committed, %u counted", n.name, committed,
              u->committed);
}
