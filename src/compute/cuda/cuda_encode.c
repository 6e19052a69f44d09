/* cuda_encode.c - block operations of a vision encoder. An operation goes into the queue as a whole. Where
 * the queue holds more than about half a millisecond of work, the host waits for earlier operations. So a
 * step begins soon after a slice that ends by the clock.
 *
 * In bf16 mode the operation in front of a product writes the inputs of the product, rounded. Attention of
 * heads of up to 128 numbers runs on tensor cores (kernels/encode_attend.cu). */
#include "compute/cuda/cuda_step.h"
#include "compute/encode.h"

#include <math.h>
#include <string.h>

_Static_assert((int)CUDA_POSITIONS_CUBIC == (int)ENCODE_POSITIONS_CUBIC &&
                   (int)CUDA_POSITIONS_AXES == (int)ENCODE_POSITIONS_AXES &&
                   (int)CUDA_POSITIONS_PAIRS == (int)ENCODE_POSITIONS_PAIRS,
               "layouts are alike");

#define ALIGN       64u
#define ROW_FLOATS  32u
#define CUDA_LEVELS 256u
/* Multiply-adds of tensor cores that a multiprocessor does in about 0.2 ms. The other numbers are the cost of
 * a multiply-add elsewhere, and of a value of a row, in such multiply-adds. */
#define AHEAD       ((uint64_t)384 << 20)
#define PLAIN_COST  16u
#define ATTEND_COST 2u
#define VALUE_COST  256u

/* The backend's arrays for an image. */
struct arrays {
    uint64_t keys;           /* cuda_encode.keys or heads_at */
    uint64_t cosines, sines; /* [axes][edge][head_dim / 4], of a row or a column */
    uint64_t levels;         /* [ENCODE_CHANNELS][CUDA_LEVELS] */
    uint64_t pixels;         /* frames, one after the other */
    uint64_t rounded;        /* inputs of the next product as bf16 */
    uint64_t bytes;
};

/* Values of a head in memory where attention runs on tensor cores; 0: it does not. */
static uint32_t key_width(const struct encode_shape *s)
{
    static const uint32_t widths[] = {32, 64, 80, 128};
    for (uint32_t i = 0; compute_rounds(s->mode) && i < COUNT_OF(widths); i++)
        if (s->head_dim <= widths[i])
            return widths[i];
    return 0;
}

static uint64_t keys_bytes(const struct encode_shape *s, uint64_t patches)
{
    uint64_t rows = ROUND_UP(patches, (uint64_t)PAGE_TOKENS);
    return 2 * rows * s->heads *
           (key_width(s) ? key_width(s) * sizeof(uint16_t) : s->head_dim * sizeof(float));
}

static struct arrays lay_out(const struct encode_shape *s, uint64_t patches, uint64_t edge)
{
    uint64_t pixels = patches * s->patch * s->patch * ENCODE_CHANNELS * s->frames;
    uint64_t angles = ROUND_UP(encode_axes(s) * edge * (s->head_dim / 4) * sizeof(float), (uint64_t)ALIGN);
    struct arrays a = {.keys = 0};
    a.cosines = ROUND_UP(keys_bytes(s, patches), (uint64_t)ALIGN);
    a.sines = a.cosines + angles;
    a.levels = a.sines + angles;
    a.pixels = a.levels + ENCODE_CHANNELS * CUDA_LEVELS * sizeof(float);
    a.rounded = ROUND_UP(a.pixels + pixels, (uint64_t)ALIGN);
    a.bytes = a.rounded;
    if (compute_rounds(s->mode))
        a.bytes += (uint64_t)s->slice_max * ROUND_UP(s->read_max, CUDA_UNIT) * sizeof(uint16_t);
    return a;
}

uint64_t cuda_encode_bytes(const struct encode_shape *s, uint64_t patches, uint64_t edge)
{
    return lay_out(s, patches, edge).bytes;
}

struct encode_rows cuda_encode_rows(dev_ptr at, uint32_t width, bool read, unsigned sums)
{
    (void)read;
    (void)sums;
    return (struct encode_rows){at, ROUND_UP(width, ROW_FLOATS), 0};
}

