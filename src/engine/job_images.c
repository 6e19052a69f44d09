/* job_images.c - each rule by itself; together they say that every placeholder's square is there once. */
#include "engine/job_images.h"

#include "engine/job_spec.h"

#include "base/slice.h"
#include "vision/image.h"

#include <errno.h>

static int check_size(const struct model_shape *s, const struct job_image *p, uint32_t i, struct err *e)
{
    uint32_t edge = job_images_edge(s), width = p->image->width, height = p->image->height;
    if (width % edge != 0 || height % edge != 0)
        return err_set(e, -EINVAL, "image %u is %u x %u pixels: this model takes whole squares of %u x %u", i,
                       width, height, edge, edge);
    if ((uint64_t)width * height > s->vision.pixels_max)
        return err_set(e, -EINVAL, "image %u is %u x %u pixels: this model takes at most %llu together", i,
                       width, height, (ull)s->vision.pixels_max);
    return 0;
}

/* `from`: where the one before it ends. */
static int check_place(const struct job_spec *spec, uint32_t i, uint64_t from, uint64_t to, struct err *e)
{
    uint32_t first = spec->images[i].first;
    if (first == 0)
        return err_set(e, -EINVAL, "image %u is the prompt's first token: at least one must stand before it",
                       i);
    if (first < from)
        return err_set(e, -EINVAL, "image %u begins at token %u, but the one before it ends at %llu", i,
                       first, (ull)from);
    if (to > spec->prompt_count)
        return err_set(e, -EINVAL, "image %u takes the tokens %u to %llu of a prompt of %u", i, first,
                       (ull)to - 1, spec->prompt_count);
    return 0;
}

/* Ends of rows are the prompt's. */
static int check_tokens(const struct model_vision *v, const struct job_spec *spec, uint32_t i,
                        const struct model_grid *g, struct err *e)
{
    const uint32_t row_tokens = g->columns + g->row_ends;
    for (uint32_t at = g->first; at < g->first + model_grid_tokens(g); at++)
        if ((at - g->first) % row_tokens < g->columns && spec->prompt[at] != v->image_token &&
            spec->prompt[at] != v->video_token)
            return err_set(e, -EINVAL,
                           "token %u of the prompt is %u, but image %u stands there: it must be "
                           "a placeholder, %u or %u",
                           at, spec->prompt[at], i, v->image_token, v->video_token);
    return 0;
}

int job_images_check(const struct model_shape *shape, const struct job_spec *spec, struct err *e)
{
    uint32_t edge = job_images_edge(shape);
    uint64_t end = 0;
    int r = 0;
    if (spec->image_count > 0 && edge == 0)
        return err_set(e, -EINVAL, "this model takes no images");
    if (spec->image_count > ENGINE_IMAGES_MAX)
        return err_set(e, -EINVAL, "%u images and pairs of frames: the limit is %u", spec->image_count,
                       ENGINE_IMAGES_MAX);
    /* Rows of logits or values are fewer than an image's tokens, which are one step. */
    if (spec->image_count > 0 && shape->vision.both_ways &&
        (spec->prompt_logprobs || spec->output == JOB_VECTOR))
        return err_set(e, -EINVAL, "this model has no logprobs and vectors of prompts with images");
    for (uint32_t i = 0; i < spec->image_count && r == 0; i++) {
        const struct job_image *p = &spec->images[i];
        uint64_t from = end;
        struct model_grid g = model_grid_of(&shape->vision, p->first, p->image->width, p->image->height);
        end = p->first + (uint64_t)model_grid_tokens(&g);
        r = check_size(shape, p, i, e);
        if (r == 0)
            r = check_place(spec, i, from, end, e);
        if (r == 0)
            r = check_tokens(&shape->vision, spec, i, &g, e);
    }
    return r;
}
