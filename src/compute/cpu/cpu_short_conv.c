/* cpu_short_conv.c - the short convolution, gates included.
 *
 * A sequence's tokens run in order and channels are independent, so tiles are (sequence, channels): one
 * barrier. A tile reads its channels of state_in before it writes state_out: both may be one state. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/layout.h"

struct short_conv_stage {
    struct cpu *cpu;
    const struct op_short_conv *op;
    uint32_t part; /* channels of a tile */
    size_t pending_floats;
};

/* b * u of the channels [from, to) of all the sequence's tokens, in place of u. */
static void gate_inputs(const struct short_conv_stage *st, const struct batch_seq *seq, uint32_t from,
                        uint32_t to)
{
    uint32_t width = st->op->out.width;
    for (uint32_t t = seq->first; t < seq->first + seq->count; t++) {
        const float *b = cpu_row(st->cpu, st->op->in, t);
        float *u = cpu_row(st->cpu, st->op->in, t) + 2 * width;
        for (uint32_t i = from; i < to; i++)
            u[i] *= b[i];
    }
}

static void gate_outputs(const struct short_conv_stage *st, const struct batch_seq *seq, uint32_t from,
                         uint32_t to)
{
    for (uint32_t t = seq->first; t < seq->first + seq->count; t++) {
        const float *gate = cpu_row(st->cpu, st->op->in, t) + st->op->out.width;
        float *y = cpu_row(st->cpu, st->op->out, t);
        for (uint32_t i = from; i < to; i++)
            y[i] *= gate[i];
        cpu_sum_part(st->cpu, st->op->reader->sums, st->op->out, t, from, to);
    }
}

/* Tile: some channels of a sequence. */
static void conv_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct short_conv_stage *st = arg;
    const struct cpu *c = st->cpu;
    const struct op_short_conv *op = st->op;
    uint32_t width = op->out.width, parts = DIV_UP(width, st->part), from = tile % parts * st->part;
    uint32_t to = MIN_OF(from + st->part, width);
    const struct batch_seq *seq = &c->in->seqs[tile / parts];
    const struct cpu_conv conv = {.layer = op->layer,
                                  .channels = width,
                                  .conv_width = op->taps,
                                  .weight = op->conv,
                                  .bias = op->bias,
                                  .u = act_part(op->in, 2 * width, width),
                                  .y = op->out,
                                  .pending_floats = st->pending_floats,
                                  .linear = true};
    (void)worker;
    gate_inputs(st, seq, from, to);
    cpu_conv_part(c, &conv, seq, from, to);
    gate_outputs(st, seq, from, to);
}

/* Multiples of 128 channels: group sums are cut there. */
static uint32_t choose_part(const struct cpu *c, uint32_t width)
{
    uint32_t parts = DIV_UP(workers_count(c->workers), c->in->seq_count);
    return ROUND_UP(DIV_UP(width, parts), 128u);
}

void cpu_short_conv(struct compute *compute, const struct op_short_conv *a)
{
    struct cpu *c = cpu_of(compute);
    struct short_conv_stage st = {c, a, choose_part(c, a->out.width),
                                  short_conv_recurrent_layer(a->taps, a->out.width).token_floats};
    ASSERT(a->in.width == 3 * a->out.width && a->in.from == 0);
    cpu_run(c, conv_tile, &st, c->in->seq_count * DIV_UP(a->out.width, st.part));
}
