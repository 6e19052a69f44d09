/* image.h - one image as the vision encoder reads it: decoded, checked, resized, with the hash of its
 * pixels.
 *
 * Made on a media thread, read by engines, freed by the last release. Its bytes are one block, charged
 * when it is made and given back with it. A pair of video frames is an image with two frames. Constant
 * once it is made. */
#ifndef PLATEAU_VISION_IMAGE_H
#define PLATEAU_VISION_IMAGE_H

#include "base/charge.h"
#include "vision/resize.h"

#include <stdatomic.h>
#include <stdint.h>

#define IMAGE_FRAMES_MAX 2

struct image {
    /* Constant. */
    uint32_t width, height; /* size of the pixels below: multiples of a token's edge */
    uint32_t inner_width,
        inner_height;          /* part from the first pixel on that shows something, the rest is black;
                                         * set before it is decoded; 0: all */
    uint32_t frames;           /* 1, or 2 that follow one another */
    enum resize_filter filter; /* filter by which pixels are resized; set before they are decoded */
    uint8_t sha256[32];        /* digest of width and height above, and of all that was decoded, before it was
                             * resized: width, height, pixels, of each frame */
    size_t bytes;              /* bytes of the block */
    struct charge charge;
    atomic_uint holders;
    uint8_t pixels[]; /* [frames][height][width][3]: R, G, B */
};

static inline size_t image_frame_bytes(uint32_t width, uint32_t height)
{
    return (size_t)width * height * 3;
}

/* One holder, pixels and hash still to be filled by the caller. 0, or -ENOMEM: the charge was refused, or the
 * system has none. */
int image_create(uint32_t width, uint32_t height, uint32_t frames, const struct charge *charge,
                 struct image **ret);
/* Any thread. */
struct image *image_ref(struct image *p);
/* NULL is fine. Any thread. */
void image_unref(struct image *p);

#endif
