/* pictures.h - the picture of a golden case: its pixels through the tower, and its place in the prompt. */
#ifndef PLATEAU_TOOLS_PICTURES_H
#define PLATEAU_TOOLS_PICTURES_H

#include "golden/compare.h"

#include "model/vision.h"

/* Zeros: the case has none. */
struct picture_view {
    struct model_grid grid; /* its features are our own */
    uint32_t count;         /* 0 or 1 */
};

/* Encodes the case's picture and compares size and features with the golden's. Inside a turn of the workers.
 * 0, -EINVAL, -ENOTSUP (the model has no tower), -ENOMEM. */
int picture_view_make(struct model *m, const struct golden_case *c, struct compare *k,
                      struct picture_view *ret, struct err *e);
void picture_view_free(struct picture_view *v);

#endif
