/* engine_cached.c - what the prefix cache has of a prompt, for the thread that chooses an engine.
 *
 * The chain of keys is hashed as far as the cache has it: a miss costs one page. */
#include "engine/engine.h"
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/page_tokens.h"
#include "cache/prefix_index.h"
#include "model/model.h"
#include "vision/image.h"

/* The images with a token in one page. */
struct seen {
    struct prefix_image list[PAGE_TOKENS];
    uint32_t count;
};

/* *next: the first image that ends behind `from`; advanced. */
static void look_at_page(const struct engine *en, const struct job_spec *job, uint32_t from, uint32_t *next,
                         struct seen *ret)
{
    ret->count = 0;
    for (uint32_t i = *next; i < job->image_count && job->images[i].first < from + PAGE_TOKENS; i++) {
        const struct image *p = job->images[i].image;
        struct model_grid g = model_grid_of(&en->shape->vision, job->images[i].first, p->width, p->height);
        if (g.first + model_grid_tokens(&g) <= from) {
            *next = i + 1;
            continue;
        }
        ASSERT(ret->count < PAGE_TOKENS);
        ret->list[ret->count++] = job_seen_image(&g, p);
    }
}

uint32_t engine_cached_tokens(const struct engine *en, const struct job_spec *job)
{
    uint32_t tokens = 0, next = 0;
    struct seen seen;
    bool ends;
    if (!en->pools.index || !en->opts.shows_prefixes)
        return 0;
    struct prefix_key key = job_root_key(&en->opts.identity, job);
    for (uint32_t at = 0; at + PAGE_TOKENS < job->prompt_count; at += PAGE_TOKENS) {
        look_at_page(en, job, at, &next, &seen);
        key = prefix_key_next(&key, job->prompt + at, seen.count ? seen.list : NULL, seen.count);
        if (!prefix_index_shown(en->pools.index, &key, &ends))
            break;
        tokens = ends ? at + PAGE_TOKENS : tokens;
    }
    ASSERT(tokens < job->prompt_count || job->prompt_count == 0);
    return tokens;
}
