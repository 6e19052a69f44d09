/* binder_heads.c - matrices of heads, one each, packed as a stack like experts.
 *
 * Turned matrices, of which the checkpoint has the transpose, are read whole into the stage, where a second
 * part has room for the result. Groups of a quantised matrix run along its rows, so the transpose has none:
 * it is dense, in f32, which holds the values as they are. In every compute mode
 * products of heads are in f32, as their inputs are small parts of rows. */
#include "model/config/config.h"
#include "model/load/binder.h"
#include "model/load/packers.h"
#include "model/load/weight_staging.h"

#include "base/check.h"
#include "compute/backend.h"
#include "compute/weight.h"

#include <errno.h>

static enum dtype turned_dtype(const struct linear_source *s)
{
    return s->affine ? DTYPE_F32 : s->weight.dtype;
}

/* Describes the transpose for packing, without its values. */
static struct linear_source turned(const struct linear_source *s)
{
    struct linear_source t = {.experts = 1, .out = s->in, .in = s->out};
    t.weight = (struct tensor){.dtype = turned_dtype(s), .rank = 2, .shape = {s->in, s->out}};
    t.weight.bytes = (size_t)(s->in * s->out) * dtype_bytes(t.weight.dtype);
    return t;
}

static size_t aligned(size_t bytes)
{
    return ROUND_UP(bytes, (size_t)64);
}

/* The rows of a whole matrix in the stage. */
static size_t rows_bytes(const struct linear_source *s)
{
    return aligned((size_t)weight_staging_whole_bytes(s));
}

static void turn(const struct linear_source *s, char *to)
{
    size_t bytes = dtype_bytes(turned_dtype(s)), n = (size_t)s->out, columns = (size_t)s->in;
    const char *from = s->weight.data;
    for (size_t row = 0; row < n; row++) {
        for (size_t k = 0; k < columns; k++) {
            float value = s->affine ? linear_source_at(s, 0, row, k) : 0;
            memcpy(to + (k * n + row) * bytes,
                   s->affine ? (const char *)&value : from + (row * columns + k) * bytes, bytes);
        }
    }
}

static int pack_turned(struct binder *b, const struct linear_source *s, const struct weight *w)
{
    struct weight_staging *stage = packers_staging(b->packers);
    struct linear_source rows, t = turned(s);
    ASSERT(stage->bytes >= rows_bytes(s) + t.weight.bytes);
    int r = weight_staging_rows(stage, s, 0, s->out, &rows, b->e);
    if (r == 0)
        r = binder_check_quantised(b->checkpoint, s, &rows, b->e);
    if (r < 0)
        return r;
    ASSERT(rows.out == s->out);
    char *to = stage->memory + rows_bytes(s);
    turn(&rows, to);
    t.weight.data = to;
    b->config->backend->weight_put(b->device, w, 0, &t);
    binder_drop(b, s);
    return binder_advance(b, binder_source_bytes(s));
}

static void count(struct binder *b, const struct linear_source *s, bool turn_it, uint64_t packed)
{
    uint64_t stage = turn_it ? rows_bytes(s) + turned(s).weight.bytes : weight_staging_matrix_bytes(s);
    b->active.bytes += packed;
    b->active.source_bytes += binder_source_bytes(s);
    b->active.products += s->out * s->in;
    b->parameters += s->out * s->in;
    b->source_bytes += binder_source_bytes(s);
    b->stage_bytes = MAX_OF(b->stage_bytes, stage);
}

int binder_heads(struct binder *b, const struct linear_source *parts, uint32_t heads, bool turn_them,
                 struct projection *ret)
{
    const struct backend *backend = b->config->backend;
    const struct linear_source form = turn_them ? turned(&parts[0]) : parts[0];
    uint64_t stride = ROUND_UP(backend->weight_bytes(&form, 1, COMPUTE_F32), (uint64_t)64);
    dev_ptr at;
    int r = binder_take(b, stride * heads, &at);
    if (r < 0)
        return r;
    for (uint32_t i = 0; r == 0 && i < heads; i++) {
        const struct weight one = backend->weight_begin(&form, 1, COMPUTE_F32, dev_add(at, i * stride));
        count(b, &parts[i], turn_them, stride);
        if (binder_packs(b))
            r = turn_them ? pack_turned(b, &parts[i], &one) : binder_pack(b, &parts[i], 1, &one);
    }
    struct weight stack = backend->weight_begin(&form, 1, COMPUTE_F32, at);
    stack.experts = heads;
    stack.expert_bytes = stride;
    b->sums |= stack.sums;
    binder_note(b, &stack);
    *ret = (struct projection){
        .in = stack.k, .out = stack.n, .part_count = 1, .sums = stack.sums, .parts = {stack}};
    return r;
}
