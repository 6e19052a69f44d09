/* resize.h - resizing with antialias, to the byte equal to Pillow's Image.resize(size, filter) for RGB.
 *
 * That is Pillow up to 12.1, which resizes across and then down, as torchvision does. Later versions reverse
 * the order where that is less work: 12.2 if the image is over a hundred times taller than wide, 13.0 for
 * most that are taller at all. Between the passes values are rounded to 8 bits and clipped to 0 and 255, so
 * the order shows: by 2 at most without overshoot or in smooth images, by up to 30 in noise of black and
 * white (300 images of random sizes; the others are equal to the byte in both).
 *
 * torchvision's weights have fewer bits: its bytes differ by 2 at most, by 0.06 on average (0.29.2 in
 * transformers 5.24, 241 images of 1 to 2,000 pixels an edge, up and down, smooth and noise).
 *
 * Rows are pushed from the top. Each is resized across, and the results are kept for as many rows as an
 * output row reads; an output row is written when its last one has come. So the memory is that of a few
 * rows, whatever the image's height. One thread. */
#ifndef PLATEAU_VISION_RESIZE_H
#define PLATEAU_VISION_RESIZE_H

#include "base/arena.h"

struct resize;

enum resize_filter { RESIZE_BICUBIC, RESIZE_BILINEAR, RESIZE_LANCZOS };

struct resize_opts {
    uint32_t from_width, from_height, to_width, to_height; /* > 0 */
    uint8_t *to;                                           /* [to_height][to_width][3] */
    enum resize_filter filter;
    bool plain; /* the plain C code, whatever the processor has: for tests */
};

/* Lives as long as `a`, which must have room for resize_bytes(). 0 or -ENOMEM. */
int resize_create(struct arena *a, const struct resize_opts *opts, struct resize **ret);
size_t resize_bytes(const struct resize_opts *opts);

/* The next row, [from_width][3]; from_height of them in all. With the last one all of `to` is written. */
void resize_row(struct resize *r, const uint8_t *rgb);

#endif
