/* gif.c - the first image of a GIF by giflib, on its canvas.
 *
 * As Pillow shows it: where the image does not cover the canvas there is the transparent colour if it has
 * one, else colour 0; an image larger than the canvas enlarges it; an index past the palette's end is
 * black, and without any palette it is that grey. Reading ends after the first image. */
#include "vision/format.h"
#include "vision/raster.h"

#include "base/arena.h"
#include "base/charge.h"
#include "base/check.h"
#include "base/err.h"

#include <errno.h>
#include <gif_lib.h>

/* giflib's decoder has tables of 4096 codes. */
#define HEAP_BYTES ((size_t)128 << 10)

struct reader {
    struct slice bytes;
    size_t at;
    GifFileType *gif;
    int transparent;                   /* index, or NO_TRANSPARENT_COLOR */
    uint32_t left, top, width, height; /* place and size of the first image */
    uint32_t canvas_width, canvas_height;
    struct err *e;
};

static bool is_gif(struct slice bytes)
{
    return slice_starts(bytes, SLICE("GIF87a")) || slice_starts(bytes, SLICE("GIF89a"));
}

static int read_bytes(GifFileType *gif, GifByteType *to, int len)
{
    struct reader *r = gif->UserData;
    size_t n = MIN_OF((size_t)len, r->bytes.len - r->at);
    memcpy(to, r->bytes.ptr + r->at, n);
    r->at += n;
    return (int)n;
}

static int broken(struct reader *r, int code)
{
    if (r->at == r->bytes.len)
        return err_set(r->e, -EINVAL, "it ends early");
    if (code == D_GIF_ERR_NOT_ENOUGH_MEM)
        return err_set(r->e, -ENOMEM, "there is no memory for decoding the image at present");
    const char *words = GifErrorString(code);
    return err_set(r->e, -EINVAL, "%s", words ? words : "its data are broken");
}

/* One extension before the image; only its transparent colour counts. */
static int read_extension(struct reader *r)
{
    int code;
    GifByteType *block; /* its length first */
    if (DGifGetExtension(r->gif, &code, &block) == GIF_ERROR)
        return broken(r, r->gif->Error);
    while (block) {
        GraphicsControlBlock control;
        if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
            r->transparent = control.TransparentColor;
        if (DGifGetExtensionNext(r->gif, &block) == GIF_ERROR)
            return broken(r, r->gif->Error);
    }
    return 0;
}

static int read_description(struct reader *r)
{
    if (DGifGetImageDesc(r->gif) == GIF_ERROR)
        return broken(r, r->gif->Error);
    const GifImageDesc *d = &r->gif->Image;
    if (d->Left < 0 || d->Top < 0 || d->Width <= 0 || d->Height <= 0)
        return err_set(r->e, -EINVAL, "its first image has no pixels");
    r->left = (uint32_t)d->Left;
    r->top = (uint32_t)d->Top;
    r->width = (uint32_t)d->Width;
    r->height = (uint32_t)d->Height;
    r->canvas_width = MAX_OF((uint32_t)r->gif->SWidth, r->left + r->width);
    r->canvas_height = MAX_OF((uint32_t)r->gif->SHeight, r->top + r->height);
    return 0;
}

/* Up to the first image's data. */
static int open_gif(struct reader *r)
{
    int code = 0;
    r->transparent = NO_TRANSPARENT_COLOR;
    r->gif = DGifOpen(r, read_bytes, &code);
    if (!r->gif)
        return broken(r, code);
    for (;;) {
        GifRecordType type;
        if (DGifGetRecordType(r->gif, &type) == GIF_ERROR)
            return broken(r, r->gif->Error);
        if (type == IMAGE_DESC_RECORD_TYPE)
            return read_description(r);
        if (type != EXTENSION_RECORD_TYPE)
            return err_set(r->e, -EINVAL, "it has no image");
        int result = read_extension(r);
        if (result < 0)
            return result;
    }
}

static void close_gif(struct reader *r)
{
    int code;
    if (r->gif)
        (void)DGifCloseFile(r->gif, &code);
}

