/* engine_mask.c - constrained decoding: what a job's grammar allows next.
 *
 * The matcher follows sampled tokens only, and they are never taken back, so it stays right when a sequence
 * is preempted. Draft tokens are tried and rewound. */
#include "engine/engine_state.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>

#define MASK_WORK_MAX ((uint64_t)1 << 20) /* steps of the automaton; about 20 ms */

static bool fail(struct job *j, int error)
{
    const char *why = error == -E2BIG
                          ? "grammar_too_complex: the grammar has too many ways to read the output"
                          : "no token of the model continues the output as its grammar asks";
    snprintf(j->finish.error, sizeof(j->finish.error), "%s; it ends after %u tokens.", why, j->output_count);
    j->finish.reason = FINISH_ERROR;
    j->ends = true;
    return false;
}

static bool is_allowed(const struct engine *en, uint32_t id)
{
    return en->mask[id / 64] >> (id % 64) & 1;
}

bool engine_mask(struct engine *en, struct job *j, uint32_t *outputs)
{
    struct matcher_mask m;
    uint32_t stops = 0;
    *outputs = j->output_count;
    if (!j->matcher)
        return true;
    cached_grammar_lock(j->grammar);
    int r = matcher_mask(j->matcher, MASK_WORK_MAX, (uint32_t *)en->mask, &m);
    cached_grammar_unlock(j->grammar);
    if (r < 0 || m.count == 0)
        return fail(j, r);
    /* The grammar goes before min_tokens. */
    const struct sampler_params *p = sampler_params_of(j->sampler);
    for (uint32_t i = 0; i < p->stop_count; i++)
        stops += is_allowed(en, p->stop_ids[i]);
    if (stops >= m.count)
        *outputs = MAX_OF(*outputs, j->min_tokens);
    sampler_allow(j->sampler, en->mask);
    return true;
}

void engine_mask_take(struct job *j, uint32_t token)
{
    if (!j->matcher)
        return;
    cached_grammar_lock(j->grammar);
    int r = matcher_take(j->matcher, token);
    cached_grammar_unlock(j->grammar);
    if (r != 1) {
        fail(j, r);
    } else if (matcher_has_ended(j->matcher)) {
        j->finish.stop_token = token;
        j->finish.reason = FINISH_STOP;
        j->ends = true;
    }
}

uint32_t engine_mask_drafts(struct job *j, const uint32_t *drafts, uint32_t count)
{
    uint32_t right = 0;
    if (!j->matcher)
        return count;
    cached_grammar_lock(j->grammar);
    uint32_t marks = matcher_marks(j->matcher);
    while (right < count && matcher_take(j->matcher, drafts[right]) == 1)
        right++;
    matcher_rewind(j->matcher, marks);
    cached_grammar_unlock(j->grammar);
    return right;
}
