/* decode.c - limits, memory and order; what a format is lies in its own file. */
#include "vision/decode.h"

#include "vision/image.h"
#include "vision/raster.h"
#include "vision/smart_size.h"

#include "base/arena.h"
#include "base/charge.h"
#include "base/check.h"
#include "base/err.h"
#include "vision/format.h"

#include <errno.h>

static const struct format *const formats[] = {&format_png, &format_jpeg, &format_webp, &format_gif};

static const struct format *find_format(struct slice bytes)
{
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (formats[i]->is(bytes))
            return formats[i];
    return NULL;
}

static int check_size(const struct format_size *size, const struct decode_limits *limits, struct err *e)
{
    uint64_t pixels = (uint64_t)size->width * size->height;
    if (pixels == 0)
        return err_set(e, -EINVAL, "it has no pixels: %u x %u", size->width, size->height);
    if (size->width > limits->edge_max || size->height > limits->edge_max)
        return err_set(e, -E2BIG, "it has %u x %u pixels, the limit is %u for each edge", size->width,
                       size->height, limits->edge_max);
    if (pixels > limits->pixels_max)
        return err_set(e, -E2BIG, "it has %u x %u = %llu pixels, the limit is %llu", size->width,
                       size->height, (ull)pixels, (ull)limits->pixels_max);
    return 0;
}

/* Finds the format, and reads and checks what the headers say. */
static int measure(struct slice bytes, const struct decode_limits *limits, const struct format **format,
                   struct format_size *size, struct err *e)
{
    if (bytes.len == 0)
        return err_set(e, -EINVAL, "the image is empty");
    if (bytes.len > limits->bytes_max)
        return err_set(e, -E2BIG, "the image has %zu bytes, the limit is %zu", bytes.len, limits->bytes_max);
    const struct format *f = find_format(bytes);
    if (!f)
        return err_set(e, -EINVAL,
                       "the image format is not supported: send PNG, JPEG, WebP or GIF (the first bytes "
                       "decide, not the type that the URL names)");
    struct format_size s = {.orientation = 1};
    int r = f->measure(bytes, &s, e);
    if (r == 0)
        r = check_size(&s, limits, e);
    if (r < 0)
        return err_prefix(e, r, "the %s image cannot be read", f->name);
    *format = f;
    *size = s;
    return 0;
}

int decode_measure(struct slice bytes, const struct decode_limits *limits, struct decode_info *ret,
                   struct err *e)
{
    const struct format *f;
    struct format_size s;
    int r = measure(bytes, limits, &f, &s, e);
    if (r < 0)
        return r;
    bool turned = s.orientation >= 5;
    *ret = (struct decode_info){
        .format = f->name, .width = turned ? s.height : s.width, .height = turned ? s.width : s.height};
    return 0;
}

/* The memory of one frame on its way, in one place and charged. */
static int work_begin(const struct raster_opts *opts, size_t format_bytes, const struct charge *charge,
                      struct arena **arena, struct raster **raster, struct err *e)
{
    struct arena *a = NULL;
    struct arena_opts arena_opts = {.bytes_max = raster_bytes(opts) + format_bytes, .charge = charge};
    int r = arena_create(&arena_opts, &a);
    if (r < 0)
        return err_set(e, -ENOMEM, "there is no memory for decoding the image at present");
    r = raster_create(a, opts, raster, e);
    if (r < 0) {
        arena_free(a);
        return r;
    }
    *arena = a;
    return 0;
}

static void work_end(struct arena *arena, struct raster *raster)
{
    raster_done(raster);
    arena_free(arena);
}

static int decode_found(struct image *p, uint32_t frame, struct slice bytes, const struct format *f,
                        const struct format_size *size, const atomic_bool *stop, const struct charge *charge,
                        struct err *e)
{
    struct raster_opts opts = {.width = size->width,
                               .height = size->height,
                               .orientation = size->orientation,
                               .to = p,
                               .frame = frame,
                               .stop = stop};
    struct format_work work = {.bytes = bytes, .size = *size, .charge = charge};
    int r = work_begin(&opts, f->arena_bytes(size), charge, &work.arena, &work.to, e);
    if (r < 0)
        return r;
    r = f->decode(&work, e);
    if (r == 0)
        r = raster_end(work.to, e);
    work_end(work.arena, work.to);
    return r == -EINVAL ? err_prefix(e, r, "the %s image cannot be read", f->name) : r;
}

int decode_frame(struct image *p, uint32_t frame, struct slice bytes, const struct decode_limits *limits,
                 const struct charge *charge, struct err *e)
{
    const struct format *f;
    struct format_size size;
    int r = measure(bytes, limits, &f, &size, e);
    return r < 0 ? r : decode_found(p, frame, bytes, f, &size, limits->stop, charge, e);
}

int decode_still(struct slice bytes, const struct decode_limits *limits, const struct smart_bounds *bounds,
                 const struct charge *charge, struct image **ret, struct err *e)
{
    struct decode_info info;
    struct smart_size to;
    struct image *p = NULL;
    int r = decode_measure(bytes, limits, &info, e);
    if (r == 0)
        r = smart_size(info.width, info.height, bounds, &to, e);
    if (r < 0)
        return r;
    if (image_create(to.width, to.height, 1, charge, &p) < 0)
        return err_set(e, -ENOMEM, "there is no memory for the image at present");
    p->filter = bounds->filter;
    p->inner_width = to.inner_width;
    p->inner_height = to.inner_height;
    r = decode_frame(p, 0, bytes, limits, charge, e);
    if (r < 0)
        image_unref(p);
    else
        *ret = p;
    return r;
}

/* Rows of raw pixels, `stride` bytes apart. */
static int decode_rows(struct image *p, uint32_t frame, const uint8_t *rgb, size_t stride, uint32_t width,
                       uint32_t height, const atomic_bool *stop, const struct charge *charge, struct err *e)
{
    struct raster_opts opts = {
        .width = width, .height = height, .orientation = 1, .to = p, .frame = frame, .stop = stop};
    struct arena *arena;
    struct raster *raster;
    int r = work_begin(&opts, 0, charge, &arena, &raster, e);
    if (r < 0)
        return r;
    for (uint32_t y = 0; y < height && r == 0; y++)
        r = raster_row(raster, rgb + y * stride, e);
    if (r == 0)
        r = raster_end(raster, e);
    work_end(arena, raster);
    return r;
}

int decode_raw_frame(struct image *p, uint32_t frame, const uint8_t *rgb, uint32_t width, uint32_t height,
                     const atomic_bool *stop, const struct charge *charge, struct err *e)
{
    return decode_rows(p, frame, rgb, (size_t)width * 3, width, height, stop, charge, e);
}

int decode_cut(struct image *p, const struct image *from, uint32_t left, uint32_t top,
               const atomic_bool *stop, const struct charge *charge, struct err *e)
{
    const size_t stride = (size_t)from->width * 3;
    ASSERT(left + p->width <= from->width && top + p->height <= from->height);
    return decode_rows(p, 0, from->pixels + top * stride + (size_t)left * 3, stride, p->width, p->height,
                       stop, charge, e);
}