static uint32_t patches_of(const struct encode_image *p)
{
    return p->rows * p->columns;
}

static struct arrays arrays_of(const struct encode_image *p)
{
    return lay_out(p->shape, encode_image_rows(p), MAX_OF(p->rows, p->columns));
}

/* ---- on the host ---- */

/* Where the angles of columns begin, in floats: rows use the first half of a head's frequencies, columns the
 * second, which may be the same. */
static uint32_t columns_at(const struct encode_image *p)
{
    return encode_axes(p->shape) < 2 ? 0 : MAX_OF(p->rows, p->columns) * (p->shape->head_dim / 4);
}

/* Angles of whole numbers. */
static void put_tables(struct cuda_device *d, const struct encode_image *p)
{
    const struct arrays a = arrays_of(p);
    uint32_t n = p->shape->head_dim / 4, edge = MAX_OF(p->rows, p->columns);
    uint64_t apart = (a.sines - a.cosines) / sizeof(float);
    const uint64_t bytes = 2 * apart * sizeof(float);
    if (bytes == 0)
        return;
    float *cosines = (float *)(void *)cuda_staging_take(d, bytes), *sines = cosines + apart;
    for (uint32_t j = 0; j < n * encode_axes(p->shape); j++) {
        double frequency = (double)(j % n) + (j < n ? 0 : 0.5);
        float inv = (float)pow(p->shape->theta, -frequency / n);
        size_t at = j < n ? j : columns_at(p) + j - n;
        for (uint32_t i = 0; i < edge; i++) {
            cosines[at + (size_t)i * n] = (float)cos((double)i * inv);
            sines[at + (size_t)i * n] = (float)sin((double)i * inv);
        }
    }
    cuda_staging_put(d, dev_add(p->own, a.cosines), (const char *)cosines, bytes);
    cuda_staging_give(d, (char *)cosines, bytes);
}

/* The values of a pixel's byte, by channel. */
static void put_levels(struct cuda_device *d, const struct encode_image *p)
{
    const struct encode_shape *s = p->shape;
    const uint64_t bytes = ENCODE_CHANNELS * CUDA_LEVELS * sizeof(float);
    float *levels = (float *)(void *)cuda_staging_take(d, bytes);
    for (uint32_t c = 0; c < ENCODE_CHANNELS; c++) {
        for (uint32_t i = 0; i < CUDA_LEVELS; i++)
            levels[c * CUDA_LEVELS + i] = (float)((i / 255.0 - s->mean[c]) / s->std[c]);
    }
    cuda_staging_put(d, dev_add(p->own, arrays_of(p).levels), (const char *)levels, bytes);
    cuda_staging_give(d, (char *)levels, bytes);
}

static uint64_t frame_bytes(const struct encode_image *p)
{
    return (uint64_t)patches_of(p) * p->shape->patch * p->shape->patch * ENCODE_CHANNELS;
}

/* Whether the image has two frames, which differ. */
static bool has_second(const struct encode_image *p)
{
    return p->shape->frames > 1 && p->frames[1] != p->frames[0];
}

/* Bytes [from, end) of a frame go to their place on the device. */
static void put_bytes(struct cuda_device *d, dev_ptr to, const uint8_t *frame, uint64_t from, uint64_t end)
{
    const uint64_t each = MIN_OF((uint64_t)CUDA_STAGING_BYTES / 2, end - from);
    char *staging = cuda_staging_take(d, each);
    for (uint64_t at = from; at < end; at += each) {
        uint64_t bytes = MIN_OF(each, end - at);
        memcpy(staging, frame + at, bytes);
        cuda_staging_put(d, dev_add(to, at), staging, bytes);
        cuda_staging_wait(d, staging);
    }
    cuda_staging_give(d, staging, each);
}

