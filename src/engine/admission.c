/* admission.c - counters that are right at rest. Two tenants that come at the same moment may see each
 * other's counts a step late; the limit in all is exact. */
#include "engine/admission.h"

#include "base/check.h"

static atomic_uint *count_of(struct admission *a, uint64_t tenant)
{
    /* The number is a part of a digest, or small in tests. */
    return &a->counts[(tenant ^ tenant >> 32) % ADMISSION_STATES];
}

static bool take_total(struct admission *a, uint32_t max)
{
    unsigned taken = atomic_load(&a->total);
    do {
        if (taken >= max)
            return false;
    } while (!atomic_compare_exchange_weak(&a->total, &taken, taken + 1));
    return true;
}

uint32_t admission_share(struct admission *a, uint32_t max)
{
    uint32_t share = max / MAX_OF(atomic_load(&a->tenants), 1u);
    return MAX_OF(share, 1u);
}

bool admission_take(struct admission *a, uint64_t tenant, uint32_t max)
{
    unsigned own = atomic_fetch_add(count_of(a, tenant), 1);
    if (own == 0)
        atomic_fetch_add(&a->tenants, 1);
    if (take_total(a, max) || (own < admission_share(a, max) && take_total(a, ADMISSION_FACTOR * max)))
        return true;
    if (atomic_fetch_sub(count_of(a, tenant), 1) == 1)
        atomic_fetch_sub(&a->tenants, 1);
    return false;
}

void admission_give(struct admission *a, uint64_t tenant)
{
    unsigned total = atomic_fetch_sub(&a->total, 1), own = atomic_fetch_sub(count_of(a, tenant), 1);
    ASSERT(total > 0 && own > 0);
    if (own == 1)
        atomic_fetch_sub(&a->tenants, 1);
}

uint32_t admission_total(struct admission *a)
{
    return atomic_load_explicit(&a->total, memory_order_relaxed);
}

uint32_t admission_count(struct admission *a, uint64_t tenant)
{
    return atomic_load_explicit(count_of(a, tenant), memory_order_relaxed);
}
