/* cpu_conv.c - the causal convolution that recurrent layers begin with, of some channels. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"

#include <math.h>
#include <string.h>

static void keep_inputs(const struct cpu *c, const struct cpu_conv *a, const struct batch_seq *seq,
                        uint32_t from, uint32_t to)
{
    float *pending = cpu_state_pending(c, seq->state_out, a->layer) + from;
    for (uint32_t t = 0; t < seq->count; t++)
        memcpy(pending + t * a->pending_floats, cpu_row(c, a->u, seq->first + t) + from,
               (to - from) * sizeof(float));
}

void cpu_conv_part(const struct cpu *c, const struct cpu_conv *a, const struct batch_seq *seq, uint32_t from,
                   uint32_t to)
{
    struct kern_conv k = {.y = cpu_row(c, a->y, seq->first),
                          .u = cpu_row(c, a->u, seq->first),
                          .w = cpu_floats(c, a->weight),
                          .bias = cpu_floats(c, a->bias),
                          .state_in = cpu_state(c, seq->state_in, a->layer),
                          .state_out = cpu_state(c, seq->state_out, a->layer),
                          .pending_u = cpu_state_pending(c, seq->state_in, a->layer),
                          .tokens = seq->count,
                          .channels = a->channels,
                          .conv_width = a->conv_width,
                          .pending = seq->pending,
                          .y_stride = cpu_stride(c, a->y),
                          .u_stride = cpu_stride(c, a->u),
                          .pending_stride = a->pending_floats,
                          .keep_pending = seq->keep_pending,
                          .linear = a->linear};
    c->ops->conv(&k, from, to);
    if (k.keep_pending)
        keep_inputs(c, a, seq, from, to);
}

float cpu_sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

float cpu_softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}
