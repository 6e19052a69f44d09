/* cpu_state.c - where the parts of a recurrent state lie. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/layout.h"

#include "base/none.h"

static float *state_part(const struct cpu *c, uint32_t state, size_t offset)
{
    return state == NONE
               ? NULL
               : cpu_memory(c, dev_add(c->in->states, state * (uint64_t)c->shape->state_bytes + offset));
}

float *cpu_state(const struct cpu *c, uint32_t state, uint32_t layer)
{
    return state_part(c, state, c->shape->recurrent[layer].offset);
}

float *cpu_state_pending(const struct cpu *c, uint32_t state, uint32_t layer)
{
    return state_part(c, state, c->shape->recurrent[layer].pending_offset);
}

float *cpu_state_hidden(const struct cpu *c, uint32_t state, uint32_t index)
{
    return state_part(c, state, state_hidden_offset(c->shape, index));
}

float *cpu_page_hidden(const struct cpu *c, const struct batch_seq *seq, uint32_t position)
{
    uint64_t page = seq->pages[0][position / PAGE_TOKENS];
    return cpu_memory(c, dev_add(c->in->pages[0], page * c->shape->groups[0].page_bytes +
                                                      page_hidden_offset(c->shape, position)));
}
