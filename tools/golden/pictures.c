/* pictures.c - a golden's pixels need no resizing: they go to the tower as they are. */
#include "golden/pictures.h"

#include <errno.h>
#include <stdlib.h>

static int find_place(const struct model_vision *v, const struct golden_case *c, struct model_grid *g,
                      struct err *e)
{
    uint32_t first = 0, count = 0;
    while (first < c->prompt.count && c->prompt.ids[first] != v->image_token)
        first++;
    while (first + count < c->prompt.count && c->prompt.ids[first + count] == v->image_token)
        count++;
    *g = (struct model_grid){.first = first,
                             .rows = c->picture.grid_rows / v->merge,
                             .columns = c->picture.grid_columns / v->merge};
    return count == g->rows * g->columns
               ? 0
               : err_set(e, -EINVAL, "%s: %u placeholders for a grid of %u rows and %u columns", c->name,
                         count, c->picture.grid_rows, c->picture.grid_columns);
}

static int check_picture(const struct model_vision *v, const struct golden_case *c, struct err *e)
{
    const struct golden_picture *p = &c->picture;
    if (!v->present)
        return err_set(e, -ENOTSUP, "%s: the model has no vision tower", c->name);
    if (p->height != p->grid_rows * v->patch || p->width != p->grid_columns * v->patch ||
        p->height % (v->patch * v->merge) != 0 || p->width % (v->patch * v->merge) != 0 ||
        (uint64_t)p->width * p->height > v->pixels_max)
        return err_set(e, -EINVAL,
                       "%s: a picture of %u x %u pixels is not the grid of %u rows and %u columns", c->name,
                       p->width, p->height, p->grid_rows, p->grid_columns);
    return 0;
}

int picture_view_make(struct model *m, const struct golden_case *c, struct compare *k,
                      struct picture_view *ret, struct err *e)
{
    const struct model_vision *v = &model_shape(m)->vision;
    const struct golden_picture *p = &c->picture;
    struct picture_view view = {.count = 1};
    if (!p->pixels)
        return 0;
    int r = check_picture(v, c, e);
    if (r == 0)
        r = find_place(v, c, &view.grid, e);
    if (r < 0)
        return r;
    float *features = calloc((size_t)view.grid.rows * view.grid.columns * v->feature_floats, sizeof(float));
    view.grid.features = features;
    struct model_picture in = {
        .frames = {p->pixels, p->pixels}, .width = p->width, .height = p->height, .features = features};
    r = features ? model_encode_begin(m, &in) : -ENOMEM;
    if (r < 0) {
        free(features);
        return err_set(e, r, "%s: no memory for its picture", c->name);
    }
    (void)model_encode_run(m, UINT64_MAX);
    compare_features(k, features, v->feature_floats);
    *ret = view;
    return 0;
}

void picture_view_free(struct picture_view *v)
{
    free((float *)v->grid.features);
    *v = (struct picture_view){0};
}
