/* pictures.h - the picture of a golden case: its pixels through the tower, and its place in the prompt. */
#ifndef PLATEAU_TOOLS_PICTURES_H
#define PLATEAU_TOOLS_PICTURES_H

#include "golden/compare.h"

#include "model/vision.h"
#include "vision/picture.h"

/* Zeros: the case has none. */
struct picture_view {
    struct model_grid grid; /* its features are our own */
    uint32_t count;         /* 0 or 1 */
};

/* Encodes the picture of the case that k is about and compares size and features with the golden's; `dir` is
 * where the golden lies. Inside a turn of the workers. 0, -EINVAL, -ENOTSUP (the model has no tower),
 * -ENOMEM, or why the file could not be read. */
int picture_view_make(struct model *m, const char *dir, struct compare *k, struct picture_view *ret,
                      struct err *e);
void picture_view_free(struct picture_view *v);

#endif
