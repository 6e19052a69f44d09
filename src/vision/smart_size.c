/* smart_size.c - the reference's rule, in its order of operations: areas as integers, one square root,
 * doubles after it. */
#include "vision/smart_size.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>

static int check_aspect(uint32_t width, uint32_t height, struct err *e)
{
    uint32_t longer = MAX_OF(width, height), shorter = MIN_OF(width, height);
    ASSERT(shorter > 0);
    if (longer > (uint64_t)shorter * SMART_ASPECT_MAX)
        return err_set(e, -EINVAL,
                       "the image is %u x %u pixels: one edge is more than %d times the other, which this "
                       "model does not support",
                       width, height, SMART_ASPECT_MAX);
    return 0;
}

/* rint() rounds half to even, as the reference does. */
static uint64_t nearest(uint32_t length, uint32_t edge)
{
    return (uint64_t)rint((double)length / edge) * edge;
}

static uint64_t shrunk(uint32_t length, double factor, uint32_t edge)
{
    uint64_t whole = (uint64_t)floor(length / factor / edge) * edge;
    return MAX_OF(whole, edge);
}

static uint64_t grown(uint32_t length, double factor, uint32_t edge)
{
    return (uint64_t)ceil(length * factor / edge) * edge;
}

static struct smart_size shrink(uint32_t width, uint32_t height, double factor, uint32_t edge)
{
    return (struct smart_size){(uint32_t)shrunk(width, factor, edge), (uint32_t)shrunk(height, factor, edge)};
}

static struct smart_size grow(uint32_t width, uint32_t height, double factor, uint32_t edge)
{
    return (struct smart_size){(uint32_t)grown(width, factor, edge), (uint32_t)grown(height, factor, edge)};
}

static uint64_t area_of(struct smart_size s)
{
    return (uint64_t)s.width * s.height;
}

/* `counted` frames keep to the bounds, `frames` frames decide the factor when they do not. */
static struct smart_size fit(uint32_t counted, uint32_t frames, uint32_t width, uint32_t height,
                             const struct smart_bounds *b)
{
    struct smart_size s = {(uint32_t)nearest(width, b->edge), (uint32_t)nearest(height, b->edge)};
    double area = (double)((uint64_t)frames * width * height);
    uint64_t all = counted * area_of(s);
    if (all > b->pixels_max)
        s = shrink(width, height, sqrt(area / (double)b->pixels_max), b->edge);
    else if (all < b->pixels_min)
        s = grow(width, height, sqrt((double)b->pixels_min / area), b->edge);
    return (struct smart_size){MAX_OF(s.width, b->edge), MAX_OF(s.height, b->edge)};
}

/* Limits beyond the reference: an edge of one token cannot shrink, so the other one does. */
static struct smart_size cap(struct smart_size s, uint32_t width, uint32_t height, uint32_t edge,
                             uint64_t most)
{
    if (area_of(s) > most)
        s = shrink(width, height, sqrt((double)((uint64_t)width * height) / (double)most), edge);
    if (area_of(s) > most) {
        uint32_t *longer = s.width > s.height ? &s.width : &s.height, shorter = MIN_OF(s.width, s.height);
        *longer = MAX_OF((uint32_t)(most / shorter / edge * edge), edge);
    }
    return s;
}

/* Pixtral's rule: an image that is too long shrinks, and then both edges grow to whole tokens. */
static struct smart_size fit_longest(uint32_t width, uint32_t height, const struct smart_bounds *b)
{
    double ratio = fmax((double)height / b->longest, (double)width / b->longest);
    if (ratio > 1) {
        width = MAX_OF((uint32_t)floor(width / ratio), 1u);
        height = MAX_OF((uint32_t)floor(height / ratio), 1u);
    }
    return (struct smart_size){ROUND_UP(width, b->edge), ROUND_UP(height, b->edge)};
}

/* Gemma 4's rule: both edges shrink or grow by one factor and then down to whole tokens. One of the two may
 * be less than a token. */
