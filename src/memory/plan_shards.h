/* plan_shards.h - the devices of a model beside the first one (plan_model.beside), each of which has a part
 * of all pages and states. Pure; any thread. */
#ifndef PLATEAU_MEMORY_PLAN_SHARDS_H
#define PLATEAU_MEMORY_PLAN_SHARDS_H

#include "memory/plan.h"

/* Bytes of the memory of device `index` that the model needs to run with this length, the context's too. */
uint64_t plan_shards_needed(const struct plan_process *p, const struct plan_model *m,
                            const struct plan_wish *w, uint32_t length, uint32_t index);
/* Returns the first device without room for that; beside_count: all have room. */
uint32_t plan_shards_full(const struct plan_process *p, const struct plan_model *m, const struct plan_wish *w,
                          uint32_t length);
/* Lowers a number of snapshots to what all devices have room for; and a number of pages, beside `states`
 * states and the windows of windows_seqs sequences. */
uint64_t plan_shards_fit_snapshots(const struct plan *p, const struct plan_wish *w, uint64_t snapshots);
uint64_t plan_shards_fit_pages(const struct plan *p, const struct plan_wish *w, uint64_t pages,
                               uint64_t states, uint32_t windows_seqs);
/* Sets the limits of the pools for plan.pages_max and states_max. `cached`: pages that no sequence has. */
void plan_shards_share(struct plan *ret, uint32_t windows_seqs, uint64_t cached);
/* Sets plan.beside; after that its lines. */
void plan_shards_plan(struct plan *p, const struct plan_wish *w);
void plan_shards_add(struct plan *p, const struct plan_wish *w);

#endif
