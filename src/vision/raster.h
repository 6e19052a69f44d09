/* raster.h - the target of a decoder's pixels: hashed, and resized into one frame of an image.
 *
 * Either row after row from the top (raster_row), none of which is kept unless the image is turned; or all
 * in a plane that the raster makes (raster_plane) and raster_end() reads. One thread, one image. */
#ifndef PLATEAU_VISION_RASTER_H
#define PLATEAU_VISION_RASTER_H

#include "base/arena.h"
#include "base/err.h"

#include <stdatomic.h>

struct image;
struct raster;

struct raster_opts {
    uint32_t width, height; /* size as stored */
    unsigned orientation;   /* 1 to 8, EXIF's */
    struct image *to;
    uint32_t frame;          /* index of the frame in `to`; the earlier ones are there */
    const atomic_bool *stop; /* may be NULL */
};

/* Allocates from `a`; raster_done() frees the memory outside of it. 0, or -ENOMEM with a message. */
int raster_create(struct arena *a, const struct raster_opts *opts, struct raster **ret, struct err *e);
void raster_done(struct raster *r);
/* Returns the most bytes that it asks `a` for. */
size_t raster_bytes(const struct raster_opts *opts);

/* 0; -ENOMEM or -ECANCELED, with a message: the image is given up. */
int raster_row(struct raster *r, const uint8_t *rgb /* [width][3] */, struct err *e);
/* Zeroed, [height][width][3]; NULL: no memory. Called before any row, and instead of them. */
uint8_t *raster_plane(struct raster *r, struct err *e);
/* All pixels are there: fills the frame's pixels and the image's hash. As raster_row(). */
int raster_end(struct raster *r, struct err *e);

/* Whether the client has left: -ECANCELED with words, else 0. */
int raster_stopped(const struct raster *r, struct err *e);

#endif
