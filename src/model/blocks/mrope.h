/* mrope.h - positions of tokens among text and images (contract 4.4).
 *
 * Text counts by one on all three axes. The tokens of an image share one time; rows and columns count from
 * there. The next text continues after the larger of its edges, so later positions are smaller than their
 * index in the sequence. Pure; any thread. */
#ifndef PLATEAU_MODEL_MROPE_H
#define PLATEAU_MODEL_MROPE_H

#include "compute/rope.h"

struct model_grid;

/* Position of the token with that index in its sequence. `grids`: the sequence's, as in model_seq. */
struct rope_position mrope_at(const struct model_grid *grids, uint32_t grid_count, uint32_t token);
/* The image that contains it; NULL: none. */
const struct model_grid *mrope_grid(const struct model_grid *grids, uint32_t grid_count, uint32_t token);

#endif
