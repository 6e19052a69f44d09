/* resize.c - two passes, across and down, with 8 bits between them.
 *
 * Being equal to Pillow to the byte decides everything here: the inputs of an output, the weights in
 * double and their rounding to 22 fractional bits, the rounding after each pass, and their order. A pass
 * with equal sizes has weights 1 and needs no exception. */
#include "vision/resize.h"

#include "base/check.h"
#include "vision/resize_taps.h"

#include <errno.h>
#include <math.h>

struct resize {
    struct resize_opts o;
    struct resize_taps across, down;
    resize_across_fn *run_across;
    resize_down_fn *run_down;
    uint8_t *ring; /* [ring_rows][ring_stride]: rows that were resized across */
    size_t ring_stride;
    uint32_t ring_rows;
    const uint8_t **rows; /* [down.stride]: of the ring, for one output row */
    uint32_t pushed, written;
};

static double keys(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double sinc(double x)
{
    if (x == 0.0)
        return 1.0;
    x *= M_PI;
    return sin(x) / x;
}

static double lanczos(double x)
{
    return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

/* A kernel reaches that many inputs, or as many as that many outputs are wide. Bicubic is the kernel of Keys
 * with a = -1/2. */
static const struct kernel {
    double (*at)(double x);
    double reach;
} kernels[] = {
    [RESIZE_BICUBIC] = {keys, 2}, [RESIZE_BILINEAR] = {triangle, 1}, [RESIZE_LANCZOS] = {lanczos, 3}};

/* Inputs that an output is made of, in units of the input. */
struct window {
    const struct kernel *kernel;
    double scale; /* inputs per output */
    double widen; /* width of the kernel: max(scale, 1) */
};

static struct window window_of(enum resize_filter filter, uint32_t from, uint32_t to)
{
    double scale = (double)from / to;
    return (struct window){&kernels[filter], scale, scale < 1.0 ? 1.0 : scale};
}

static uint32_t stride_of(const struct window *w)
{
    uint32_t most = (uint32_t)ceil(w->kernel->reach * w->widen) * 2 + 1;
    return ROUND_UP(most, 4u);
}

static void set_weights(struct resize_taps *t, uint32_t output, const struct window *w, uint32_t from,
                        double *scratch)
{
    double center = (output + 0.5) * w->scale, reach = w->kernel->reach * w->widen, sum = 0.0;
    double begin = center - reach + 0.5, end = center + reach + 0.5;
    uint32_t first = begin < 0 ? 0 : (uint32_t)begin;
    uint32_t last = end > from ? from : (uint32_t)end;
    uint32_t count = last - first;
    double narrow = 1.0 / w->widen;
    for (uint32_t i = 0; i < count; i++) {
        scratch[i] = w->kernel->at(((double)i + first - center + 0.5) * narrow);
        sum += scratch[i];
    }
    t->first[output] = first;
    t->count[output] = count;
    size_t at = (size_t)output * t->stride;
    for (uint32_t i = 0; i < count; i++) {
        double weight = sum != 0.0 ? scratch[i] / sum : scratch[i];
        int32_t fixed = (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << RESIZE_FRACTION));
        t->weight[at + i] = fixed;
        t->high[at + i] = (int16_t)(fixed >> RESIZE_LOW);
        t->low[at + i] = (int16_t)(fixed & ((1 << RESIZE_LOW) - 1));
    }
}

static int taps_create(struct arena *a, enum resize_filter filter, uint32_t from, uint32_t to,
                       struct resize_taps *ret)
{
    struct window w = window_of(filter, from, to);
    struct resize_taps t = {.outputs = to, .stride = stride_of(&w)};
    size_t weights = (size_t)to * t.stride;
    t.first = ARENA_ARRAY(a, uint32_t, to);
    t.count = ARENA_ARRAY(a, uint32_t, to);
    t.weight = ARENA_ARRAY(a, int32_t, weights);
    t.high = ARENA_ARRAY(a, int16_t, weights);
    t.low = ARENA_ARRAY(a, int16_t, weights);
    double *scratch = ARENA_ARRAY(a, double, t.stride);
    if (!t.first || !t.count || !t.weight || !t.high || !t.low || !scratch)
        return -ENOMEM;
    for (uint32_t i = 0; i < to; i++)
        set_weights(&t, i, &w, from, scratch);
    *ret = t;
    return 0;
}

static size_t taps_bytes(const struct window *w, uint32_t to)
{
    size_t stride = stride_of(w);
    return to * (2 * sizeof(uint32_t) + stride * (sizeof(int32_t) + 2 * sizeof(int16_t))) +
           stride * sizeof(double);
}

size_t resize_bytes(const struct resize_opts *o)
{
    const struct window across = window_of(o->filter, o->from_width, o->to_width),
                        down = window_of(o->filter, o->from_height, o->to_height);
    size_t stride = stride_of(&down);
    return sizeof(struct resize) + taps_bytes(&across, o->to_width) + taps_bytes(&down, o->to_height) +
           stride * ((size_t)o->to_width * 3 + 4 + sizeof(uint8_t *)) + (size_t)64 * 16;
}

int resize_create(struct arena *a, const struct resize_opts *opts, struct resize **ret)
{
    ASSERT(opts->from_width > 0 && opts->from_height > 0 && opts->to_width > 0 && opts->to_height > 0);
    struct resize *r = ARENA_NEW(a, struct resize);
    if (!r || taps_create(a, opts->filter, opts->from_width, opts->to_width, &r->across) < 0 ||
        taps_create(a, opts->filter, opts->from_height, opts->to_height, &r->down) < 0)
        return -ENOMEM;
    r->o = *opts;
    r->ring_rows = MIN_OF(r->down.stride, opts->from_height);
    r->ring_stride = (size_t)opts->to_width * 3 + 4;
    r->ring = ARENA_ARRAY(a, uint8_t, r->ring_rows * r->ring_stride);
    r->rows = (const uint8_t **)arena_alloc_array(a, r->down.stride, sizeof(*r->rows));
    if (!r->ring || !r->rows)
        return -ENOMEM;
    bool fast = !opts->plain && __builtin_cpu_supports("avx2");
    r->run_across = fast ? resize_across_avx2 : resize_across_plain;
    r->run_down = fast ? resize_down_avx2 : resize_down_plain;
    *ret = r;
    return 0;
}

static uint8_t *ring_row(const struct resize *r, uint32_t y)
{
    return r->ring + (y % r->ring_rows) * r->ring_stride;
}

static void write_row(struct resize *r)
{
    uint32_t y = r->written++, first = r->down.first[y], count = r->down.count[y];
    for (uint32_t i = 0; i < r->down.stride; i++)
        r->rows[i] = ring_row(r, first + MIN_OF(i, count - 1));
    size_t bytes = (size_t)r->o.to_width * 3;
    r->run_down(r->o.to + y * bytes, r->rows, bytes, &r->down, y);
}

void resize_row(struct resize *r, const uint8_t *rgb)
{
    ASSERT(r->pushed < r->o.from_height);
    r->run_across(ring_row(r, r->pushed), rgb, r->o.from_width, &r->across);
    r->pushed++;
    while (r->written < r->o.to_height && r->down.first[r->written] + r->down.count[r->written] <= r->pushed)
        write_row(r);
    ASSERT(r->pushed < r->o.from_height || r->written == r->o.to_height);
}
