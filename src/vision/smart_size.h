/* smart_size.h - the size to which a model wants a picture or the frames of a video resized
 * (contract 4.1, 4.5). Pure. */
#ifndef PLATEAU_VISION_SMART_SIZE_H
#define PLATEAU_VISION_SMART_SIZE_H

#include "base/err.h"

#include <stdint.h>

/* A picture this many times longer than wide is refused, or the other way round. */
#define SMART_ASPECT_MAX 200

/* A model's numbers: model_vision's patch * merge, and pixels_min/max; or for a video's frames the video_
 * ones, and pixels_max for each. */
struct smart_bounds {
    uint32_t edge; /* pixels of the edge of what one token covers; > 0 */
    /* Of a picture, or of all frames of a video together; max >= edge * edge. */
    uint64_t pixels_min, pixels_max;
    /* Of each frame of a video, >= edge * edge; 0: only what they have together counts. */
    uint64_t frame_pixels_max;
};

struct smart_size {
    uint32_t width, height; /* multiples of the edge, > 0 */
};

/* Of a still picture of that size; width and height are 1 to 2^30. Its area is never over pixels_max: where
 * one edge cannot be less than a token's, the other gives way. 0, or -EINVAL with words for the client: the
 * aspect ratio. */
int smart_size(uint32_t width, uint32_t height, const struct smart_bounds *bounds, struct smart_size *ret,
               struct err *e);

/* Of each of `frames` > 0 frames of that size, whose areas count together. As the reference has it, an odd
 * number of frames is rounded to an even one (5 to 4, 7 to 8) for the question whether the bounds are kept,
 * and not for the factor that answers it. What frame_pixels_max cuts is ours. As above. */
int smart_size_video(uint32_t frames, uint32_t width, uint32_t height, const struct smart_bounds *bounds,
                     struct smart_size *ret, struct err *e);

#endif
