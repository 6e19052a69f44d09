/* repetition.c - for each pattern length a run: how many of the last tokens equal the one a pattern before.
 * A pattern of p tokens stands n times at the end exactly if its run has p * (n - 1) tokens or more. So each
 * pair of tokens is compared once, and the tokens themselves are those that the job has anyway.
 *
 * The modes of --repetition-detection ask for many tokens, not for few repeats: a table may have a hundred
 * equal cells and a file a line of eighty dashes, but a loop goes on until the context is full. */
#include "sample/repetition.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

bool repetition_params_named(const char *mode, struct repetition_params *ret)
{
    static const struct repetition_params agents = {
        .pattern_min = 1, .pattern_max = 512, .count = 6, .tokens_min = 768};
    bool reasoning = strcmp(mode, "reasoning") == 0, reply = strcmp(mode, "reply") == 0;
    if (!reasoning && !reply && strcmp(mode, "off") != 0)
        return false;
    *ret = reasoning || reply ? agents : (struct repetition_params){0};
    ret->ends_reasoning = reasoning;
    return true;
}

static uint32_t lengths(const struct repetition_params *p)
{
    return p->pattern_max > 0 ? p->pattern_max - p->pattern_min + 1 : 0;
}

size_t repetition_bytes(const struct repetition_params *params)
{
    return 2 * (size_t)lengths(params) * sizeof(uint32_t);
}

int repetition_create(struct arena *a, const struct repetition_params *params, struct repetition *ret)
{
    uint32_t count = lengths(params);
    struct repetition r = {.params = *params};
    if (count > 0) {
        ASSERT(params->pattern_min >= 1 && params->pattern_max <= REPETITION_PATTERN_MAX);
        ASSERT(params->count >= 2 && params->count <= REPETITION_COUNT_MAX);
        ASSERT(params->tokens_min <= REPETITION_TOKENS_MAX);
        r.runs = ARENA_ARRAY(a, uint32_t, count);
        r.ends = ARENA_ARRAY(a, uint32_t, count);
        if (!r.runs || !r.ends)
            return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t pattern = params->pattern_min + i, run = pattern * (params->count - 1);
        r.ends[i] = MAX_OF(run, params->tokens_min - MIN_OF(pattern, params->tokens_min));
    }
    *ret = r;
    return 0;
}

uint32_t repetition_see(struct repetition *r, const uint32_t *output, uint32_t count)
{
    if (!r->runs || count - r->from <= r->params.pattern_min)
        return 0;
    ASSERT(count > r->from);
    uint32_t first = r->params.pattern_min, found = 0;
    uint32_t longest = MIN_OF(r->params.pattern_max, count - r->from - 1), token = output[count - 1];
    const uint32_t *before = output + (count - 1);
    for (uint32_t p = first; p <= longest; p++) {
        uint32_t run = before[-(ptrdiff_t)p] == token ? r->runs[p - first] + 1 : 0;
        r->runs[p - first] = run;
        found += run >= r->ends[p - first];
    }
    for (uint32_t p = first; found > 0 && p <= longest; p++)
        if (r->runs[p - first] >= r->ends[p - first])
            return p;
    return 0;
}

void repetition_restart(struct repetition *r, uint32_t count)
{
    ASSERT(count >= r->from);
    r->from = count;
    if (r->runs)
        memset(r->runs, 0, lengths(&r->params) * sizeof(*r->runs));
}
