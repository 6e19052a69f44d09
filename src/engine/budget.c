/* budget.c - estimates the time of a step as a line, and corrects its parts after each step by their shares.
 *
 * A step that took 10 % longer than the sum of its parts raises each part, a larger share by more. So a step
 * of one sequence mostly corrects the fixed part, one of 500 prompt tokens the part per prompt token. Parts
 * stay positive, and no history can go stale when steps of one kind are rare. An average per decoding
 * sequence, tried before, included the fixed part: one sequence's cost was expected of each of sixteen, and
 * prompts got the small rest of the step, a page. The first step sets the line from its proportions on CPUs:
 * the fixed part equals 5 to 11 prompt tokens, a sequence 1 to 2.3.
 *
 * With steps of step_ns and half a dozen decoding sequences, a third of the time goes into the fixed part
 * and the sequences. That is right while one prompt is read; for ten more in the queue a longer step is a
 * shorter wait. Half a step longer, not a whole one, so that gaps stay below two steps where other programs
 * take some ms of one. (By the share of waiting prompts, tried before: with twelve decoding sequences and
 * four prompts nothing was left of it, and the last prompts waited longest.) */
#include "engine/budget.h"

#include "base/check.h"
#include "base/page_tokens.h"

#include <math.h>

#define UNKNOWN_TOKENS    (2 * PAGE_TOKENS)
#define FIRST_FIXED       8.0 /* prompt tokens */
#define FIRST_SEQ         2.0
#define RATE              0.25
#define SURPRISE_MAX      2.0 /* bound on how much longer an outlier step counts (other programs) */
#define PROMPT_TOKENS_MAX 1e9

static double line(const struct budget *b, double seq_tokens, double prompt_tokens)
{
    return b->fixed_ns + seq_tokens * b->seq_ns + prompt_tokens * b->prompt_ns;
}

uint64_t budget_shared_ns(const struct budget *b, uint64_t step_ns, const struct budget_load *load)
{
    double behind = load->prompts > 1 ? load->prompts - 1 : 0;
    double ns = (double)step_ns * (1 + BUDGET_STRETCH * behind / (behind + 1));
    double own = load->seq_tokens > 0 ? line(b, load->seq_tokens, 0) : 0;
    return (uint64_t)MAX_OF(ns, BUDGET_OWN * own);
}

uint32_t budget_tokens(const struct budget *b, uint64_t target_ns, uint32_t seq_tokens)
{
    if (b->prompt_ns <= 0)
        return seq_tokens + UNKNOWN_TOKENS;
    double tokens = ((double)target_ns - line(b, seq_tokens, 0)) / b->prompt_ns;
    double pages = MAX_OF(round(MIN_OF(tokens, PROMPT_TOKENS_MAX) / PAGE_TOKENS), 1.0);
    return seq_tokens + (uint32_t)pages * PAGE_TOKENS;
}

static void correct(double *part, double tokens, double expected, double surprise)
{
    ASSERT(expected > 0);
    *part += *part * (RATE * surprise * *part * tokens / expected);
}

void budget_measure(struct budget *b, uint32_t seq_tokens, uint32_t prompt_tokens, uint64_t ns)
{
    if (b->prompt_ns <= 0) {
        b->prompt_ns = MAX_OF((double)ns, 1.0) / (FIRST_FIXED + FIRST_SEQ * seq_tokens + prompt_tokens);
        b->fixed_ns = FIRST_FIXED * b->prompt_ns;
        b->seq_ns = FIRST_SEQ * b->prompt_ns;
        return;
    }
    double expected = line(b, seq_tokens, prompt_tokens);
    double surprise = MIN_OF((double)ns / expected, SURPRISE_MAX) - 1;
    correct(&b->fixed_ns, 1, expected, surprise);
    correct(&b->seq_ns, seq_tokens, expected, surprise);
    correct(&b->prompt_ns, prompt_tokens, expected, surprise);
}
