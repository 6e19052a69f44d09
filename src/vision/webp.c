/* webp.c - WebP by libwebp into a plane; of an animation the first frame, on its canvas, black where it has
 * none.
 *
 * The file is a list of chunks, which is walked here: libwebp's demuxer allocates for each of them,
 * however many a file claims. libwebp gets the one chunk of pixels. An alpha plane lies in a chunk of its
 * own and is left out, as alpha is dropped. libwebp allocates from the heap, so its need is computed and
 * charged before. */
#include "vision/format.h"
#include "vision/raster.h"

#include "base/charge.h"
#include "base/check.h"
#include "vision/vp8l_groups.h"

#include <errno.h>
#include <webp/decode.h>

#define RIFF_BYTES    12
#define CHUNK_BYTES   8
#define ANMF_BYTES    16
#define VP8X_BYTES    10
#define FLAG_ANIMATED 2

struct webp {
    struct slice pixels; /* the chunk "VP8 " or "VP8L" with its header */
    bool lossless;
    uint32_t left, top, width, height; /* place and size of the image on the canvas */
    uint32_t canvas_width, canvas_height;
    unsigned orientation;
};

static bool is_webp(struct slice bytes)
{
    return bytes.len >= RIFF_BYTES && slice_starts(bytes, SLICE("RIFF")) &&
           slice_eq(slice_sub(bytes, 8, 4), SLICE("WEBP"));
}

struct chunk {
    struct slice type, data, whole;
};

/* False at the end, and where a chunk is not whole. */
static bool next_chunk(struct slice bytes, size_t *at, struct chunk *ret)
{
    if (*at > bytes.len || bytes.len - *at < CHUNK_BYTES)
        return false;
    size_t len = format_little(bytes, *at + 4, 4);
    if (len > bytes.len - *at - CHUNK_BYTES)
        return false;
    ret->type = slice_sub(bytes, *at, 4);
    ret->data = slice_sub(bytes, *at + CHUNK_BYTES, len);
    ret->whole = slice_sub(bytes, *at, CHUNK_BYTES + len);
    *at += CHUNK_BYTES + ROUND_UP(len, (size_t)2);
    return true;
}

static bool find_chunk(struct slice bytes, size_t at, struct slice type, struct chunk *ret)
{
    while (next_chunk(bytes, &at, ret))
        if (slice_eq(ret->type, type))
            return true;
    return false;
}

/* The first chunk of pixels from `at` on. */
static int find_pixels(struct slice bytes, size_t at, struct webp *w, struct err *e)
{
    struct chunk c;
    while (next_chunk(bytes, &at, &c)) {
        w->lossless = slice_eq(c.type, SLICE("VP8L"));
        if (!w->lossless && !slice_eq(c.type, SLICE("VP8 ")))
            continue;
        WebPBitstreamFeatures f;
        if (WebPGetFeatures((const uint8_t *)c.whole.ptr, c.whole.len, &f) != VP8_STATUS_OK)
            return err_set(e, -EINVAL, "the header of its pixels is broken");
        w->pixels = c.whole;
        w->width = (uint32_t)f.width;
        w->height = (uint32_t)f.height;
        return 0;
    }
    return err_set(e, -EINVAL, "it ends before its pixels, or has none");
}

/* A frame of an animation: its place, and chunks of its own. */
static int find_frame(struct slice file, struct webp *w, struct err *e)
{
    struct chunk frame;
    if (!find_chunk(file, RIFF_BYTES, SLICE("ANMF"), &frame) || frame.data.len < ANMF_BYTES)
        return err_set(e, -EINVAL, "it ends before its first frame, or has none");
    w->left = format_little(frame.data, 0, 3) * 2;
    w->top = format_little(frame.data, 3, 3) * 2;
    return find_pixels(frame.data, ANMF_BYTES, w, e);
}

