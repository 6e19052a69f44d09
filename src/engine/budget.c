/* budget.c - a prompt's cost is what a step took beyond its decoding rows.
 *
 * Small chunks say little about large ones (the weights are read once per step), so an observation weighs more the
 * more tokens it has. A mixed step's remainder is at least a tenth of it: a decoding average that is too high cannot make prompts
 * look free. */
#include "engine/budget.h"

#include "base/check.h"

#define UNKNOWN_TOKENS 64

static void average(double *value, double observed, double weight)
{
    *value = *value > 0 ? *value + weight * (observed - *value) : observed;
}

uint32_t budget_tokens(const struct budget *b, uint64_t target_ns, uint32_t decoding)
{
    double rest_ns = (double)target_ns - decoding * b->decode_ns;
    if (b->prompt_ns <= 0)
        return decoding + UNKNOWN_TOKENS;
    double tokens = MAX_OF(rest_ns / b->prompt_ns, 1.0);
    return decoding + (uint32_t)MIN_OF(tokens, 1e9);
}

void budget_measure(struct budget *b, uint32_t decoding, uint32_t prompt_tokens, uint64_t ns)
{
    double took = (double)ns;
    if (prompt_tokens == 0) {
        if (decoding > 0)
            average(&b->decode_ns, took / decoding, 0.1);
        return;
    }
    double rest = MAX_OF(took - decoding * b->decode_ns, took / 10);
    average(&b->prompt_ns, rest / prompt_tokens, 0.5 * prompt_tokens / (prompt_tokens + 64.0));
}
