/* raster.c - the hash covers the input of resizing: the oriented pixels, from the top, before they are
 * resized. libcrypto hashes it, and not libnettle as keys of caches: without SHA instructions libcrypto
 * takes 2.1 ns per byte and libnettle 3.1, which is 3 ms more per megapixel; with them both take 0.7.
 *
 * An image to be turned is kept whole as it was stored and read in its new order, sixteen rows at a time:
 * a turned row is a stored column, and sixteen adjacent columns share cache lines. Keeping it costs 3
 * bytes per pixel; turning the small result instead would not give Pillow's bytes, as the passes of
 * resizing have an order. */
#include "vision/raster.h"

#include "vision/image.h"

#include "base/check.h"
#include "vision/resize.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#define BLOCK_ROWS 16

struct raster {
    struct raster_opts o;
    struct arena *arena;
    uint32_t seen_width, seen_height;
    EVP_MD_CTX *hash;
    struct resize *resize;
    uint8_t *plane; /* NULL: rows pass through */
    uint32_t rows;  /* that came */
};

/* EXIF's 5 to 8 exchange width and height. */
static bool is_turned(unsigned orientation)
{
    return orientation >= 5;
}

static int no_memory(struct err *e)
{
    return err_set(e, -ENOMEM, "there is no memory for the image at present");
}

static bool hash_put(struct raster *r, const void *bytes, size_t len)
{
    return EVP_DigestUpdate(r->hash, bytes, len) == 1;
}

static bool is_padded(const struct image *p)
{
    return p->inner_width > 0 && (p->inner_width < p->width || p->inner_height < p->height);
}

static uint32_t shown_width(const struct image *p)
{
    return p->inner_width > 0 ? p->inner_width : p->width;
}

static uint32_t shown_height(const struct image *p)
{
    return p->inner_height > 0 ? p->inner_height : p->height;
}

/* Moves the rows of the inner image, which lie one after the other, to their places; the rest is black. */
static void pad(const struct image *p, uint8_t *pixels)
{
    const size_t inner = (size_t)p->inner_width * 3, row = (size_t)p->width * 3;
    for (uint32_t y = p->height; y-- > 0;) {
        uint8_t *to = pixels + y * row;
        if (y < p->inner_height)
            memmove(to, pixels + y * inner, inner);
        const size_t from = y < p->inner_height ? inner : 0;
        memset(to + from, 0, row - from);
    }
}

/* Before the pixels: which frame it is, for the first the size it gets, for others the hash of those before;
 * and its own size. */
static bool hash_begin(struct raster *r)
{
    const struct image *p = r->o.to;
    uint32_t sizes[] = {r->o.frame, p->width, p->height, r->seen_width, r->seen_height};
    r->hash = EVP_MD_CTX_new();
    return r->hash && EVP_DigestInit_ex(r->hash, EVP_sha256(), NULL) == 1 &&
           hash_put(r, sizes, sizeof(sizes)) &&
           (!is_padded(p) || hash_put(r, &p->inner_width, 2 * sizeof(p->inner_width))) &&
           (r->o.frame == 0 || hash_put(r, p->sha256, sizeof(p->sha256)));
}

int raster_create(struct arena *a, const struct raster_opts *opts, struct raster **ret, struct err *e)
{
    ASSERT(opts->width > 0 && opts->height > 0 && opts->orientation >= 1 && opts->orientation <= 8);
    ASSERT(opts->frame < opts->to->frames);
    struct raster *r = ARENA_NEW(a, struct raster);
    if (!r)
        return no_memory(e);
    bool turned = is_turned(opts->orientation);
    *r = (struct raster){.o = *opts,
                         .arena = a,
                         .seen_width = turned ? opts->height : opts->width,
                         .seen_height = turned ? opts->width : opts->height};
    struct image *p = opts->to;
    struct resize_opts resize = {
        .from_width = r->seen_width,
        .from_height = r->seen_height,
        .to_width = shown_width(p),
        .to_height = shown_height(p),
        .to = p->pixels + opts->frame * image_frame_bytes(p->width, p->height),
        .filter = p->filter,
    };
    if (resize_create(a, &resize, &r->resize) < 0 || !hash_begin(r) ||
        (opts->orientation != 1 && !raster_plane(r, NULL))) {
        raster_done(r);
        return no_memory(e);
    }
    *ret = r;
    return 0;
}

void raster_done(struct raster *r)
{
    if (!r)
        return;
    EVP_MD_CTX_free(r->hash);
    r->hash = NULL;
}

size_t raster_bytes(const struct raster_opts *opts)
{
    bool turned = is_turned(opts->orientation);
    uint32_t width = turned ? opts->height : opts->width, height = turned ? opts->width : opts->height;
    const struct resize_opts resize = {.from_width = width,
                                       .from_height = height,
                                       .to_width = shown_width(opts->to),
                                       .to_height = shown_height(opts->to),
                                       .filter = opts->to->filter};
    return sizeof(struct raster) + resize_bytes(&resize) + image_frame_bytes(width, height) +
           image_frame_bytes(width, BLOCK_ROWS) + (size_t)64 * 4;
}

