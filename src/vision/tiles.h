/* tiles.h - an image as tiles of one size, each of which the encoder reads as an image of its own.
 *
 * Tiles go row by row, and after several of them comes the whole image in a size of its own. An image of one
 * tile is the whole image alone. The hash of a tile is that of its pixels. Any thread. */
#ifndef PLATEAU_VISION_TILES_H
#define PLATEAU_VISION_TILES_H

#include "vision/decode.h"
#include "vision/smart_size.h"

struct tile_bounds {
    uint32_t edge;                 /* pixels of a tile's edge; 0: no image has tiles */
    uint32_t kept;                 /* pixels of it that patches cover: the others are cut off */
    uint32_t count_min, count_max; /* tiles of an image; rows and columns of the nearest ratio are taken */
    uint32_t longest; /* > 0: the image's longer edge becomes that, and then both whole tiles, in two steps */
    double area_above;         /* an image has tiles if its area, of whole tokens, is larger */
    struct smart_bounds whole; /* size of the whole image */
};

struct tile_grid {
    uint32_t columns, rows; /* 1 and 1: the whole image alone */
};

/* The tiles of an image of that size. */
struct tile_grid tiles_grid(uint32_t width, uint32_t height, const struct tile_bounds *b);
/* Most images that tiles_decode() makes. */
uint32_t tiles_images_max(const struct tile_bounds *b);

/* All images of one encoded image. The caller owns images[0 .. count), also when the call failed. */
struct tiles {
    struct image **images; /* room for tiles_images_max() */
    uint32_t count, columns;
};
/* Errors are those of decode_still(). */
int tiles_decode(struct slice bytes, const struct decode_limits *limits, const struct tile_bounds *b,
                 const struct charge *charge, struct tiles *ret, struct err *e);

#endif
