/* cuda_encode.c - block operations of a vision encoder. An operation goes into the queue as a whole. Pixels
 * become patches on the host, a few rows at a time. */
#include "compute/cuda/cuda_step.h"
#include "compute/encode.h"

#include <math.h>

#define ALIGN      64u
#define ROW_FLOATS 32u

/* The backend's arrays for an image. */
struct arrays {
    uint64_t keys;           /* [heads][pages] pages of one head: K transposed, V */
    uint64_t cosines, sines; /* [edge][head_dim / 4], of a row or a column */
    uint64_t bytes;
};

static struct arrays lay_out(const struct encode_shape *s, uint64_t patches, uint64_t edge)
{
    uint64_t pages = DIV_UP(patches, (uint64_t)PAGE_TOKENS);
    uint64_t angles = ROUND_UP(edge * (s->head_dim / 4) * sizeof(float), (uint64_t)ALIGN);
    struct arrays a = {.keys = 0};
    a.cosines = ROUND_UP(pages * PAGE_TOKENS * 2 * s->hidden * sizeof(float), (uint64_t)ALIGN);
    a.sines = a.cosines + angles;
    a.bytes = a.sines + angles;
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
    return lay_out(p->shape, patches_of(p), MAX_OF(p->rows, p->columns));
}

/* ---- on the host ---- */

/* Angles of whole numbers: rows use the first half of a head's frequencies, columns the second, which are the
 * same. */
static void put_tables(struct cuda_device *d, const struct encode_image *p)
{
    const struct arrays a = arrays_of(p);
    uint32_t n = p->shape->head_dim / 4, edge = MAX_OF(p->rows, p->columns);
    uint64_t apart = (a.sines - a.cosines) / sizeof(float);
    const uint64_t bytes = 2 * apart * sizeof(float);
    float *cosines = (float *)(void *)cuda_staging_take(d, bytes), *sines = cosines + apart;
    for (uint32_t j = 0; j < n; j++) {
        float inv = (float)pow(p->shape->theta, -(double)j / n);
        for (uint32_t i = 0; i < edge; i++) {
            cosines[(size_t)i * n + j] = (float)cos((double)i * inv);
            sines[(size_t)i * n + j] = (float)sin((double)i * inv);
        }
    }
    cuda_staging_put(d, dev_add(p->own, a.cosines), (const char *)cosines, bytes);
    cuda_staging_give(d, (char *)cosines, bytes);
}

/* The values of a pixel's byte, by channel. */
struct levels {
    float value[ENCODE_CHANNELS][256];
};

static void fill_levels(const struct encode_shape *s, struct levels *ret)
{
    for (uint32_t c = 0; c < ENCODE_CHANNELS; c++) {
        for (uint32_t i = 0; i < 256; i++)
            ret->value[c][i] = (float)((i / 255.0 - s->mean[c]) / s->std[c]);
    }
}

static void read_patch(const struct encode_image *image, const struct levels *levels, uint32_t patch,
                       float *ret)
{
    const struct encode_shape *s = image->shape;
    uint32_t m = s->merge, per_row = image->columns / m, token = patch / (m * m), within = patch % (m * m);
    size_t row = token / per_row * m + within / m, column = token % per_row * m + within % m;
    size_t size = s->patch, plane = size * size;
    for (size_t f = 0; f < ENCODE_FRAMES; f++) {
        for (size_t y = 0; y < size; y++) {
            const uint8_t *p =
                image->frames[f] + ((row * size + y) * image->width + column * size) * ENCODE_CHANNELS;
            for (size_t i = 0; i < size * ENCODE_CHANNELS; i++) {
                size_t x = i / ENCODE_CHANNELS, c = i % ENCODE_CHANNELS;
                ret[s->channels_last ? (f * plane + y * size + x) * ENCODE_CHANNELS + c
                                     : (c * ENCODE_FRAMES + f) * plane + y * size + x] =
                    levels->value[c][p[i]];
            }
        }
    }
}

