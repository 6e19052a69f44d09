/* weight_memory.h - anonymous memory that holds a model's packed weights, from load to unload.
 *
 * All bytes are reserved in the account before the first is committed; commits follow the packing in units of
 * 2 MiB, huge pages where the system has them. The loading thread only, until the model is loaded; then
 * constant. */
#ifndef PLATEAU_MODEL_WEIGHT_MEMORY_H
#define PLATEAU_MODEL_WEIGHT_MEMORY_H

#include "compute/dev.h"
#include "memory/ledger.h"

#include <stddef.h>

struct weight_memory {
    struct account *account; /* may be NULL */
    dev_ptr base;            /* 2 MiB aligned */
    size_t bytes, committed;
    void *map;
    size_t map_bytes;
};

/* Memory that `bytes` of weights take: whole units. */
uint64_t weight_memory_round(uint64_t bytes);
/* Reserves room for `bytes`. 0 or -ENOMEM. */
int weight_memory_init(struct weight_memory *m, struct account *account, uint64_t bytes);
/* Makes the first `bytes` usable, zeroed. 0 or -ENOMEM. */
int weight_memory_commit(struct weight_memory *m, size_t bytes);
/* `bytes` of usable memory at `to`, from host memory or from another place of weights. */
void weight_memory_put(struct weight_memory *m, dev_ptr to, const void *from, size_t bytes);
void weight_memory_copy(struct weight_memory *m, dev_ptr to, dev_ptr from, size_t bytes);
/* Releases all memory. Fine on a zeroed struct. */
void weight_memory_done(struct weight_memory *m);

#endif
