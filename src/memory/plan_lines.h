/* plan_lines.h - a line of a plan, and the part of a plan on a device. Pure; any thread. */
#ifndef PLATEAU_MEMORY_PLAN_LINES_H
#define PLATEAU_MEMORY_PLAN_LINES_H

#include "memory/plan.h"

/* Adds a line below the last one of its domain. */
void plan_lines_add(struct plan *p, uint32_t domain, uint32_t depth, const char *name,
                    enum account_class class, uint64_t floor, uint64_t limit, const char *note);
/* The model's account on a device, which has a floor and a limit of its own. */
struct plan_device plan_lines_device(const struct plan *p, uint32_t domain, uint64_t floor, uint64_t limit);

#endif
