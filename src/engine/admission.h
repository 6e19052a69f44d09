/* admission.h - how many jobs may be in an engine at once, of all tenants and of each.
 *
 * `max` jobs (rows and queue) belong to the tenants that have some: one tenant alone may take them all. When
 * they are taken, a tenant that has fewer than its even share still gets places, up to ADMISSION_FACTOR times
 * `max` in all, so a full queue of one tenant refuses no other. Tenants are counted in ADMISSION_SLOTS
 * counters; those that fall together count as one tenant. Any thread; no locks. */
#ifndef PLATEAU_ENGINE_ADMISSION_H
#define PLATEAU_ENGINE_ADMISSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ADMISSION_SLOTS  256
#define ADMISSION_FACTOR 2

struct admission {
    atomic_uint total, tenants; /* jobs; counters that are not 0 */
    atomic_uint counts[ADMISSION_SLOTS];
};

/* One more job of the tenant, from submission to its end. False: it has to wait until others end. */
bool admission_take(struct admission *a, uint64_t tenant, uint32_t max);
void admission_give(struct admission *a, uint64_t tenant);

uint32_t admission_total(struct admission *a);
/* Jobs of the tenant, and the jobs that it may have while all others have as many as now. */
uint32_t admission_count(struct admission *a, uint64_t tenant);
uint32_t admission_share(struct admission *a, uint32_t max);

#endif
