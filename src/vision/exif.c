/* exif.c - a TIFF header and one directory, in either byte order. Whatever points outside ends the search. */
#include "vision/format.h"

#define TAG_ORIENTATION 0x0112
enum { TYPE_BYTE = 1, TYPE_SHORT = 3, TYPE_LONG = 4 };

struct tiff {
    struct slice bytes;
    bool big_endian;
};

/* `width` bytes at `at`; 0 outside. */
static uint32_t number(const struct tiff *t, size_t at, size_t width)
{
    if (width > t->bytes.len || at > t->bytes.len - width)
        return 0;
    uint32_t v = 0;
    for (size_t i = 0; i < width; i++) {
        size_t from = t->big_endian ? i : width - 1 - i;
        v = v << 8 | (uint8_t)t->bytes.ptr[at + from];
    }
    return v;
}

static uint32_t value(const struct tiff *t, size_t entry)
{
    switch (number(t, entry + 2, 2)) {
    case TYPE_BYTE:
        return number(t, entry + 8, 1);
    case TYPE_SHORT:
        return number(t, entry + 8, 2);
    case TYPE_LONG:
        return number(t, entry + 8, 4);
    default:
        return 0;
    }
}

unsigned exif_orientation(struct slice exif)
{
    if (slice_starts(exif, SLICE("Exif\0\0")))
        exif = slice_sub(exif, 6, SIZE_MAX);
    struct tiff t = {.bytes = exif, .big_endian = slice_starts(exif, SLICE("MM"))};
    if ((!t.big_endian && !slice_starts(exif, SLICE("II"))) || number(&t, 2, 2) != 42)
        return 1;
    size_t directory = number(&t, 4, 4);
    uint32_t entries = number(&t, directory, 2);
    for (uint32_t i = 0; i < entries; i++) {
        size_t entry = directory + 2 + (size_t)i * 12;
        if (number(&t, entry, 2) != TAG_ORIENTATION)
            continue;
        uint32_t v = value(&t, entry);
        return v >= 1 && v <= 8 ? v : 1;
    }
    return 1;
}
