/* thinking_budget.h - the budget of a request's reasoning, and the markers by which a job ends it. On prep
 * threads. */
#ifndef PLATEAU_GEN_THINKING_BUDGET_H
#define PLATEAU_GEN_THINKING_BUDGET_H

#include <stdbool.h>

struct arena;
struct gen;

/* Fills g->thinking from the request's budget and the markers of the chat format, if a budget or loops end
 * its reasoning. Sets
 * request.budget_unused where the format has no reasoning, a marker is too long, or the model lacks its
 * tokens. False: g->reject has the error. */
bool thinking_budget_make(struct gen *g, struct arena *scratch);

#endif