static int measure_gif(struct slice bytes, struct format_size *ret, struct err *e)
{
    struct reader r = {.bytes = bytes, .e = e};
    int result = open_gif(&r);
    if (result == 0)
        *ret = (struct format_size){r.canvas_width, r.canvas_height, 1};
    close_gif(&r);
    return result;
}

static size_t arena_bytes_gif(const struct format_size *size)
{
    return (size_t)size->width + 64;
}

struct palette {
    uint8_t rgb[256][3];
};

static void palette_of(const GifFileType *gif, struct palette *ret)
{
    const ColorMapObject *map = gif->Image.ColorMap ? gif->Image.ColorMap : gif->SColorMap;
    for (unsigned i = 0; i < 256; i++) {
        GifColorType none = map ? (GifColorType){0} : (GifColorType){(uint8_t)i, (uint8_t)i, (uint8_t)i};
        const GifColorType *c = map && i < (unsigned)map->ColorCount ? &map->Colors[i] : &none;
        ret->rgb[i][0] = c->Red;
        ret->rgb[i][1] = c->Green;
        ret->rgb[i][2] = c->Blue;
    }
}

static void fill(uint8_t *plane, size_t pixels, const uint8_t *rgb)
{
    for (size_t i = 0; i < pixels; i++)
        memcpy(plane + i * 3, rgb, 3);
}

static int read_line(struct reader *r, uint8_t *line, const struct palette *p, uint8_t *to)
{
    if (DGifGetLine(r->gif, line, (int)r->width) == GIF_ERROR)
        return broken(r, r->gif->Error);
    for (uint32_t x = 0; x < r->width; x++)
        memcpy(to + (size_t)x * 3, p->rgb[line[x]], 3);
    return 0;
}

static int read_lines(struct reader *r, const struct format_work *work, const struct palette *p,
                      uint8_t *plane)
{
    static const struct {
        uint32_t from, step;
    } interlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}}, straight[] = {{0, 1}};
    size_t passes = r->gif->Image.Interlace ? COUNT_OF(interlaced) : COUNT_OF(straight);
    uint8_t *line = arena_alloc(work->arena, r->width);
    if (!line)
        return err_set(r->e, -ENOMEM, "there is no memory for decoding the image at present");
    int result = 0;
    for (size_t i = 0; i < passes; i++) {
        uint32_t from = passes > 1 ? interlaced[i].from : straight[i].from;
        uint32_t step = passes > 1 ? interlaced[i].step : straight[i].step;
        for (uint32_t y = from; y < r->height && result == 0; y += step) {
            size_t at = (size_t)(r->top + y) * r->canvas_width + r->left;
            result = read_line(r, line, p, plane + at * 3);
            if (result == 0)
                result = raster_stopped(work->to, r->e);
        }
    }
    return result;
}

static int read_gif(struct reader *r, const struct format_work *work)
{
    int result = open_gif(r);
    if (result == 0)
        result = format_agree(&work->size, r->canvas_width, r->canvas_height, r->e);
    if (result < 0)
        return result;
    uint8_t *plane = raster_plane(work->to, r->e);
    if (!plane)
        return -ENOMEM;
    struct palette p;
    palette_of(r->gif, &p);
    if (r->width != r->canvas_width || r->height != r->canvas_height)
        fill(plane, (size_t)r->canvas_width * r->canvas_height,
             p.rgb[r->transparent == NO_TRANSPARENT_COLOR ? 0 : r->transparent]);
    return read_lines(r, work, &p, plane);
}

static int decode_gif(const struct format_work *work, struct err *e)
{
    struct reader r = {.bytes = work->bytes, .e = e};
    int result = format_charge(work->charge, HEAP_BYTES, e);
    if (result < 0)
        return result;
    result = read_gif(&r, work);
    close_gif(&r);
    charge_give(work->charge, HEAP_BYTES);
    return result;
}

const struct format format_gif = {"GIF", is_gif, measure_gif, arena_bytes_gif, decode_gif};
