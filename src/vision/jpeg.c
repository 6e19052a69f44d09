/* jpeg.c - JPEG by libjpeg-turbo's scanlines, which come one by one; TurboJPEG needs room for all.
 *
 * The size and the orientation are found by walking the markers. libjpeg allocates from the heap, so its
 * need is computed from its own reading of the header and charged before it starts: some rows, and for
 * images of several scans (progressive ones) all coefficients. libjpeg only warns of missing data and
 * shows grey; here those warnings are errors. */
#include "vision/format.h"
#include "vision/raster.h"

#include "base/arena.h"
#include "base/charge.h"
#include "base/check.h"
#include "base/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
#include <jerror.h>

/* A scan may cost as much time as all pixels and take ten bytes. Encoders write about ten. */
#define SCANS_MAX 100
/* libjpeg's structures, tables and pools before it knows the size. */
#define FIXED_BYTES ((size_t)128 << 10)
/* Rows of one component between its stages: 8 coefficients high, times its sampling, with context, in and out
 * of upsampling. */
#define ROWS_BUFFERED 64

struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    const struct format_work *work;
    size_t charged;
    uint8_t *row;             /* [width][components] as libjpeg gives it */
    uint8_t *rgb;             /* [width][3]; the same where libjpeg gives RGB */
    unsigned components_seen; /* bits, of the components that some scan has */
    bool created;
    struct err *e;
    int error;
    jmp_buf jump;
};

enum {
    TEM = 0x01,
    RST0 = 0xd0,
    SOI = 0xd8,
    SOS = 0xda,
    APP1 = 0xe1,
    SOF0 = 0xc0,
    DHT = 0xc4,
    JPG = 0xc8,
    DAC = 0xcc,
    SOF15 = 0xcf
};

static bool is_jpeg(struct slice bytes)
{
    return slice_starts(bytes, SLICE("\xff\xd8\xff"));
}

static bool has_size(unsigned marker)
{
    return marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC;
}

/* Markers without a segment: restarts and fillers. */
static bool is_alone(unsigned marker)
{
    return marker <= TEM || (marker >= RST0 && marker <= SOI);
}

/* The next marker with a segment, from `at` on: its code, and its bytes after the length. False at the
 * end. Bytes between segments are skipped, as libjpeg does. */
static bool next_segment(struct slice bytes, size_t *at, unsigned *marker, struct slice *data)
{
    size_t i = *at;
    do {
        while (i < bytes.len && (uint8_t)bytes.ptr[i] != 0xff)
            i++;
        while (i < bytes.len && (uint8_t)bytes.ptr[i] == 0xff)
            i++;
        if (i == bytes.len)
            return false;
        *marker = (uint8_t)bytes.ptr[i++];
    } while (is_alone(*marker));
    if (bytes.len - i < 2)
        return false;
    size_t len = format_big(bytes, i, 2);
    if (len < 2 || len > bytes.len - i)
        return false;
    *data = slice_sub(bytes, i + 2, len - 2);
    *at = i + len;
    return true;
}

static int measure_jpeg(struct slice bytes, struct format_size *ret, struct err *e)
{
    struct format_size s = {0, 0, 1};
    struct slice data;
    unsigned marker;
    size_t at = 2;
    bool sized = false, turned = false;
    while (next_segment(bytes, &at, &marker, &data) && marker != SOS) {
        if (has_size(marker) && !sized) {
            if (data.len < 5)
                break;
            s.height = format_big(data, 1, 2);
            s.width = format_big(data, 3, 2);
            sized = true;
        } else if (marker == APP1 && !turned && slice_starts(data, SLICE("Exif\0\0"))) {
            s.orientation = exif_orientation(data);
            turned = true;
        }
    }
    if (!sized)
        return err_set(e, -EINVAL, "it ends or breaks before its size is given");
    *ret = s;
    return 0;
}

static size_t arena_bytes_jpeg(const struct format_size *size)
{
    return (size_t)size->width * (4 + 3) + (size_t)64 * 4;
}

static _Noreturn void leave(struct reader *r)
{
    longjmp(r->jump, 1);
}

static struct reader *reader_of(j_common_ptr jpeg)
{
    return CONTAINER((j_decompress_ptr)jpeg, struct reader, jpeg);
}

static _Noreturn void on_error(j_common_ptr jpeg)
{
    struct reader *r = reader_of(jpeg);
    char words[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, words);
    if (r->error == 0)
        r->error = err_set(r->e, -EINVAL, "%s", words);
    leave(r);
}

/* Level -1 is a warning. Warnings about missing or wrong data end it; the others do not affect the pixels. */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level >= 0)
        return;
    switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        on_error(jpeg);
    default:
        break;
    }
}

/* Called at each step through the scans, before there are rows. */
static void on_progress(j_common_ptr jpeg)
{
    struct reader *r = reader_of(jpeg);
    for (int i = 0; i < r->jpeg.comps_in_scan; i++)
        r->components_seen |= 1u << r->jpeg.cur_comp_info[i]->component_index;
    if (r->jpeg.input_scan_number > SCANS_MAX)
        r->error = err_set(r->e, -EINVAL, "it has more than %d scans", SCANS_MAX);
    else
        r->error = raster_stopped(r->work->to, r->e);
    if (r->error < 0)
        leave(r);
}

