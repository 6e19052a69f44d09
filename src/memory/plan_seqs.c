/* plan_seqs.c - how many sequences a batch has where the user names no number. */
#include "memory/plan.h"

#include "base/check.h"

#define BYTES_EACH   ((uint64_t)300 << 20) /* bytes of the device's ceiling for each sequence */
#define TOKENS_EACH  512u                  /* tokens in the pages for each sequence */
#define CONTEXT_KEPT 32768u                /* a context of that length may become shorter, down to it */
#define LOAD_PART    8                     /* a load may reserve this part of a ceiling more */

static bool is_light(uint64_t load_bytes, uint64_t least_bytes, uint64_t ceiling_bytes)
{
    return load_bytes <= least_bytes + ceiling_bytes / LOAD_PART;
}

/* Whether the plan carries its sequences, compared with that of the fewest. */
static bool carries(const struct plan *p, const struct plan *least)
{
    ASSERT(p->seqs > least->seqs && p->device.ceiling_bytes == least->device.ceiling_bytes);
    uint64_t tokens = (uint64_t)p->pages_max * p->model.page_tokens;
    return tokens >= (uint64_t)p->seqs * MIN_OF(p->max_model_len, TOKENS_EACH) &&
           p->max_model_len >= MIN_OF(least->max_model_len, CONTEXT_KEPT) &&
           is_light(p->device.load_bytes, least->device.load_bytes, p->device.ceiling_bytes) &&
           is_light(p->load_bytes, least->load_bytes, p->ceiling_bytes);
}

uint32_t plan_seqs(const struct plan_process *process, plan_model_fn *model, void *arg,
                   const struct plan_wish *wish)
{
    struct plan least, p;
    struct plan_refusal why;
    if (plan_make(process, model, arg, PLAN_SEQS_LEAST, wish, &least, &why) < 0 || !least.device.name)
        return PLAN_SEQS_LEAST;
    uint32_t seqs = PLAN_SEQS_MOST;
    while (seqs > PLAN_SEQS_LEAST) {
        if (least.device.ceiling_bytes / seqs >= BYTES_EACH &&
            plan_make(process, model, arg, seqs, wish, &p, &why) == 0 && carries(&p, &least))
            break;
        seqs /= 2;
    }
    ASSERT(seqs >= PLAN_SEQS_LEAST);
    return seqs;
}
