/* engine_think.h - an end for reasoning: after so many tokens, or at a loop, the tokens of the marker that
 * ends it follow, whatever the logits say.
 *
 * The state is a function of the output's tokens, so preemption, cache hits and speculative decoding do not
 * change it. Forced tokens are sampled tokens as all others: they count, have the model's logprobs, and the
 * draft tokens that differ from them are rejected. Plain data in a job; engine thread. */
#ifndef PLATEAU_ENGINE_ENGINE_THINK_H
#define PLATEAU_ENGINE_ENGINE_THINK_H

#include "engine/job_spec.h"

#include <stdbool.h>
#include <stdint.h>

#define ENGINE_THINK_NONE UINT32_MAX

struct engine_think {
    struct job_thinking limits; /* limits.close_count 0: nothing is forced */
    uint32_t used;              /* tokens of reasoning */
    bool closes;                /* the marker that ends this reasoning is forced, whatever the budget */
    uint32_t matched;           /* tokens of the next marker that the last tokens match */
};

/* -EINVAL: a marker has more than JOB_MARKER_MAX tokens. */
int engine_think_check(const struct job_thinking *limits, uint32_t vocab);
static inline bool engine_think_is_on(const struct engine_think *t)
{
    return t->limits.close_count > 0;
}
/* The only token that may come next; ENGINE_THINK_NONE: any may. */
uint32_t engine_think_forced(const struct engine_think *t);
/* True within reasoning that can be ended. */
static inline bool engine_think_reasons(const struct engine_think *t)
{
    return engine_think_is_on(t) && t->limits.inside;
}
/* Forces the end of this reasoning; engine_think_reasons(). */
void engine_think_close(struct engine_think *t);
/* The output has this token. */
void engine_think_take(struct engine_think *t, uint32_t token);

#endif
