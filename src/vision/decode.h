/* decode.h - the bytes of a PNG, JPEG, WebP or GIF, or the raw frames of a video, to struct image.
 *
 * The format is detected from the first bytes, never from a name or a claimed type. The pixels are those of
 * Pillow's ImageOps.exif_transpose(Image.open(f)).convert("RGB").resize(size, BICUBIC) (resize.h says of
 * which Pillow):
 *   orientation   EXIF's tag 0x0112 of JPEG, PNG and WebP is applied; a value that is not 1 to 8 is 1
 *   alpha         dropped: a transparent pixel shows the colour that is stored for it
 *   grey, palette expanded; an index past the palette's end is black
 *   16 bit        the upper 8 count. (Pillow does so for colours; for grey it makes all from 256 on white,
 *     which
 *                 is useless.)
 *   CMYK JPEG     read as Adobe writes it, inverted: (255 - c) * (255 - k) / 255; colour profiles are
 *     ignored
 *   animations    their first image, on its canvas
 * Truncated or damaged bytes are refused, even where a part could be decoded.
 *
 * Limits are compared with the headers before anything is allocated. Every byte that grows with the image is
 * charged before it is allocated, those of the libraries too, and given back before the call returns: for
 * images read from top to bottom (PNG, JPEG) some rows; for interlaced or turned ones, WebP and GIF, 3 bytes
 * for each pixel; for a progressive JPEG up to 6 more, for a WebP 6 more. Any thread; nothing is kept
 * between calls. */
#ifndef PLATEAU_VISION_DECODE_H
#define PLATEAU_VISION_DECODE_H

#include "base/err.h"
#include "base/slice.h"

#include <stdatomic.h>

struct charge;
struct image;
struct smart_bounds;

struct decode_limits {
    size_t bytes_max;    /* limit of the encoded image */
    uint32_t edge_max;   /* width, and height */
    uint64_t pixels_max; /* width * height, as stored */
    /* True ends decoding with -ECANCELED: within a row, or for a WebP, which libwebp decodes in one go,
     * after that. May be NULL. */
    const atomic_bool *stop;
};

#define DECODE_LIMITS_DEFAULT                                                                                \
    ((struct decode_limits){.bytes_max = 32 << 20, .edge_max = 32768, .pixels_max = 64000000})

struct decode_info {
    const char *format;     /* "PNG", "JPEG", "WebP" or "GIF" */
    uint32_t width, height; /* after its orientation is applied */
};

/* All of these fail with a sentence for a client in e, which names the format, the error and the limit:
 *   -EINVAL     damaged, cut short, or a kind that is not decoded, among them all other formats
 *   -E2BIG      over a limit
 *   -ENOMEM     the charge was refused or the system has no memory; not the client's error
 *   -ECANCELED  `stop` became true
 * The charge is then as before. */

/* Reads the headers only, in microseconds and without memory of size: what decoding the same bytes will find,
 * if they are whole. */
int decode_measure(struct slice bytes, const struct decode_limits *limits, struct decode_info *ret,
                   struct err *e);

/* A still image of one frame, resized within the bounds: decode_measure(), smart_size() and decode_frame()
 * in one call. */
int decode_still(struct slice bytes, const struct decode_limits *limits, const struct smart_bounds *bounds,
                 const struct charge *charge, struct image **ret, struct err *e);

/* Alternatively make the image with image_create() and fill its frames in order, each from an encoded
 * image or from raw pixels; each is resized to p's size, whatever its own. p->sha256 is whole after the
 * last, and covers all frames. A frame that failed must not be used. */
int decode_frame(struct image *p, uint32_t frame, struct slice bytes, const struct decode_limits *limits,
                 const struct charge *charge, struct err *e);
/* rgb: [height][width][3], read only. `stop` may be NULL. */
int decode_raw_frame(struct image *p, uint32_t frame, const uint8_t *rgb, uint32_t width, uint32_t height,
                     const atomic_bool *stop, const struct charge *charge, struct err *e);
/* A part of an image in its size, of p's width and height. */
int decode_cut(struct image *p, const struct image *from, uint32_t left, uint32_t top,
               const atomic_bool *stop, const struct charge *charge, struct err *e);

#endif