static struct smart_size fit_budget(uint32_t width, uint32_t height, const struct smart_bounds *b)
{
    const uint32_t edge = b->edge, most = (uint32_t)(b->pixels_max / edge / edge) * edge;
    double factor = sqrt((double)b->pixels_max / ((double)width * height));
    uint32_t w = (uint32_t)floor(factor * width / edge) * edge,
             h = (uint32_t)floor(factor * height / edge) * edge;
    if (h == 0)
        w = (uint32_t)MIN_OF((uint64_t)(width / height) * edge, (uint64_t)most);
    if (w == 0)
        h = (uint32_t)MIN_OF((uint64_t)(height / width) * edge, (uint64_t)most);
    return (struct smart_size){MAX_OF(w, edge), MAX_OF(h, edge)};
}

static uint32_t scaled(uint32_t length, double scale, uint32_t longest)
{
    return MIN_OF(MAX_OF((uint32_t)(length * scale), 1u), longest);
}

static struct smart_size fit_patches(uint32_t width, uint32_t height, const struct smart_bounds *b,
                                     uint32_t patches_max)
{
    double count = (double)MAX_OF(width / b->patch, 1u) * (double)MAX_OF(height / b->patch, 1u);
    double scale = fmin(fmin(1, sqrt(patches_max / count)),
                        fmin((double)b->longest / height, (double)b->longest / width));
    struct smart_size s = {.inner_width = scaled(width, scale, b->longest),
                           .inner_height = scaled(height, scale, b->longest)};
    s.width = ROUND_UP(s.inner_width, b->edge);
    s.height = ROUND_UP(s.inner_height, b->edge);
    return s;
}

/* Kimi's rule. Limits beyond the reference: fewer patches where the area would be over pixels_max. */
static struct smart_size fit_padded(uint32_t width, uint32_t height, const struct smart_bounds *b)
{
    struct smart_size s = fit_patches(width, height, b, b->patches_max);
    for (uint32_t most = b->patches_max; area_of(s) > b->pixels_max && most > 1; most = most * 7 / 8)
        s = fit_patches(width, height, b, most * 7 / 8);
    return area_of(s) > b->pixels_max ? (struct smart_size){b->edge, b->edge, 0, 0} : s;
}

/* Both edges grow until the shorter one is a token's. */
static void grow_short(uint32_t *width, uint32_t *height, uint32_t edge)
{
    if (*width >= edge && *height >= edge)
        return;
    double scale = fmax((double)edge / *height, (double)edge / *width);
    *width = (uint32_t)(*width * scale);
    *height = (uint32_t)(*height * scale);
}

int smart_size(uint32_t width, uint32_t height, const struct smart_bounds *bounds, struct smart_size *ret,
               struct err *e)
{
    int r = check_aspect(width, height, e);
    if (r < 0)
        return r;
    if (bounds->grows)
        grow_short(&width, &height, bounds->edge);
    *ret = bounds->patches_max ? fit_padded(width, height, bounds)
           : bounds->budget    ? fit_budget(width, height, bounds)
           : bounds->square    ? (struct smart_size){bounds->square, bounds->square}
           : bounds->longest
               ? fit_longest(width, height, bounds)
               : cap(fit(1, 1, width, height, bounds), width, height, bounds->edge, bounds->pixels_max);
    return 0;
}

int smart_size_video(uint32_t frames, uint32_t width, uint32_t height, const struct smart_bounds *bounds,
                     struct smart_size *ret, struct err *e)
{
    ASSERT(frames > 0);
    int r = check_aspect(width, height, e);
    if (r < 0)
        return r;
    grow_short(&width, &height, bounds->edge);
    frames = MAX_OF(frames, 2);
    uint64_t most = bounds->frame_pixels_max ? bounds->frame_pixels_max : bounds->pixels_max;
    struct smart_size s = fit((uint32_t)rint(frames / 2.0) * 2, frames, width, height, bounds);
    *ret = cap(s, width, height, bounds->edge, most);
    return 0;
}
