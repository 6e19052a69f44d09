/* weight_memory.h - memory of a domain that holds a model's packed weights, from load to unload.
 *
 * All bytes are reserved in the account before the first is committed; commits follow the packing in units of
 * 2 MiB, huge pages where the system has them. The loading thread only, until the model is loaded; then
 * constant. */
#ifndef PLATEAU_MODEL_WEIGHT_MEMORY_H
#define PLATEAU_MODEL_WEIGHT_MEMORY_H

#include "memory/domain.h"

#include <stddef.h>

struct weight_memory {
    const struct domain *domain;
    struct account *account; /* may be NULL */
    dev_ptr base;            /* 2 MiB aligned */
    size_t bytes, committed;
};

/* Memory that `bytes` of weights take: whole units. */
uint64_t weight_memory_round(uint64_t bytes);
/* Reserves room for `bytes`; `account` is of the domain, or NULL. 0 or -ENOMEM. */
int weight_memory_init(struct weight_memory *m, const struct domain *domain, struct account *account,
                       uint64_t bytes);
/* Makes the first `bytes` usable, zeroed. 0 or -ENOMEM. */
int weight_memory_commit(struct weight_memory *m, size_t bytes);
/* Releases all memory. Fine on a zeroed struct. */
void weight_memory_done(struct weight_memory *m);

#endif