/* The rows of tokens, or of windows, that the operation's patches are in. */
static void put_pixels(struct cuda_device *d, const struct op_encode *op)
{
    const struct encode_image *p = op->image;
    const struct encode_shape *s = p->shape;
    const uint64_t row_patches = (uint64_t)p->columns * s->merge * MAX_OF(s->window, 1u);
    const uint64_t row_bytes = row_patches * s->patch * s->patch * ENCODE_CHANNELS;
    const uint64_t from = op->from / row_patches, end = DIV_UP(op->from + op->count, row_patches);
    const dev_ptr to = dev_add(p->own, arrays_of(p).pixels);
    const uint64_t first = from * row_bytes, last = MIN_OF(end * row_bytes, frame_bytes(p));
    if (first >= last)
        return;
    put_bytes(d, to, p->frames[0], first, last);
    if (has_second(p))
        put_bytes(d, dev_add(to, frame_bytes(p)), p->frames[1], first, last);
}

/* ---- on the device ---- */

static struct cuda_rows rows_of(const struct encode_rows *r, uint32_t width)
{
    return (struct cuda_rows){cuda_pointer(r->at), r->stride, width};
}

static bool has_fragments(const struct projection *p)
{
    return p && p->parts[0].form == CUDA_FRAGMENTS;
}

/* The rows that the product `reads` in bf16, if it does. */
static struct cuda_rounded rounded_of(const struct op_encode *op, const struct projection *reads)
{
    if (!has_fragments(reads))
        return (struct cuda_rounded){0};
    ASSERT(reads->in <= op->image->shape->read_max *
                            (op->by_token ? op->image->shape->merge * op->image->shape->merge : 1));
    return (struct cuda_rounded){cuda_pointer(dev_add(op->image->own, arrays_of(op->image).rounded)),
                                 op->count, 0};
}

static struct cuda_encode encode_of(const struct op_encode *op)
{
    const struct encode_image *p = op->image;
    const struct encode_shape *s = p->shape;
    const struct arrays a = arrays_of(p);
    const dev_ptr pixels = dev_add(p->own, a.pixels);
    const dev_ptr second = has_second(p) ? dev_add(pixels, frame_bytes(p)) : pixels;
    const bool turns = encode_axes(s) > 0;
    return (struct cuda_encode){.x = rows_of(&op->x, op->width),
                                .y = rows_of(&op->y, op->width),
                                .z = rows_of(&op->z, op->width),
                                .from = op->from,
                                .count = op->count,
                                .width = op->width,
                                .parts = op->norm_parts,
                                .bias = cuda_pointer(op->bias),
                                .norm_weight = cuda_pointer(op->norm_weight),
                                .norm_bias = cuda_pointer(op->norm_bias),
                                .eps = op->eps,
                                .factor = op->factor,
                                .rms = op->rms,
                                .by_value = op->by_value,
                                .heads = s->heads,
                                .head_dim = s->head_dim,
                                .merge = s->merge,
                                .rows = p->rows,
                                .columns = p->columns,
                                .grid = op->grid,
                                .function = (uint32_t)op->function,
                                .gated = op->gated,
                                .add = op->kind == ENCODE_ADD || op->kind == ENCODE_ADD_NORM,
                                .norm = op->kind == ENCODE_ADD_NORM,
                                .keep = op->kind == ENCODE_KEYS,
                                .patches = encode_image_rows(p),
                                .class_row = s->class_row,
                                .factors = cuda_pointer(op->factors),
                                .class_values = cuda_pointer(op->class_values),
                                .window = s->window,
                                .in_windows = op->in_windows,
                                .scale = s->plain_scores ? 1 : (float)(1 / sqrt((double)s->head_dim)),
                                .cosines = turns ? cuda_pointer(dev_add(p->own, a.cosines)) : NULL,
                                .sines = turns ? cuda_pointer(dev_add(p->own, a.sines)) : NULL,
                                .columns_at = columns_at(p),
                                .apart = s->rotation == ENCODE_ROTATE_APART,
                                .value_norm = cuda_pointer(op->value_norm),
                                .clip_min = cuda_pointer(op->clip_min),
                                .clip_max = cuda_pointer(op->clip_max),
                                .keys = cuda_pointer(dev_add(p->own, a.keys)),
                                .heads_at = key_width(s) ? cuda_pointer(dev_add(p->own, a.keys)) : NULL,
                                .key_rows = ROUND_UP(encode_image_rows(p), (uint32_t)PAGE_TOKENS),
                                .key_width = key_width(s),
                                .rounded = rounded_of(op, op->reader),
                                .pixels = {cuda_pointer(pixels), cuda_pointer(second)},
                                .levels = cuda_pointer(dev_add(p->own, a.levels)),
                                .patch = s->patch,
                                .frames = s->frames,
                                .image_width = p->width,
                                .channels_last = s->channels_last,
                                .table = cuda_matrix(op->w ? &op->w->parts[0] : NULL),
                                .positions = (uint32_t)s->positions};
}