static void put_pixels(struct cuda_device *d, const struct op_encode *op)
{
    size_t row_bytes = op->y.stride * sizeof(float);
    uint32_t each = MIN_OF((uint32_t)(CUDA_STAGING_BYTES / row_bytes), op->count);
    struct levels levels;
    ASSERT(each > 0);
    fill_levels(op->image->shape, &levels);
    char *staging = cuda_staging_take(d, each * row_bytes);
    for (uint32_t from = 0; from < op->count; from += each) {
        uint32_t count = MIN_OF(each, op->count - from);
        for (uint32_t i = 0; i < count; i++)
            read_patch(op->image, &levels, op->from + from + i, (float *)(void *)(staging + i * row_bytes));
        cuda_staging_put(d, dev_add(op->y.at, from * row_bytes), staging, count * row_bytes);
        cuda_staging_wait(d, staging);
    }
    cuda_staging_give(d, staging, each * row_bytes);
}

/* ---- on the device ---- */

static struct cuda_rows rows_of(const struct encode_rows *r, uint32_t width)
{
    return (struct cuda_rows){cuda_pointer(r->at), r->stride, width};
}

static struct cuda_encode encode_of(const struct op_encode *op)
{
    const struct encode_image *p = op->image;
    const struct encode_shape *s = p->shape;
    const struct arrays a = arrays_of(p);
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
                                .heads = s->heads,
                                .head_dim = s->head_dim,
                                .merge = s->merge,
                                .rows = p->rows,
                                .columns = p->columns,
                                .grid = op->grid,
                                .gelu = op->kind == ENCODE_GELU       ? 1
                                        : op->kind == ENCODE_GELU_ERF ? 2
                                                                      : 0,
                                .add = op->kind == ENCODE_ADD || op->kind == ENCODE_ADD_NORM,
                                .norm = op->kind == ENCODE_ADD_NORM,
                                .keep = op->kind == ENCODE_KEYS,
                                .patches = patches_of(p),
                                .scale = (float)(1 / sqrt((double)s->head_dim)),
                                .cosines = cuda_pointer(dev_add(p->own, a.cosines)),
                                .sines = cuda_pointer(dev_add(p->own, a.sines)),
                                .keys = cuda_pointer(dev_add(p->own, a.keys)),
                                .table = cuda_matrix(op->w ? &op->w->parts[0] : NULL)};
}

static void run_kernel(struct cuda *c, const struct op_encode *op)
{
    const struct cuda_encode k = encode_of(op);
    switch (op->kind) {
    case ENCODE_PROJECT:
        ASSERT(op->w->part_count == 1);
        cuda_multiply(c, &op->w->parts[0], k.x, k.y, NULL, op->count);
        break;
    case ENCODE_PLACE:
        cuda_run(c, CUDA_KERNEL_encode_place, cuda_by_row(op->count), &k);
        break;
    case ENCODE_NORM:
        cuda_run(c, CUDA_KERNEL_encode_norm, cuda_by_row(op->count), &k);
        break;
    case ENCODE_KEYS:
    case ENCODE_QUERIES:
        cuda_run(c, CUDA_KERNEL_encode_heads, cuda_by_row(op->count), &k);
        break;
    case ENCODE_ATTEND:
        cuda_run(c, CUDA_KERNEL_encode_attend, (struct cuda_grid){op->count, k.heads, 1, CUDA_THREADS, 0},
                 &k);
        break;
    default:
        cuda_run(c, CUDA_KERNEL_encode_bias, cuda_by_row(op->count), &k);
    }
}

bool cuda_encode(struct compute *compute, const struct op_encode *op, uint32_t *at)
{
    struct cuda *c = cuda_of(compute);
    cuda_use(c->device);
    if (op->kind == ENCODE_TABLES)
        put_tables(c->device, op->image);
    else if (op->kind == ENCODE_PIXELS)
        put_pixels(c->device, op);
    else
        run_kernel(c, op);
    cuda_queued(c->device);
    /* The features are wrong, and no step computes them again. */
    if (c->error < 0)
        c->error = -EIO;
    *at = 1;
    return true;
}
