/* tiles.c - sizes in the reference's order of operations, with its doubles.
 *
 * The canvas of all tiles and the whole image are decoded one after the other: resized rows of one decoding
 * go to one image, so memory holds no copy of the image in its own size. */
#include "vision/tiles.h"

#include "vision/image.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>

/* Edges that the reference never makes longer. */
#define EDGE_MAX 4096

/* ---- sizes ---- */

static struct tile_grid nearest_grid(uint32_t width, uint32_t height, const struct tile_bounds *b)
{
    const double ratio = (double)width / height, area = (double)width * height;
    struct tile_grid best = {1, 1};
    double least = INFINITY;
    for (uint32_t count = b->count_min; count <= b->count_max; count++) {
        for (uint32_t columns = 1; columns <= count; columns++) {
            if (count % columns != 0)
                continue;
            const struct tile_grid g = {columns, count / columns};
            const double difference = fabs(ratio - (double)g.columns / g.rows);
            /* The larger one of two that are as near, unless it is more than twice the image. */
            if (difference < least || (difference == least && area > 0.5 * b->edge * b->edge * count)) {
                least = difference;
                best = g;
            }
        }
    }
    return best;
}

/* The longer edge becomes `longest`, the other one even. */
static struct smart_size scaled(uint32_t width, uint32_t height, uint32_t longest)
{
    const double ratio = (double)width / height;
    const bool wide = width >= height;
    uint32_t other = (uint32_t)(wide ? longest / ratio : longest * ratio);
    other = MAX_OF(other + other % 2, 1u);
    if (longest > EDGE_MAX) {
        const double now = wide ? (double)longest / other : (double)other / longest;
        longest = EDGE_MAX;
        other = MAX_OF((uint32_t)(wide ? longest / now : longest * now), 1u);
    }
    return wide ? (struct smart_size){longest, other} : (struct smart_size){other, longest};
}

static struct tile_grid covering(struct smart_size s, uint32_t edge)
{
    const double ratio = (double)s.width / s.height;
    uint32_t width = ROUND_UP(s.width, edge), height = ROUND_UP(s.height, edge);
    if (s.width >= s.height)
        height = ROUND_UP((uint32_t)(width / ratio), edge);
    else
        width = ROUND_UP((uint32_t)(height * ratio), edge);
    return (struct tile_grid){MAX_OF(width / edge, 1u), MAX_OF(height / edge, 1u)};
}

static double token_area(uint32_t width, uint32_t height, uint32_t edge)
{
    return fmax(rint((double)width / edge), 1) * edge * fmax(rint((double)height / edge), 1) * edge;
}

struct tile_grid tiles_grid(uint32_t width, uint32_t height, const struct tile_bounds *b)
{
    const struct tile_grid one = {1, 1};
    ASSERT(b->edge > 0 && b->kept > 0 && b->kept <= b->edge);
    if (b->count_max == 1)
        return one;
    if (b->longest > 0)
        return covering(scaled(width, height, b->longest), b->edge);
    return token_area(width, height, b->whole.edge) > b->area_above ? nearest_grid(width, height, b) : one;
}

uint32_t tiles_images_max(const struct tile_bounds *b)
{
    const uint32_t edges = DIV_UP(b->longest, b->edge);
    return MAX_OF(b->count_max, edges * edges) + 1;
}

/* ---- pixels ---- */

static int make(uint32_t width, uint32_t height, const struct tile_bounds *b, const struct charge *charge,
                struct image **ret, struct err *e)
{
    if (image_create(width, height, 1, charge, ret) < 0)
        return err_set(e, -ENOMEM, "there is no memory for the image at present");
    (*ret)->filter = b->whole.filter;
    return 0;
}

/* Adds a part of an image. */
static int add_cut(const struct image *from, uint32_t left, uint32_t top, struct smart_size size,
                   const struct decode_limits *limits, const struct tile_bounds *b,
                   const struct charge *charge, struct tiles *ret, struct err *e)
{
    struct image *p = NULL;
    int r = make(size.width, size.height, b, charge, &p, e);
    if (r < 0)
        return r;
    ret->images[ret->count++] = p;
    return decode_cut(p, from, left, top, limits->stop, charge, e);
}

