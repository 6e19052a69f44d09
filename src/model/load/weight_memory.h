/* weight_memory.h - memory of a domain that holds a model's packed weights, from load to unload.
 *
 * All bytes are reserved in the account before the first is committed; commits follow the packing in units of
 * 2 MiB, huge pages where the system has them. The loading thread only, until the model is loaded; then
 * constant. */
#ifndef PLATEAU_MODEL_WEIGHT_MEMORY_H
#define PLATEAU_MODEL_WEIGHT_MEMORY_H

#include "base/files/mapped_file.h"
#include "memory/dev.h"

#include <stddef.h>

struct domain;
struct packers;

struct weight_memory {
    const struct domain *domain;
    struct account *account; /* may be NULL */
    dev_ptr base;            /* 2 MiB aligned */
    size_t bytes, committed;
    struct mapped_file mapped; /* a packed file: its bytes instead of the domain's */
};

/* Memory that `bytes` of weights take: whole units. */
uint64_t weight_memory_round(uint64_t bytes);
/* Reserves room for `bytes`; `account` is of the domain, or NULL. 0 or -ENOMEM. */
int weight_memory_init(struct weight_memory *m, const struct domain *domain, struct account *account,
                       uint64_t bytes);
/* The weights lie in a packed file, which is mapped and is only read; it takes *mapped over, also where it
 * fails. `account` is charged as for `used` bytes of its own. 0 or -ENOMEM. */
int weight_memory_map(struct weight_memory *m, struct mapped_file *mapped, uint64_t used,
                      struct account *account);
/* 0, or -EIO: its file was cut or changed. Memory of its own has none. */
int weight_memory_check(const struct weight_memory *m);
/* Makes the first `bytes` usable, zeroed; `packers` fill them, NULL: the caller. 0 or -ENOMEM. */
int weight_memory_commit(struct weight_memory *m, size_t bytes, struct packers *packers);
/* Releases all memory. Fine on a zeroed struct. */
void weight_memory_done(struct weight_memory *m);

#endif