int raster_stopped(const struct raster *r, struct err *e)
{
    if (r->o.stop && atomic_load_explicit(r->o.stop, memory_order_relaxed))
        return err_set(e, -ECANCELED, "the image is not wanted any more");
    return 0;
}

/* Takes a row of the oriented image. */
static int take_seen(struct raster *r, const uint8_t *rgb, struct err *e)
{
    int stopped = raster_stopped(r, e);
    if (stopped < 0)
        return stopped;
    if (!hash_put(r, rgb, (size_t)r->seen_width * 3))
        return no_memory(e);
    resize_row(r->resize, rgb);
    return 0;
}

int raster_row(struct raster *r, const uint8_t *rgb, struct err *e)
{
    ASSERT(r->rows < r->o.height);
    uint32_t y = r->rows++;
    if (!r->plane)
        return take_seen(r, rgb, e);
    size_t bytes = (size_t)r->o.width * 3;
    memcpy(r->plane + y * bytes, rgb, bytes);
    return raster_stopped(r, e);
}

uint8_t *raster_plane(struct raster *r, struct err *e)
{
    if (!r->plane)
        r->plane = ARENA_ARRAY(r->arena, uint8_t, image_frame_bytes(r->o.width, r->o.height));
    if (!r->plane)
        no_memory(e);
    return r->plane;
}

/* The stored pixel that is seen at (x, y) lies at origin + x * across + y * down, in bytes. */
struct walk {
    ptrdiff_t origin, across, down;
};

static struct walk walk_of(const struct raster *r)
{
    ptrdiff_t pixel = 3, row = (ptrdiff_t)r->o.width * 3;
    ptrdiff_t right = row - pixel, bottom = (ptrdiff_t)(r->o.height - 1) * row;
    const struct walk walks[] = {
        {0, pixel, row},                /* 1: as stored */
        {right, -pixel, row},           /* 2: mirrored left to right */
        {right + bottom, -pixel, -row}, /* 3: by half a turn */
        {bottom, pixel, -row},          /* 4: mirrored top to bottom */
        {0, row, pixel},                /* 5: rows are columns */
        {bottom, -row, pixel},          /* 6: to be turned right */
        {right + bottom, -row, -pixel}, /* 7: 5 by half a turn */
        {right, row, -pixel},           /* 8: to be turned left */
    };
    return walks[r->o.orientation - 1];
}

static void gather(const struct raster *r, const struct walk *w, uint32_t y, uint32_t rows, uint8_t *block)
{
    size_t stride = (size_t)r->seen_width * 3;
    for (uint32_t x = 0; x < r->seen_width; x++) {
        const uint8_t *from = r->plane + w->origin + (ptrdiff_t)x * w->across + (ptrdiff_t)y * w->down;
        uint8_t *to = block + (size_t)x * 3;
        for (uint32_t j = 0; j < rows; j++, from += w->down, to += stride) {
            to[0] = from[0];
            to[1] = from[1];
            to[2] = from[2];
        }
    }
}

static int read_turned(struct raster *r, struct err *e)
{
    struct walk w = walk_of(r);
    uint8_t *block = ARENA_ARRAY(r->arena, uint8_t, image_frame_bytes(r->seen_width, BLOCK_ROWS));
    if (!block)
        return no_memory(e);
    int result = 0;
    for (uint32_t y = 0; y < r->seen_height && result == 0; y += BLOCK_ROWS) {
        uint32_t rows = MIN_OF(BLOCK_ROWS, r->seen_height - y);
        gather(r, &w, y, rows, block);
        for (uint32_t j = 0; j < rows && result == 0; j++)
            result = take_seen(r, block + j * (size_t)r->seen_width * 3, e);
    }
    return result;
}

static int read_plane(struct raster *r, struct err *e)
{
    int result = 0;
    for (uint32_t y = 0; y < r->o.height && result == 0; y++)
        result = take_seen(r, r->plane + y * (size_t)r->o.width * 3, e);
    return result;
}

int raster_end(struct raster *r, struct err *e)
{
    int result = 0;
    if (r->plane)
        result = r->o.orientation == 1 ? read_plane(r, e) : read_turned(r, e);
    else
        ASSERT(r->rows == r->o.height);
    if (result == 0 && is_padded(r->o.to))
        pad(r->o.to, r->o.to->pixels + r->o.frame * image_frame_bytes(r->o.to->width, r->o.to->height));
    if (result == 0 && EVP_DigestFinal_ex(r->hash, r->o.to->sha256, NULL) != 1)
        result = no_memory(e);
    return result;
}
