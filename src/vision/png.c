/* png.c - PNG by libpng, row by row; interlaced ones in a plane.
 *
 * Only what makes pixels is read (IHDR, PLTE, tRNS, IDAT, IEND): text, colour profiles and all other chunks,
 * which may be zlib bombs, are skipped unread. libpng's memory comes out of the work's arena, so it is
 * charged and bounded; nothing is freed one by one, as it allocates a fixed number of buffers. The
 * orientation (eXIf) is found beforehand by walking the chunks. */
#include "vision/format.h"
#include "vision/raster.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/err.h"

#include <errno.h>
#include <png.h>
#include <setjmp.h>

#define SIGNATURE   SLICE("\x89PNG\r\n\x1a\n")
#define IHDR_BYTES  13
#define CHUNK_BYTES 12 /* length, type, checksum */
#define ARENA_BYTES                                                                                          \
    ((size_t)256 << 10)            /* zlib's window and state, libpng's structures and its input buffer */
#define ROWS_BYTES ((size_t)8 * 4) /* per pixel of a row: two rows of 16-bit RGBA, twice while they grow */

struct reader {
    const struct format_work *work;
    size_t at; /* in the bytes */
    png_structp png;
    png_infop info;
    uint8_t *row;
    struct err *e;
    int error;
    jmp_buf jump;
};

static bool is_png(struct slice bytes)
{
    return slice_starts(bytes, SIGNATURE);
}

/* The chunk at `at`: its type and data; false where it is not whole. */
static bool next_chunk(struct slice bytes, size_t *at, struct slice *type, struct slice *data)
{
    if (*at > bytes.len || bytes.len - *at < CHUNK_BYTES)
        return false;
    size_t len = format_big(bytes, *at, 4);
    if (len > bytes.len - *at - CHUNK_BYTES)
        return false;
    *type = slice_sub(bytes, *at + 4, 4);
    *data = slice_sub(bytes, *at + 8, len);
    *at += CHUNK_BYTES + len;
    return true;
}

static int measure_png(struct slice bytes, struct format_size *ret, struct err *e)
{
    struct slice type, data;
    size_t at = SIGNATURE.len;
    if (!next_chunk(bytes, &at, &type, &data) || !slice_eq(type, SLICE("IHDR")) || data.len != IHDR_BYTES)
        return err_set(e, -EINVAL, "it ends within its header, or does not begin with one");
    struct format_size s = {format_big(data, 0, 4), format_big(data, 4, 4), 1};
    while (next_chunk(bytes, &at, &type, &data))
        if (slice_eq(type, SLICE("eXIf"))) {
            s.orientation = exif_orientation(data);
            break;
        }
    *ret = s;
    return 0;
}

static size_t arena_bytes_png(const struct format_size *size)
{
    return ARENA_BYTES + (size_t)size->width * (ROWS_BYTES + 3);
}

static _Noreturn void on_error(png_structp png, png_const_charp words)
{
    struct reader *r = png_get_error_ptr(png);
    if (r->error == 0)
        r->error = err_set(r->e, -EINVAL, "%s", words);
    longjmp(r->jump, 1);
}

static void on_warning(png_structp png, png_const_charp words)
{
    (void)png, (void)words;
}

static png_voidp take(png_structp png, png_alloc_size_t bytes)
{
    struct reader *r = png_get_mem_ptr(png);
    void *block = arena_alloc(r->work->arena, bytes);
    if (!block && r->error == 0)
        r->error = err_set(r->e, -ENOMEM, "there is no memory for decoding the image at present");
    return block;
}

static void give(png_structp png, png_voidp block)
{
    (void)png, (void)block;
}

static void read_bytes(png_structp png, png_bytep to, size_t len)
{
    struct reader *r = png_get_io_ptr(png);
    struct slice bytes = r->work->bytes;
    if (len > bytes.len - r->at)
        png_error(png, "it ends early");
    memcpy(to, bytes.ptr + r->at, len);
    r->at += len;
}

static void set_limits(struct reader *r)
{
    const struct format_size *size = &r->work->size;
    png_set_user_limits(r->png, size->width, size->height);
    png_set_chunk_malloc_max(r->png, ARENA_BYTES);
    /* All but the five that make pixels. */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
}

/* To 8 bits of R, G and B, whatever is stored. */
static void set_conversion(struct reader *r)
{
    png_byte colour = png_get_color_type(r->png, r->info);
    png_set_strip_16(r->png);
    if (colour == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(r->png);
    if (!(colour & PNG_COLOR_MASK_COLOR)) {
        png_set_expand_gray_1_2_4_to_8(r->png);
        png_set_gray_to_rgb(r->png);
    }
    png_set_strip_alpha(r->png);
}

static int read_rows(struct reader *r)
{
    const struct format_size *size = &r->work->size;
    int result = 0;
    r->row = arena_alloc(r->work->arena, (size_t)size->width * 3);
    if (!r->row)
        return err_set(r->e, -ENOMEM, "there is no memory for decoding the image at present");
    for (uint32_t y = 0; y < size->height && result == 0; y++) {
        png_read_row(r->png, r->row, NULL);
        result = raster_row(r->work->to, r->row, r->e);
    }
    return result;
}

static int read_interlaced(struct reader *r, int passes)
{
    const struct format_size *size = &r->work->size;
    uint8_t *plane = raster_plane(r->work->to, r->e);
    if (!plane)
        return -ENOMEM;
    int result = 0;
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < size->height && result == 0; y++) {
            png_read_row(r->png, plane + y * (size_t)size->width * 3, NULL);
            result = raster_stopped(r->work->to, r->e);
        }
    return result;
}

/* libpng leaves by on_error(), which comes back here. Values set after setjmp() and read after the jump
 * lie in *r. */
static int read_png(struct reader *r)
{
    if (setjmp(r->jump))
        return r->error;
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, on_error, on_warning, r, take, give);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info)
        return err_set(r->e, -ENOMEM, "there is no memory for decoding the image at present");
    png_set_read_fn(r->png, r, read_bytes);
    set_limits(r);
    png_read_info(r->png, r->info);
    int result = format_agree(&r->work->size, png_get_image_width(r->png, r->info),
                              png_get_image_height(r->png, r->info), r->e);
    if (result < 0)
        return result;
    set_conversion(r);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    ASSERT(png_get_rowbytes(r->png, r->info) == (size_t)r->work->size.width * 3);
    result = passes == 1 ? read_rows(r) : read_interlaced(r, passes);
    if (result < 0)
        return result;
    png_read_end(r->png, NULL);
    return 0;
}

static int decode_png(const struct format_work *work, struct err *e)
{
    struct reader r = {.work = work, .e = e};
    int result = read_png(&r);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return result;
}

const struct format format_png = {"PNG", is_png, measure_png, arena_bytes_png, decode_png};