static int parse(struct slice bytes, struct webp *ret, struct err *e)
{
    struct webp w = {.orientation = 1};
    size_t stated = (size_t)format_little(bytes, 4, 4) + 8;
    if (stated > bytes.len)
        return err_set(e, -EINVAL, "it ends early: it says that it has %zu bytes, and has %zu", stated,
                       bytes.len);
    struct slice file = slice_sub(bytes, 0, stated);
    struct chunk c;
    size_t at = RIFF_BYTES;
    if (!next_chunk(file, &at, &c))
        return err_set(e, -EINVAL, "its first chunk is not whole");
    bool extended = slice_eq(c.type, SLICE("VP8X"));
    if (extended && c.data.len < VP8X_BYTES)
        return err_set(e, -EINVAL, "its header is not whole");
    bool animated = extended && (uint8_t)c.data.ptr[0] & FLAG_ANIMATED;
    int r = animated ? find_frame(file, &w, e) : find_pixels(file, RIFF_BYTES, &w, e);
    if (r < 0)
        return r;
    w.canvas_width = extended ? format_little(c.data, 4, 3) + 1 : w.width;
    w.canvas_height = extended ? format_little(c.data, 7, 3) + 1 : w.height;
    bool inside = w.left + w.width <= w.canvas_width && w.top + w.height <= w.canvas_height;
    bool covers = w.width == w.canvas_width && w.height == w.canvas_height;
    if (animated ? !inside : !covers)
        return err_set(e, -EINVAL, "its image of %u x %u pixels does not fit its canvas of %u x %u", w.width,
                       w.height, w.canvas_width, w.canvas_height);
    if (extended && find_chunk(file, RIFF_BYTES, SLICE("EXIF"), &c))
        w.orientation = exif_orientation(c.data);
    *ret = w;
    return 0;
}

static int measure_webp(struct slice bytes, struct format_size *ret, struct err *e)
{
    struct webp w;
    int r = parse(bytes, &w, e);
    if (r == 0)
        *ret = (struct format_size){w.canvas_width, w.canvas_height, w.orientation};
    return r;
}

static size_t arena_bytes_webp(const struct format_size *size)
{
    (void)size;
    return 0;
}

/* Computes the most bytes that libwebp allocates. Lossy: a row of macroblocks in several forms. Lossless: the
 * pixels and 17 rows more in 4 bytes each, three images of a quarter of the edges (two transforms, the choice
 * of groups), tables. */
static int heap_bytes(const struct webp *w, size_t *ret, struct err *e)
{
    size_t bytes = ((size_t)256 << 10) + (size_t)w->width * 256;
    uint32_t groups;
    if (w->lossless) {
        int r = vp8l_groups(slice_sub(w->pixels, CHUNK_BYTES, SIZE_MAX), &groups, e);
        if (r < 0)
            return r;
        size_t tiles = (size_t)DIV_UP(w->width, 4) * DIV_UP(w->height, 4);
        bytes += ((size_t)w->width * (w->height + 17) + 3 * tiles) * 4 + groups * VP8L_GROUP_BYTES;
    }
    *ret = bytes;
    return 0;
}

static const char *words_of(VP8StatusCode code)
{
    switch (code) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
        return "its pixels end early";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return "it uses a feature that is not decoded";
    default:
        return "its pixels are broken";
    }
}

static int decode_pixels(const struct webp *w, uint8_t *plane, struct err *e)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return err_set(e, -ENOMEM, "the WebP library is of another version");
    size_t stride = (size_t)w->canvas_width * 3;
    size_t at = w->top * stride + (size_t)w->left * 3;
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = plane + at;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = stride * w->canvas_height - at;
    VP8StatusCode code = WebPDecode((const uint8_t *)w->pixels.ptr, w->pixels.len, &config);
    WebPFreeDecBuffer(&config.output);
    if (code == VP8_STATUS_OUT_OF_MEMORY)
        return err_set(e, -ENOMEM, "there is no memory for decoding the image at present");
    return code == VP8_STATUS_OK ? 0 : err_set(e, -EINVAL, "%s", words_of(code));
}

static int decode_webp(const struct format_work *work, struct err *e)
{
    struct webp w;
    size_t heap = 0;
    int r = parse(work->bytes, &w, e);
    if (r == 0)
        r = format_agree(&work->size, w.canvas_width, w.canvas_height, e);
    if (r == 0)
        r = heap_bytes(&w, &heap, e);
    if (r == 0)
        r = format_charge(work->charge, heap, e);
    if (r < 0)
        return r;
    uint8_t *plane = raster_plane(work->to, e);
    r = plane ? decode_pixels(&w, plane, e) : -ENOMEM;
    charge_give(work->charge, heap);
    return r;
}

const struct format format_webp = {"WebP", is_webp, measure_webp, arena_bytes_webp, decode_webp};