/* Returns the most bytes that libjpeg allocates once it starts. */
static size_t heap_bytes(struct jpeg_decompress_struct *jpeg)
{
    size_t bytes = 0;
    for (int i = 0; i < jpeg->num_components; i++) {
        const jpeg_component_info *c = &jpeg->comp_info[i];
        size_t across = ROUND_UP((size_t)c->width_in_blocks, (size_t)c->h_samp_factor);
        size_t down = ROUND_UP((size_t)c->height_in_blocks, (size_t)c->v_samp_factor);
        if (jpeg_has_multiple_scans(jpeg))
            bytes += across * (down + (size_t)c->v_samp_factor) * sizeof(JBLOCK);
        size_t widest = ROUND_UP((size_t)jpeg->image_width, (size_t)jpeg->max_h_samp_factor * DCTSIZE);
        bytes += widest * ROWS_BUFFERED;
    }
    return bytes;
}

static int charge_more(struct reader *r, size_t bytes)
{
    int result = format_charge(r->work->charge, bytes, r->e);
    if (result == 0)
        r->charged += bytes;
    return result;
}

static int choose_colours(struct reader *r)
{
    switch (r->jpeg.jpeg_color_space) {
    case JCS_GRAYSCALE:
    case JCS_RGB:
    case JCS_YCbCr:
        r->jpeg.out_color_space = JCS_RGB;
        return 0;
    case JCS_CMYK:
    case JCS_YCCK:
        r->jpeg.out_color_space = JCS_CMYK;
        return 0;
    default:
        return err_set(r->e, -EINVAL, "it has %d colours of an unknown kind", r->jpeg.num_components);
    }
}

/* a * b / 255, rounded, for bytes. */
static uint8_t product(unsigned a, unsigned b)
{
    unsigned t = a * b + 128;
    return (uint8_t)(((t >> 8) + t) >> 8);
}

/* Only Adobe writes such files, and stores 255 - c: the stored value is the ink left out. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t *rgb, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(cmyk[3] - product(255u - cmyk[c], cmyk[3]));
}

static int read_rows(struct reader *r)
{
    bool cmyk = r->jpeg.out_color_space == JCS_CMYK;
    size_t width = r->work->size.width;
    r->rgb = arena_alloc(r->work->arena, width * 3);
    r->row = cmyk ? arena_alloc(r->work->arena, width * 4) : r->rgb;
    if (!r->rgb || !r->row)
        return err_set(r->e, -ENOMEM, "there is no memory for decoding the image at present");
    int result = 0;
    while (r->jpeg.output_scanline < r->jpeg.output_height && result == 0) {
        (void)jpeg_read_scanlines(&r->jpeg, &r->row, 1);
        if (cmyk)
            cmyk_to_rgb(r->row, r->rgb, width);
        result = raster_row(r->work->to, r->rgb, r->e);
    }
    return result;
}

/* libjpeg leaves by on_error(), which comes back here. Values set after setjmp() and read after the jump
 * lie in *r. */
static int read_jpeg(struct reader *r)
{
    if (setjmp(r->jump))
        return r->error;
    struct slice bytes = r->work->bytes;
    int result = charge_more(r, FIXED_BYTES);
    if (result < 0)
        return result;
    r->created = true;
    jpeg_create_decompress(&r->jpeg);
    r->jpeg.progress = &r->progress;
    jpeg_mem_src(&r->jpeg, (const unsigned char *)bytes.ptr, bytes.len);
    (void)jpeg_read_header(&r->jpeg, TRUE);
    result = format_agree(&r->work->size, r->jpeg.image_width, r->jpeg.image_height, r->e);
    if (result == 0)
        result = choose_colours(r);
    if (result == 0)
        result = charge_more(r, heap_bytes(&r->jpeg));
    if (result < 0)
        return result;
    /* libjpeg keeps its coefficients within this by itself. */
    r->jpeg.mem->max_memory_to_use = (long)r->charged;
    bool scans = jpeg_has_multiple_scans(&r->jpeg);
    (void)jpeg_start_decompress(&r->jpeg);
    if (scans && r->components_seen != (1u << r->jpeg.num_components) - 1)
        return err_set(r->e, -EINVAL, "it has no data for some of its colours");
    result = read_rows(r);
    if (result == 0)
        (void)jpeg_finish_decompress(&r->jpeg);
    return result;
}

static int decode_jpeg(const struct format_work *work, struct err *e)
{
    struct reader r = {.work = work, .e = e, .progress = {.progress_monitor = on_progress}};
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = on_error;
    r.errors.emit_message = on_message;
    int result = read_jpeg(&r);
    if (r.created)
        jpeg_destroy_decompress(&r.jpeg);
    if (r.charged)
        charge_give(work->charge, r.charged);
    return result;
}

const struct format format_jpeg = {"JPEG", is_jpeg, measure_jpeg, arena_bytes_jpeg, decode_jpeg};
