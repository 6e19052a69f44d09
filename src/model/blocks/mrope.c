/* mrope.c - a walk over the images before a token: there are few. */
#include "model/blocks/mrope.h"

#include "model/model.h"

#include "base/check.h"

static uint32_t grid_end(const struct model_grid *g)
{
    return g->first + model_grid_tokens(g);
}

struct rope_position mrope_at(const struct model_grid *grids, uint32_t grid_count, uint32_t token)
{
    uint32_t behind = 0; /* difference between index and position */
    if (grid_count > 0 && grids[0].linear)
        return rope_text(token);
    for (uint32_t i = 0; i < grid_count && grids[i].first <= token; i++) {
        const struct model_grid *g = &grids[i];
        if (token < grid_end(g)) {
            uint32_t from = g->first - behind, at = token - g->first;
            return (struct rope_position){{from, from + at / g->columns, from + at % g->columns}};
        }
        behind += g->rows * g->columns - MAX_OF(g->rows, g->columns);
    }
    return rope_text(token - behind);
}

const struct model_grid *mrope_grid(const struct model_grid *grids, uint32_t grid_count, uint32_t token)
{
    for (uint32_t i = 0; i < grid_count && grids[i].first <= token; i++) {
        if (token < grid_end(&grids[i]))
            return &grids[i];
    }
    return NULL;
}
