/* plan_pages.h - bytes of pages and states, and how many there is room for: arithmetic of plan.c that the
 * devices of a model share. Pure; any thread. */
#ifndef PLATEAU_MEMORY_PLAN_PAGES_H
#define PLATEAU_MEMORY_PLAN_PAGES_H

#include "memory/plan.h"

/* Bytes of the machine, and bytes of the device if the model computes on one. */
struct plan_need {
    uint64_t machine, device;
};

uint64_t plan_pages_of(const struct plan_model *m, uint64_t tokens);
/* Bytes in whole units, and one more in which blocks begin or end; 0 of 0. */
uint64_t plan_in_units(uint64_t bytes);
/* States of the batch's sequences, and of the ends of agents. */
uint64_t plan_seqs_states(const struct plan_model *m, const struct plan_wish *w);
uint64_t plan_agents_states(const struct plan_model *m, const struct plan_wish *w);
uint32_t plan_agent_tokens(const struct plan_wish *w, uint32_t length);
uint64_t plan_full_page_bytes(const struct plan_model *m);
uint64_t plan_windows_bytes(const struct plan_model *m, uint32_t length, uint32_t seqs, uint64_t cached);
uint64_t plan_pages_floor(const struct plan_model *m, const struct plan_wish *w, uint32_t length);
uint32_t plan_windows_floor(const struct plan_wish *w);
uint64_t plan_kv_floor(const struct plan_model *m, const struct plan_wish *w, uint32_t length);
uint64_t plan_state_floor(const struct plan_model *m, const struct plan_wish *w);
uint64_t plan_pools_floor(const struct plan_model *m, const struct plan_wish *w, uint32_t length);
uint64_t plan_tables_bytes(const struct plan_model *m, uint64_t pages, uint64_t states);
uint64_t plan_pages_left(const struct plan_model *m, struct plan_need left, uint64_t others_bytes,
                         uint64_t states);

#endif
