/* tenants.h - counters of each tenant's requests for each model: the series that /metrics shows to a tenant.
 *
 * A tenant is an API key, or a client's address where there are no keys. Bound: TENANTS_MAX pairs of a tenant
 * and a model, of 168 bytes. When it is reached, the pair unused for longest is dropped, and its counters
 * start at 0 again. Network thread. */
#ifndef PLATEAU_API_TENANTS_H
#define PLATEAU_API_TENANTS_H

#include <stddef.h>
#include <stdint.h>

struct metrics_counts;

#define TENANTS_MAX 1024

struct tenants;

size_t tenants_bytes(void);
/* 0 or -ENOMEM. */
int tenants_create(struct tenants **ret);
/* NULL is fine. */
void tenants_free(struct tenants *t);

/* The pair's counters, new ones for a new pair. Valid until the next call. */
struct metrics_counts *tenants_counts(struct tenants *t, uint64_t tenant, uint32_t model);
/* NULL: the pair has no counters. */
const struct metrics_counts *tenants_find_counts(const struct tenants *t, uint64_t tenant, uint32_t model);

#endif
