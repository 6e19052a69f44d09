/* format.h - a decoder for decode.c: detected from the first bytes, measured by its headers, decoded into a
 * raster.
 *
 * Decoding does not trust the measured size: the library's own size is compared with it before a pixel is
 * written. */
#ifndef PLATEAU_VISION_FORMAT_H
#define PLATEAU_VISION_FORMAT_H

#include "base/slice.h"

struct err;
struct raster;

struct format_size {
    uint32_t width, height; /* size as stored; 0 is refused by the caller */
    unsigned orientation;   /* 1 to 8 */
};

struct format_work {
    struct slice bytes;
    struct format_size size;
    struct arena *arena;         /* ends with the image; has room for `arena_bytes`, and is charged */
    const struct charge *charge; /* for what a library takes from the heap; may be NULL */
    struct raster *to;
};

struct format {
    const char *name;
    /* By the first bytes; there may be as few as none. */
    bool (*is)(struct slice bytes);
    /* 0, or -EINVAL with words that do not repeat the name. */
    int (*measure)(struct slice bytes, struct format_size *ret, struct err *e);
    /* In addition to the raster's bytes. */
    size_t (*arena_bytes)(const struct format_size *size);
    /* Every row or the plane, all of it: 0, or an error of decode.h with words that do not repeat the
     * name. */
    int (*decode)(const struct format_work *work, struct err *e);
};

extern const struct format format_png, format_jpeg, format_webp, format_gif;

/* 0, or -ENOMEM with words: the heap will take `bytes` for a library. Given back by charge_give(). */
int format_charge(const struct charge *charge, size_t bytes, struct err *e);
/* -EINVAL with words unless both are the same. */
int format_agree(const struct format_size *size, uint64_t width, uint64_t height, struct err *e);

/* An unsigned number at `at`, which lies in `s` whole. */
static inline uint32_t format_big(struct slice s, size_t at, size_t width)
{
    uint32_t v = 0;
    for (size_t i = 0; i < width; i++)
        v = v << 8 | (uint8_t)s.ptr[at + i];
    return v;
}

static inline uint32_t format_little(struct slice s, size_t at, size_t width)
{
    uint32_t v = 0;
    for (size_t i = width; i > 0; i--)
        v = v << 8 | (uint8_t)s.ptr[at + i - 1];
    return v;
}

/* exif.c: the orientation (tag 0x0112) of the first directory of EXIF data, with or without "Exif\0\0"
 * before it: 1 to 8. 1 where it is not given, out of range, or the data are broken. Reads at most 65,535
 * entries. */
unsigned exif_orientation(struct slice exif);

#endif