/* The rows that an operation leaves rounded. */
static const float *result_of(const struct op_encode *op, const struct cuda_encode *k)
{
    return op->kind == ENCODE_ADD_NORM ? k->z.at : op->kind == ENCODE_ACT ? k->x.at : k->y.at;
}

/* Inputs that another product made become bf16 here. */
static void round_inputs(struct cuda *c, const struct op_encode *op, const struct cuda_encode *k)
{
    struct cuda_round round = {k->x, rounded_of(op, op->w), DIV_UP(op->w->in, CUDA_UNIT)};
    if (c->encode_rounded == k->x.at)
        return;
    round.x.width = op->w->in;
    cuda_run(c, CUDA_KERNEL_round, cuda_by_row(op->count), &round);
    c->encode_rounded = k->x.at;
}

static void multiply(struct cuda *c, const struct op_encode *op, const struct cuda_encode *k)
{
    const struct weight *w = &op->w->parts[0];
    ASSERT(op->w->part_count == 1);
    if (!has_fragments(op->w)) {
        cuda_multiply(c, w, k->x, k->y, NULL, op->count);
        return;
    }
    round_inputs(c, op, k);
    const struct cuda_product product = {
        .w = cuda_matrix(w), .x = k->x, .y = k->y, .count = op->count, .rounded = rounded_of(op, op->w)};
    cuda_multiply_fragments(c, w, &product);
    if (c->encode_rounded == k->y.at)
        c->encode_rounded = NULL;
}

static void attend(struct cuda *c, const struct cuda_encode *k)
{
    const struct cuda_grid plain = {k->count, k->heads, 1, CUDA_THREADS, 0};
    const struct cuda_grid grid = {DIV_UP(k->count, CUDA_ENCODE_QUERIES), k->heads, 1, CUDA_ENCODE_THREADS,
                                   CUDA_ENCODE_SHARED(k->key_width)};
    const uint32_t size = k->key_width == 32 ? 0 : k->key_width == 64 ? 1 : k->key_width == 80 ? 2 : 3;
    const enum cuda_kernel first = k->in_windows ? CUDA_KERNEL_encode_windows32 : CUDA_KERNEL_encode_attend32;
    if (k->key_width == 0)
        cuda_run(c, CUDA_KERNEL_encode_attend, plain, k);
    else
        cuda_run(c, (enum cuda_kernel)(first + size), grid, k);
}

