/* smart_size.h - the size to which a model's images or video frames are resized (contract 4.1, 4.5). Pure. */
#ifndef PLATEAU_VISION_SMART_SIZE_H
#define PLATEAU_VISION_SMART_SIZE_H

#include "base/err.h"
#include "vision/resize.h"

#include <stdbool.h>
#include <stdint.h>

/* An image with a larger aspect ratio is refused. */
#define SMART_ASPECT_MAX 200

/* A model's numbers: model_vision's patch * merge, and pixels_min/max; or for a video's frames the video_
 * ones, and pixels_max for each. */
struct smart_bounds {
    uint32_t edge; /* pixels of the edge of what one token covers; > 0 */
    /* Bounds of an image, or of all frames of a video together; max >= edge * edge. */
    uint64_t pixels_min, pixels_max;
    /* Bound of each frame of a video, >= edge * edge; 0: only their sum counts. */
    uint64_t frame_pixels_max;
    uint32_t longest; /* bound of the longer edge of a still image, instead of those of its area; 0: none */
    enum resize_filter filter;
    uint32_t square; /* both edges of a still image, whatever its ratio; 0: its own */
    bool grows;      /* a still image with an edge shorter than `edge` grows first, as a video does */
    /* Most patches of a still image, whose edge is `patch`, with no edge over `longest`: it shrinks, and
     * black pixels complete its last tokens. 0: not so. */
    uint32_t patches_max, patch;
    bool budget; /* a still image has the largest area of whole tokens below pixels_max */
};

struct smart_size {
    uint32_t width, height;             /* multiples of the edge, > 0 */
    uint32_t inner_width, inner_height; /* size of the image within; 0: all */
};

/* Computes the size of a still image; width and height are 1 to 2^30. Its area is never over pixels_max:
 * where one edge is a token's already, the other shrinks. 0, or -EINVAL with a message for the client: the
 * aspect ratio. */
int smart_size(uint32_t width, uint32_t height, const struct smart_bounds *bounds, struct smart_size *ret,
               struct err *e);

/* Computes the size of each of `frames` > 0 frames; their areas add up. Like the reference, it rounds an odd
 * number of frames to an even one (5 to 4, 7 to 8) when it checks the bounds, and not for the factor. The cut
 * by frame_pixels_max is ours. Errors are those of smart_size(). */
int smart_size_video(uint32_t frames, uint32_t width, uint32_t height, const struct smart_bounds *bounds,
                     struct smart_size *ret, struct err *e);

#endif
