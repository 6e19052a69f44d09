/* budget.h - from how long a step should last to how many tokens it may have.
 *
 * A moving average of what a token cost: one for decoding rows, one for prompts. Plain numbers; the engine thread's. */
#ifndef PLATEAU_ENGINE_BUDGET_H
#define PLATEAU_ENGINE_BUDGET_H

#include <stdint.h>

struct budget {
    double decode_ns, prompt_ns; /* per token; 0 = not measured yet */
};

/* Tokens of a step with so many decoding rows that should last target_ns, at least one prompt token; 64 while a prompt's
 * cost is unknown. */
uint32_t budget_tokens(const struct budget *b, uint64_t target_ns, uint32_t decoding);
/* A step of so many tokens took so long. */
void budget_measure(struct budget *b, uint32_t decoding, uint32_t prompt_tokens, uint64_t ns);

#endif
