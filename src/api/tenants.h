/* tenants.h - what each tenant's requests came to, for each model: the series that /metrics shows to a
 * tenant.
 *
 * A tenant is an API key, or a client's address where there are no keys. Bound: TENANTS_MAX pairs of a tenant
 * and a model, of 144 bytes. With more, the pair that has rested longest goes, and its counters begin again
 * at 0. Network thread. */
#ifndef PLATEAU_API_TENANTS_H
#define PLATEAU_API_TENANTS_H

#include "api/metrics.h"

#define TENANTS_MAX 1024

struct tenants;

size_t tenants_bytes(void);
/* 0 or -ENOMEM. */
int tenants_create(struct tenants **ret);
/* NULL is fine. */
void tenants_free(struct tenants *t);

/* The pair's counters, new ones where there are none: to be added to before the next call. */
struct metrics_counts *tenants_counts(struct tenants *t, uint64_t tenant, uint32_t model);
/* NULL: nothing has been counted. */
const struct metrics_counts *tenants_look(const struct tenants *t, uint64_t tenant, uint32_t model);

#endif