static void run_kernel(struct cuda *c, const struct op_encode *op)
{
    const struct cuda_encode k = encode_of(op);
    if (op->kind != ENCODE_PROJECT)
        c->encode_rounded = k.rounded.at ? result_of(op, &k) : NULL;
    switch (op->kind) {
    case ENCODE_PIXELS:
        cuda_run(c, CUDA_KERNEL_encode_pixels, cuda_by_row(op->count), &k);
        break;
    case ENCODE_PROJECT:
        multiply(c, op, &k);
        break;
    case ENCODE_POSITIONS:
        cuda_run(c, CUDA_KERNEL_encode_positions, cuda_by_row(op->count), &k);
        break;
    case ENCODE_NORM:
        cuda_run(c, CUDA_KERNEL_encode_norm, cuda_by_row(op->count), &k);
        break;
    case ENCODE_KEYS:
    case ENCODE_QUERIES:
        cuda_run(c, CUDA_KERNEL_encode_heads, cuda_by_row(op->count), &k);
        break;
    case ENCODE_ATTEND:
        attend(c, &k);
        break;
    case ENCODE_ACT:
        ASSERT(op->function == GLU_SILU || op->function == GLU_GELU_TANH || op->function == GLU_GELU_ERF);
        cuda_run(c, CUDA_KERNEL_encode_act, cuda_by_row(op->count), &k);
        break;
    case ENCODE_POOL:
        cuda_run(c, CUDA_KERNEL_encode_pool, cuda_by_row(op->count), &k);
        break;
    case ENCODE_STANDARD:
    case ENCODE_CLIP:
        cuda_run(c, CUDA_KERNEL_encode_values, cuda_by_row(op->count), &k);
        break;
    case ENCODE_IN_ROWS:
        cuda_run(c, CUDA_KERNEL_encode_in_rows, cuda_by_row(op->count), &k);
        break;
    default:
        ASSERT(op->kind == ENCODE_ADD_NORM || (op->kind == ENCODE_ADD && !op->reader) ||
               (op->kind == ENCODE_BIAS && !op->reader));
        cuda_run(c, CUDA_KERNEL_encode_bias, cuda_by_row(op->count), &k);
    }
}

/* ---- how much of it is in the queue ---- */

static uint64_t cost_of(const struct op_encode *op)
{
    const struct encode_shape *s = op->image->shape;
    if (op->kind == ENCODE_PROJECT)
        return (uint64_t)op->count * op->w->in * op->w->out * (has_fragments(op->w) ? 1 : PLAIN_COST);
    if (op->kind == ENCODE_ATTEND)
        return (uint64_t)2 * op->count * patches_of(op->image) * s->hidden *
               (key_width(s) ? ATTEND_COST : PLAIN_COST);
    return (uint64_t)op->count * op->width * VALUE_COST;
}

/* After each AHEAD of work an event. When the next one is put there, the host waits for it: twice AHEAD and
 * one operation are in the queue at most. Without events for nothing. */
static void wait_for_earlier(struct cuda *c, uint64_t cost)
{
    const struct cuda_driver *v = c->device->driver;
    c->encode_cost += cost;
    if (c->encode_cost < AHEAD * c->device->units)
        return;
    c->encode_cost = 0;
    for (uint32_t i = 0; i < COUNT_OF(c->encoded); i++)
        if (!c->encoded[i] && v->event_create(&c->encoded[i], CUDA_EVENT_SLEEPS | CUDA_EVENT_UNTIMED) != 0)
            c->encoded[i] = NULL;
    if (!c->encoded[0] || !c->encoded[1]) {
        (void)cuda_drain(c->device, "encode");
        return;
    }
    if (cuda_done(c, v->event_record(c->encoded[c->encode_turn], c->device->stream), "encode"))
        c->encode_turn = !c->encode_turn;
    (void)cuda_done(c, v->event_wait(c->encoded[c->encode_turn]), "encode");
}

void cuda_encode_end(struct cuda *c)
{
    for (uint32_t i = 0; i < COUNT_OF(c->encoded); i++)
        if (c->encoded[i])
            (void)c->device->driver->event_destroy(c->encoded[i]);
}

bool cuda_encode(struct compute *compute, const struct op_encode *op, uint32_t *at)
{
    struct cuda *c = cuda_of(compute);
    cuda_use(c->device);
    if (c->device->profile)
        cuda_profile_let(c->device);
    *at = 1;
    if (op->count == 0 && op->kind != ENCODE_TABLES)
        return true;
    if (op->kind == ENCODE_TABLES) {
        put_tables(c->device, op->image);
        put_levels(c->device, op->image);
    } else {
        if (op->kind == ENCODE_PIXELS)
            put_pixels(c->device, op);
        run_kernel(c, op);
    }
    cuda_queued(c->device);
    wait_for_earlier(c, op->kind == ENCODE_TABLES ? 0 : cost_of(op));
    /* The features are wrong, and no step computes them again. */
    if (c->error < 0)
        c->error = -EIO;
    return true;
}
