/* mrope.h - where tokens stand among text and pictures (contract 4.4).
 *
 * Text counts on by one on all three axes. The tokens of a picture share one time; rows and columns count
 * from there. What follows goes on behind the larger of its edges, so that later positions are smaller than
 * their index in the sequence. Pure; any thread. */
#ifndef PLATEAU_MODEL_MROPE_H
#define PLATEAU_MODEL_MROPE_H

#include "model/model.h"
#include "model/rope.h"

/* Of the token with that index in its sequence. `grids`: the sequence's, as in model_row. */
struct rope_position mrope_at(const struct model_grid *grids, uint32_t grid_count, uint32_t token);
/* The picture it lies in; NULL: none. */
const struct model_grid *mrope_grid(const struct model_grid *grids, uint32_t grid_count, uint32_t token);

#endif
