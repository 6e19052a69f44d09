/* images.h - the image of a golden case: its pixels through the vision encoder, and its place in the
 * prompt. */
#ifndef PLATEAU_TOOLS_IMAGES_H
#define PLATEAU_TOOLS_IMAGES_H

#include "golden/compare.h"
#include "golden/room.h"

#include "model/vision.h"
#include "vision/image.h"

/* Zeros: the case has none. */
struct image_view {
    struct model_grid grid;
    struct room features; /* features of the grid */
    uint32_t count;       /* 0 or 1 */
};

/* Encodes the image of the case that k is about and compares size and features with the golden's; `dir` is
 * where the golden lies. Inside a turn of the workers. 0, -EINVAL, -ENOTSUP (the model has no vision
 * encoder), -ENOMEM, or why the file could not be read. */
int image_view_make(struct model *m, const char *dir, struct compare *k, struct image_view *ret,
                    struct err *e);
void image_view_free(struct image_view *v);

#endif