static int cut_tiles(const struct image *canvas, struct tile_grid g, const struct decode_limits *limits,
                     const struct tile_bounds *b, const struct charge *charge, struct tiles *ret,
                     struct err *e)
{
    const struct smart_size kept = {b->kept, b->kept};
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < g.columns * g.rows; i++)
        r = add_cut(canvas, i % g.columns * b->edge, i / g.columns * b->edge, kept, limits, b, charge, ret,
                    e);
    ret->columns = g.columns;
    return r;
}

/* Resizes `from`, or the encoded image, which goes to an image of its own. */
static int resized(const struct image *from, struct slice bytes, struct smart_size size,
                   const struct decode_limits *limits, const struct tile_bounds *b,
                   const struct charge *charge, struct image **ret, struct err *e)
{
    struct image *p = NULL;
    int r = make(size.width, size.height, b, charge, &p, e);
    if (r < 0)
        return r;
    r = from ? decode_raw_frame(p, 0, from->pixels, from->width, from->height, limits->stop, charge, e)
             : decode_frame(p, 0, bytes, limits, charge, e);
    if (r < 0)
        image_unref(p);
    else
        *ret = p;
    return r;
}

/* Adds the whole image, made of `from` or of the encoded image. */
static int add_whole(const struct image *from, struct slice bytes, struct smart_size size,
                     const struct decode_limits *limits, const struct tile_bounds *b,
                     const struct charge *charge, struct tiles *ret, struct err *e)
{
    struct image *p = NULL;
    int r = resized(from, bytes, size, limits, b, charge, &p, e);
    if (r < 0)
        return r;
    if (b->whole.square == 0 || b->kept == b->edge) {
        ret->images[ret->count++] = p;
        return 0;
    }
    r = add_cut(p, 0, 0, (struct smart_size){b->kept, b->kept}, limits, b, charge, ret, e);
    image_unref(p);
    return r;
}

/* Two steps: the longer edge, and then whole tiles, of which the whole image is made. */
static int decode_scaled(struct slice bytes, struct smart_size first, struct tile_grid g,
                         const struct decode_limits *limits, const struct tile_bounds *b,
                         const struct charge *charge, struct tiles *ret, struct err *e)
{
    const struct smart_size tile = {b->edge, b->edge}, all = {g.columns * b->edge, g.rows * b->edge};
    struct image *p = NULL, *canvas = NULL;
    int r = resized(NULL, bytes, first, limits, b, charge, &p, e);
    if (r < 0)
        return r;
    if (g.columns * g.rows > 1)
        r = resized(p, bytes, all, limits, b, charge, &canvas, e);
    if (r == 0 && canvas)
        r = cut_tiles(canvas, g, limits, b, charge, ret, e);
    if (r == 0)
        r = add_whole(canvas ? canvas : p, bytes, tile, limits, b, charge, ret, e);
    image_unref(p);
    image_unref(canvas);
    return r;
}

/* All tiles of the image at once. */
static int decode_grid(struct slice bytes, struct tile_grid g, const struct decode_limits *limits,
                       const struct tile_bounds *b, const struct charge *charge, struct tiles *ret,
                       struct err *e)
{
    struct image *canvas = NULL;
    int r = resized(NULL, bytes, (struct smart_size){g.columns * b->edge, g.rows * b->edge}, limits, b,
                    charge, &canvas, e);
    if (r == 0)
        r = cut_tiles(canvas, g, limits, b, charge, ret, e);
    image_unref(canvas);
    return r;
}

int tiles_decode(struct slice bytes, const struct decode_limits *limits, const struct tile_bounds *b,
                 const struct charge *charge, struct tiles *ret, struct err *e)
{
    struct decode_info info;
    struct smart_size whole;
    int r = decode_measure(bytes, limits, &info, e);
    if (r == 0)
        r = smart_size(info.width, info.height, &b->whole, &whole, e);
    if (r < 0)
        return r;
    const struct tile_grid g = tiles_grid(info.width, info.height, b);
    if (b->longest > 0)
        return decode_scaled(bytes, scaled(info.width, info.height, b->longest), g, limits, b, charge, ret,
                             e);
    if (g.columns * g.rows > 1)
        r = decode_grid(bytes, g, limits, b, charge, ret, e);
    return r < 0 ? r : add_whole(NULL, bytes, whole, limits, b, charge, ret, e);
}
