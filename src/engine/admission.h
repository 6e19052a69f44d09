/* admission.h - limits the jobs in an engine, of all tenants and of each.
 *
 * `max` jobs (batch and queue) belong to the active tenants: a single tenant may take them all. When they
 * are taken, a tenant with fewer jobs than its even share still gets places, up to ADMISSION_FACTOR times
 * `max` in all. So one tenant's full queue refuses no other tenant. Tenants are counted in ADMISSION_STATES
 * counters; tenants with the same counter count as one. Any thread; no locks. */
#ifndef PLATEAU_ENGINE_ADMISSION_H
#define PLATEAU_ENGINE_ADMISSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define ADMISSION_STATES 256
#define ADMISSION_FACTOR 2

struct admission {
    atomic_uint total, tenants; /* jobs; counters that are not 0 */
    atomic_uint counts[ADMISSION_STATES];
};

/* One more job of the tenant, from submission to its end. False: it has to wait until others end. */
bool admission_take(struct admission *a, uint64_t tenant, uint32_t max);
void admission_give(struct admission *a, uint64_t tenant);

uint32_t admission_total(struct admission *a);
/* Jobs of the tenant, and its limit while the other tenants keep the number of jobs that they have now. */
uint32_t admission_count(struct admission *a, uint64_t tenant);
uint32_t admission_share(struct admission *a, uint32_t max);

#endif
