/* gpu_image.h - an image for the vision encoder of a model on a GPU. */
#ifndef PLATEAU_BENCH_GPU_IMAGE_H
#define PLATEAU_BENCH_GPU_IMAGE_H

#include "model/model.h"

struct device;
struct gpu_image;

/* Makes an image of noise. 0, -EINVAL (the model has no vision encoder, or takes no image of that size),
 * -ENOMEM. */
int gpu_image_create(struct device *d, struct model *m, uint32_t width, uint32_t height,
                     struct gpu_image **ret);
void gpu_image_free(struct gpu_image *p);
/* Encodes it, in slices that end `slice_ns` after they began, each waited for. Returns the longest slice in
 * seconds. */
double gpu_image_encode(struct gpu_image *p, uint64_t slice_ns);

#endif
