/* row_top.c */
#include "compute/row_top.h"

#include "base/check.h"

#include <math.h>
#include <stdbool.h>

static bool counts(const float *logits, const uint64_t *valid, uint32_t id)
{
    return logits[id] > -INFINITY && (!valid || (valid[id / 64] >> id % 64 & 1));
}

/* Ids come in their order, so equals stay in it. */
static void insert(struct row_top *top, uint32_t most, struct candidate c)
{
    uint32_t at = top->count;
    while (at > 0 && c.logit > top->list[at - 1].logit)
        at--;
    if (at == most)
        return;
    top->count += top->count < most;
    for (uint32_t i = top->count - 1; i > at; i--)
        top->list[i] = top->list[i - 1];
    top->list[at] = c;
}

void row_top_of(const float *logits, uint32_t vocab, const uint64_t *valid, uint32_t want,
                struct row_top *ret)
{
    ASSERT(want <= ROW_TOP_MAX);
    ret->count = 0;
    for (uint32_t i = 0; i < vocab; i++)
        if (counts(logits, valid, i))
            insert(ret, want, (struct candidate){logits[i], i});
}
