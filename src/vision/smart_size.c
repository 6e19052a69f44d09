/* smart_size.c - the reference's rule, in its order of operations: areas as integers, one square root, doubles after it. */
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
                       "the picture is %u x %u pixels: one edge is more than %d times the other, which this "
                       "model cannot see",
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

/* `counted` frames keep to the bounds, `frames` frames decide the factor when they do not. */
static struct smart_size fit(uint32_t counted, uint32_t frames, uint32_t width, uint32_t height,
                             const struct smart_bounds *b)
{
    uint64_t w = nearest(width, b->edge), h = nearest(height, b->edge);
    double area = (double)((uint64_t)frames * width * height);
    uint64_t all = counted * w * h;
    if (all > b->pixels_max) {
        double factor = sqrt(area / (double)b->pixels_max);
        w = shrunk(width, factor, b->edge);
        h = shrunk(height, factor, b->edge);
    } else if (all < b->pixels_min) {
        double factor = sqrt((double)b->pixels_min / area);
        w = grown(width, factor, b->edge);
        h = grown(height, factor, b->edge);
    }
    w = MAX_OF(w, b->edge);
    h = MAX_OF(h, b->edge);
    /* What the reference would exceed: an edge that is one token's cannot shrink any more, so the other does. */
    if (w * h > b->pixels_max) {
        uint64_t *longer = w > h ? &w : &h, shorter = MIN_OF(w, h);
        *longer = MAX_OF(b->pixels_max / shorter / b->edge * b->edge, b->edge);
    }
    return (struct smart_size){(uint32_t)w, (uint32_t)h};
}

int smart_size(uint32_t width, uint32_t height, const struct smart_bounds *bounds, struct smart_size *ret,
               struct err *e)
{
    int r = check_aspect(width, height, e);
    if (r < 0)
        return r;
    *ret = fit(1, 1, width, height, bounds);
    return 0;
}

int smart_size_video(uint32_t frames, uint32_t width, uint32_t height, const struct smart_bounds *bounds,
                     struct smart_size *ret, struct err *e)
{
    ASSERT(frames > 0);
    int r = check_aspect(width, height, e);
    if (r < 0)
        return r;
    if (width < bounds->edge || height < bounds->edge) {
        double scale = fmax((double)bounds->edge / height, (double)bounds->edge / width);
        width = (uint32_t)(width * scale);
        height = (uint32_t)(height * scale);
    }
    frames = MAX_OF(frames, 2);
    *ret = fit((uint32_t)rint(frames / 2.0) * 2, frames, width, height, bounds);
    return 0;
}
