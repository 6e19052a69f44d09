/* binder_take.c - what packing does for each tensor: room, a check of its values, progress. */
#include "model/load/binder.h"
#include "model/config/config.h"
#include "model/load/weight_memory.h"

#include "base/check.h"
#include "base/files/bundle.h"
#include "compute/backend.h"
#include "compute/weight.h"
#include "memory/placement.h"
#include "tensor/quantise.h"

#include <errno.h>
#include <math.h>

/* A digest depends on all numbers so far, in order. */
static void add(struct binder *b, const uint64_t *numbers, size_t count)
{
    uint64_t all[16] = {b->digest};
    ASSERT(count < COUNT_OF(all));
    memcpy(all + 1, numbers, count * sizeof(numbers[0]));
    b->digest = bundle_check_of(all, (count + 1) * sizeof(all[0]));
}

void binder_note(struct binder *b, const struct weight *w)
{
    const uint64_t numbers[] = {w->n,    w->k,    w->experts, w->expert_bytes, w->form,  w->qparams,
                                w->bits, w->sums, w->codes,   w->biases,       w->group, w->super};
    add(b, numbers, COUNT_OF(numbers));
}

int binder_take(struct binder *b, uint64_t bytes, dev_ptr *ret)
{
    uint64_t from = b->used;
    b->taken_from = from;
    b->used += ROUND_UP(bytes, (uint64_t)64);
    *ret = DEV_NULL;
    add(b, &bytes, 1);
    if (!b->memory)
        return 0;
    int r = weight_memory_commit(b->memory, (size_t)b->used, b->packers);
    if (r < 0)
        return err_set(b->e, r, "the system has no memory for %llu bytes of weights", (ull)b->used);
    *ret = dev_add(b->memory->base, from);
    return 0;
}

void binder_turn(struct binder *b, uint32_t shard)
{
    ASSERT(shard < SHARDS_MAX);
    if (shard == b->shard)
        return;
    b->places[b->shard] = (struct binder_shard){b->memory, b->device, b->used, b->taken_from};
    b->shard = shard;
    b->memory = b->places[shard].memory;
    b->device = b->places[shard].device;
    b->used = b->places[shard].used;
    b->taken_from = b->places[shard].taken_from;
}

int binder_check_finite(struct binder *b, const struct tensor *t, const char *what)
{
    uint64_t n = tensor_count(t);
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(tensor_f32_at(t, i)))
            return err_set(b->e, -EINVAL, "%s holds a value that is infinite or not a number", what);
    }
    return 0;
}

static bool takes_codes(const struct binder *b, const struct linear_source *s)
{
    const enum dtype d = s->weight.dtype;
    return !s->affine && !s->stored && !s->exact && !b->keeps_floats && quantise_group_of(s->in) > 0 &&
           (d == DTYPE_F32 || d == DTYPE_BF16 || d == DTYPE_F16);
}

void binder_quantise(struct binder *b, struct linear_source *parts, uint32_t count, uint32_t bits)
{
    for (uint32_t i = 0; bits > 0 && i < count; i++) {
        struct linear_source *s = &parts[i];
        if (!takes_codes(b, s))
            continue;
        s->at_load = s->affine = true;
        s->bits = bits;
        s->group = quantise_group_of(s->in);
        s->codes = CODES_WHOLE;
        s->bias_kind = BIASES_STORED;
        s->super = 0;
        s->scales = (struct tensor){.dtype = DTYPE_F16, .rank = s->weight.rank};
        memcpy(s->scales.shape, s->weight.shape, sizeof(s->scales.shape));
        s->biases = s->scales;
        b->quantised++;
    }
}

/* ---- experts in the machine's memory ---- */

static void swap(struct binder *b)
{
    const struct binder_memory now = {b->memory, b->device, b->used, b->taken_from, b->ready, b->sums};
    b->memory = b->other.memory;
    b->device = b->other.device;
    b->used = b->other.used;
    b->taken_from = b->other.taken_from;
    b->ready = b->other.ready;
    b->sums = b->other.sums;
    b->other = now;
    b->in_machine = !b->in_machine;
}

bool binder_enter_machine(struct binder *b, uint32_t layer)
{
    ASSERT(!b->in_machine);
    if (!b->placement || !placement_is_apart(b->placement, layer))
        return false;
    swap(b);
    return true;
}

void binder_leave_machine(struct binder *b)
{
    ASSERT(b->in_machine);
    swap(b);
}

const struct backend *binder_backend(const struct binder *b)
{
    return b->in_machine ? &backend_cpu : b->config->backend;
}

/* A device without whole numbers rounds inputs to bf16. The CPU has no such products with codes; its int16 is
 * closer to f32. */
enum compute_mode binder_mode(const struct binder *b, const struct linear_source *s)
{
    const enum compute_mode mode = b->config->compute;
    if (!b->in_machine || b->config->backend->integers || mode == COMPUTE_F32)
        return mode;
    return s->affine || s->stored ? COMPUTE_INT16 : COMPUTE_BF16;
}

/* One more piece of the files has been read; reports the progress. */
int binder_advance(struct binder *b, uint64_t bytes)
{
    b->packed_bytes += bytes;
    if (b->progress && b->progress(b->progress_arg, b->packed_bytes, b->source_bytes_total) != 0)
        return err_set(b->e, -ECANCELED, "the load was cancelled");
    return 0;
}
