/* images.c - a golden's pixels need no resizing: they go to the vision encoder unchanged. */
#include "golden/images.h"

#include "vision/decode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_BYTES_MAX ((size_t)4 << 20)

static int find_grid(const struct model_vision *v, const struct golden_case *c, struct model_grid *ret,
                     struct err *e)
{
    uint32_t first = 0, count = 0;
    while (first < c->prompt.count && c->prompt.ids[first] != v->image_token)
        first++;
    const struct model_grid g =
        model_grid_of(v, first, c->image.grid_columns * v->patch, c->image.grid_rows * v->patch);
    for (uint32_t i = first; i < c->prompt.count && i < first + model_grid_tokens(&g); i++)
        count += c->prompt.ids[i] == v->image_token;
    *ret = g;
    return count == g.rows * g.columns
               ? 0
               : err_set(e, -EINVAL, "%s: %u placeholders for a grid of %u rows and %u columns", c->name,
                         count, c->image.grid_rows, c->image.grid_columns);
}

/* Goldens of Canary in another form have the images of the first one. */
static FILE *open_shared(const char *dir, const char *name)
{
    char path[4352];
    snprintf(path, sizeof(path), "%s/../canary/%s", dir, name);
    return fopen(path, "rbe");
}

/* The file's bytes, to be freed. */
static int read_file(const char *dir, const char *name, struct slice *ret, struct err *e)
{
    char path[4352];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *in = fopen(path, "rbe");
    if (!in)
        in = open_shared(dir, name);
    if (!in)
        return err_set(e, -errno, "cannot open %s: %m", path);
    char *bytes = malloc(FILE_BYTES_MAX);
    size_t n = bytes ? fread(bytes, 1, FILE_BYTES_MAX, in) : 0;
    fclose(in);
    *ret = (struct slice){bytes, n};
    return bytes ? 0 : -ENOMEM;
}

static int decode(const char *dir, const char *name, struct image **ret, struct err *e)
{
    const struct decode_limits limits = DECODE_LIMITS_DEFAULT;
    struct slice bytes;
    struct decode_info info;
    struct image *p = NULL;
    int r = read_file(dir, name, &bytes, e);
    if (r < 0)
        return r;
    r = decode_measure(bytes, &limits, &info, e);
    if (r == 0)
        r = image_create(info.width, info.height, 1, NULL, &p);
    if (r == 0)
        r = decode_frame(p, 0, bytes, &limits, NULL, e);
    free((char *)bytes.ptr);
    if (r < 0)
        image_unref(p);
    else
        *ret = p;
    return r;
}

static int check_size(const struct model_vision *v, const struct golden_case *c, const struct model_image *p,
                      struct err *e)
{
    if (p->height != c->image.grid_rows * v->patch || p->width != c->image.grid_columns * v->patch ||
        p->height % (v->patch * v->merge) != 0 || p->width % (v->patch * v->merge) != 0 ||
        (uint64_t)p->width * p->height > v->pixels_max)
        return err_set(e, -EINVAL, "%s: an image of %u x %u pixels is not the grid of %u rows and %u columns",
                       c->name, p->width, p->height, c->image.grid_rows, c->image.grid_columns);
    return 0;
}

/* Piece by piece, until its memory is complete. */
static int begin(struct model *m, const struct model_image *p)
{
    int r;
    do
        r = vision_encoder_begin(model_vision_encoder(m), p);
    while (r > 0);
    return r;
}

static int encode(struct model *m, const struct model_image *in, struct compare *k, struct image_view *ret,
                  struct err *e)
{
    const struct model_vision *v = &model_shape(m)->vision;
    struct image_view view = {.count = 1};
    struct model_image p = *in;
    int r = check_size(v, k->c, in, e);
    if (r == 0)
        r = find_grid(v, k->c, &view.grid, e);
    if (r < 0)
        return r;
    uint64_t floats = (uint64_t)view.grid.rows * view.grid.columns * v->feature_floats;
    r = room_make(model_domain(m), floats * sizeof(float), 0, &view.features);
    p.features = view.grid.features = view.features.at;
    if (r == 0)
        r = begin(m, &p);
    if (r < 0) {
        room_free(&view.features);
        return err_set(e, r, "%s: no memory for its image", k->c->name);
    }
    (void)vision_encoder_run(model_vision_encoder(m), UINT64_MAX);
    float *features = room_copy(&view.features);
    if (features)
        compare_features(k, features, v->feature_floats);
    free(features);
    *ret = view;
    return features ? 0 : -ENOMEM;
}

int image_view_make(struct model *m, const char *dir, struct compare *k, struct image_view *ret,
                    struct err *e)
{
    const struct golden_image *g = &k->c->image;
    struct model_image p = {{g->pixels, g->pixels}, g->width, g->height, DEV_NULL};
    struct image *decoded = NULL;
    if (!g->pixels && !g->file[0])
        return 0;
    if (!model_shape(m)->vision.present)
        return err_set(e, -ENOTSUP, "%s: the model has no vision encoder", k->c->name);
    int r = g->pixels ? 0 : decode(dir, g->file, &decoded, e);
    if (decoded)
        p = (struct model_image){
            {decoded->pixels, decoded->pixels}, decoded->width, decoded->height, DEV_NULL};
    if (r == 0)
        r = encode(m, &p, k, ret, e);
    image_unref(decoded);
    return r;
}

void image_view_free(struct image_view *v)
{
    room_free(&v->features);
    *v = (struct image_view){0};
}
