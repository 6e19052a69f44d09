/* budget.h - the number of tokens of a step, from its target time.
 *
 * A step's cost is a line: a fixed part (weights are read, workers meet), a part for each token of decoding
 * sequences, a part for each token of a prompt. The engine measures every step and corrects the three parts.
 * Plain numbers; engine thread only. */
#ifndef PLATEAU_ENGINE_BUDGET_H
#define PLATEAU_ENGINE_BUDGET_H

#include <stdint.h>

struct budget {
    double fixed_ns, seq_ns, prompt_ns; /* cost of a step; of a sequence's token and of a prompt's; 0: nothing
                                         * is measured yet */
};

/* The work that a step competes with. */
struct budget_load {
    uint32_t seq_tokens; /* tokens of decoding sequences: a known token each, and draft tokens */
    uint32_t prompts;    /* sequences that want prompt tokens computed; of several tenants one each */
};

/* Target time of a step that other requests wait for: step_ns. With several waiting prompts it is up to
 * BUDGET_STRETCH of it longer, with one half of that. It is at least BUDGET_OWN times the time of the
 * decoding sequences alone. */
uint64_t budget_shared_ns(const struct budget *b, uint64_t step_ns, const struct budget_load *load);
#define BUDGET_STRETCH 0.5
#define BUDGET_OWN     2.5

/* Tokens of a step that should last target_ns, seq_tokens among them; prompt tokens in whole pages, the
 * nearest count of them and at least one. Two pages while nothing is measured. */
uint32_t budget_tokens(const struct budget *b, uint64_t target_ns, uint32_t seq_tokens);
/* Records the time of a step with these tokens. */
void budget_measure(struct budget *b, uint32_t seq_tokens, uint32_t prompt_tokens, uint64_t ns);

#endif
