/* vision_preprocessor.c - steps and sizes of preprocessor_config.json and video_preprocessor_config.json.
 * Steps that are not computed are refused by name. */
#include "model/config/vision_preprocessor.h"

#include "model/config/json_read.h"
#include "model/config/vision_config.h"
#include "model/family/vision_family.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* size.shortest_edge and longest_edge are areas, in spite of their names; min_pixels and max_pixels go
 * before them. */
static void read_bounds(struct json_read *r, uint64_t *min, uint64_t *max)
{
    const json_t *size = json_read_get(r, "size");
    struct json_read s = {.object = json_is_object(size) ? size : NULL, .where = r->where, .e = r->e};
    uint32_t low = json_read_u32_or(&s, "shortest_edge", 1, VISION_PIXELS_MAX, (uint32_t)*min);
    uint32_t high = json_read_u32_or(&s, "longest_edge", 1, VISION_PIXELS_MAX, (uint32_t)*max);
    if (s.error && !r->error)
        r->error = s.error;
    low = json_read_u32_or(r, "min_pixels", 1, VISION_PIXELS_MAX, low);
    high = json_read_u32_or(r, "max_pixels", 1, VISION_PIXELS_MAX, high);
    if (low > high)
        json_read_fail(r, -EINVAL, "images of %u pixels at least and %u at most", low, high);
    *min = low;
    *max = high;
}

/* Absent: what `ret` has. */
static void read_triple(struct json_read *r, const char *key, double min, float ret[VISION_CHANNELS])
{
    const json_t *list = json_read_get(r, key);
    for (uint32_t i = 0; list && i < VISION_CHANNELS; i++) {
        const json_t *n = json_array_get(list, i);
        double value = json_is_number(n) ? json_number_value(n) : NAN;
        if (json_array_size(list) != VISION_CHANNELS || !(value >= min && value <= 1e3))
            json_read_fail(r, -EINVAL, "%s must be %d numbers in %g..1000", key, VISION_CHANNELS, min);
        else
            ret[i] = (float)value;
    }
}

/* Steps that a preprocessor may leave out, and the filter: 3 is bicubic. */
static void expect_steps(struct json_read *r, uint32_t filter, bool normalizes)
{
    static const char *const steps[] = {"do_resize", "do_rescale", "do_normalize"};
    for (size_t i = 0; i < COUNT_OF(steps) - !normalizes; i++) {
        if (!json_read_bool_or(r, steps[i], true))
            json_read_fail(r, -ENOTSUP, "%s is false, which is not supported", steps[i]);
    }
    json_read_expect(r, "resample", filter);
}

/* Reads how bytes of pixels become numbers. */
static void read_numbers(struct json_read *r, float mean[VISION_CHANNELS], float std[VISION_CHANNELS])
{
    double factor = json_read_f64_or(r, "rescale_factor", 0, 1, 1.0 / 255);
    read_triple(r, "image_mean", -1e3, mean);
    read_triple(r, "image_std", 1e-3, std);
    if (fabs(factor * 255 - 1) > 1e-6)
        json_read_fail(r, -ENOTSUP, "rescale_factor is %g; supported is 1/255", factor);
}

/* Reads the steps that images and videos share. */
static void read_pixels(struct json_read *r, const struct model_vision *s, uint32_t frames,
                        float mean[VISION_CHANNELS], float std[VISION_CHANNELS])
{
    json_read_expect(r, "patch_size", s->patch);
    json_read_expect(r, "merge_size", s->merge);
    json_read_expect(r, "temporal_patch_size", frames);
    expect_steps(r, 3, true);
    read_numbers(r, mean, std);
}

/* The size of an image that does not keep its area: size.longest_edge, or height and width. */
static void read_edge(struct json_read *r, struct model_vision *s)
{
    const json_t *size = json_read_get(r, "size");
    struct json_read p = {.object = json_is_object(size) ? size : NULL, .where = r->where, .e = r->e};
    const char *key = s->size == IMAGE_FIXED ? "height" : "longest_edge";
    s->edge_max = json_read_u32_or(&p, key, 1, VISION_EDGE_MAX, s->edge_max);
    if (s->size == IMAGE_FIXED)
        json_read_expect(&p, "width", s->edge_max);
    if (p.error && !r->error)
        r->error = p.error;
}

/* A preprocessor that leaves pixels as numbers of 0 to 1, and the budget. */
static void read_budget(struct json_read *r, uint32_t tokens_asked, struct vision_config *v)
{
    static const uint32_t known[] = {70, 140, 280, 560, 1120};
    float mean[VISION_CHANNELS] = {0}, std[VISION_CHANNELS] = {1, 1, 1};
    const uint32_t edge = v->shape.patch * v->shape.merge;
    const uint32_t own = json_read_u32_or(r, "max_soft_tokens", 1, 1u << 20, 280);
    const uint32_t tokens = tokens_asked ? tokens_asked : own;
    bool found = false;
    for (size_t i = 0; i < COUNT_OF(known); i++)
        found |= tokens == known[i];
    if (!found)
        json_read_fail(r, -ENOTSUP, "%s is %u; this model's images have 70, 140, 280, 560 or 1120 tokens",
                       tokens_asked ? "--image-tokens" : "max_soft_tokens", tokens);
    json_read_expect(r, "patch_size", edge / v->pooling);
    json_read_expect(r, "pooling_kernel_size", v->pooling);
    expect_steps(r, 3, false);
    read_numbers(r, mean, std);
    for (uint32_t i = 0; i < VISION_CHANNELS; i++)
        if (json_read_bool_or(r, "do_normalize", false) && (mean[i] != 0 || std[i] != 1))
            json_read_fail(r, -ENOTSUP, "image_mean and image_std are not 0 and 1, which is not supported");
    v->shape.pixels_min = (uint64_t)edge * edge;
    v->shape.pixels_max = (uint64_t)tokens * edge * edge;
    if ((uint64_t)tokens * v->shape.merge > v->grid)
        json_read_fail(r, -ENOTSUP, "a row of %u tokens has no positions: the table has %u of an axis",
                       tokens, v->grid);
}

/* Reads the bounds of an object `key` that has one number. */
static uint32_t read_inner(struct json_read *r, const char *key, const char *inner, uint32_t absent)
{
    const json_t *object = json_read_get(r, key);
    struct json_read p = {.object = json_is_object(object) ? object : NULL, .where = r->where, .e = r->e};
    const uint32_t n = json_read_u32_or(&p, inner, 1, VISION_EDGE_MAX, absent);
    if (p.error && !r->error)
        r->error = p.error;
    return n;
}

void vision_preprocessor_counts(struct json_read *r, struct vision_config *v)
{
    const struct vision_tiles *t = v->family->tiles;
    struct model_tiles *to = &v->shape.tiles;
    to->count_min = json_read_u32_or(r, t->min.key, 1, VISION_TILES_MAX, t->min.absent);
    to->count_max = json_read_u32_or(r, t->max.key, to->count_min, VISION_TILES_MAX, t->max.absent);
}

/* Reads how an image is split; a tile has as many patches as the table of positions. */
static void read_tiles(struct json_read *r, struct vision_config *v)
{
    const struct vision_tiles *t = v->family->tiles;
    struct model_tiles *to = &v->shape.tiles;
    if (t->longest > 0) {
        v->shape.edge_max = read_inner(r, "max_image_size", "longest_edge", v->shape.edge_max);
        to->longest = read_inner(r, "size", "longest_edge", t->longest);
        to->count_max = json_read_bool_or(r, "do_image_splitting", true) ? 0 : 1;
    } else {
        read_edge(r, &v->shape);
        if (!t->beside)
            vision_preprocessor_counts(r, v);
    }
    to->edge = v->shape.edge_max;
    if (to->edge / v->shape.patch != v->grid)
        json_read_fail(r, -ENOTSUP, "a tile has %u pixels, which are not the %u patches of vision_config",
                       to->edge, v->grid);
    const uint32_t edges = DIV_UP(to->longest, to->edge);
    if (edges * edges > VISION_TILES_MAX)
        json_read_fail(r, -ENOTSUP, "%u tiles of %u pixels; supported are %u", edges * edges, to->edge,
                       VISION_TILES_MAX);
}

/* Reads the bounds of an image's tokens, beyond which it is split. */
static void read_token_tiles(struct json_read *r, struct vision_config *v)
{
    const struct vision_tiles *t = v->family->tiles;
    struct model_tiles *to = &v->shape.tiles;
    const uint64_t token = (uint64_t)v->shape.patch * v->shape.patch * v->shape.merge * v->shape.merge;
    const uint32_t least = json_read_u32_or(r, "min_image_tokens", 1, VISION_GRID_MAX, 64);
    const uint32_t most = json_read_u32_or(r, "max_image_tokens", least, VISION_GRID_MAX, 256);
    expect_steps(r, v->shape.filter, true);
    read_numbers(r, v->mean, v->std);
    json_read_expect(r, "encoder_patch_size", v->shape.patch);
    json_read_expect(r, "downsample_factor", v->shape.merge);
    to->edge = json_read_u32_or(r, "tile_size", 1, VISION_EDGE_MAX, t->edge);
    vision_preprocessor_counts(r, v);
    to->area_above = (double)most * (double)token * json_read_f64_or(r, "max_pixels_tolerance", 0, 1e6, 2);
    if (!json_read_bool_or(r, "do_image_splitting", true))
        to->count_min = to->count_max = 1;
    if (!json_read_bool_or(r, "use_thumbnail", true))
        json_read_fail(r, -ENOTSUP, "use_thumbnail is false, which is not supported");
    if (to->edge % (v->shape.patch * v->shape.merge) != 0 || (uint64_t)to->edge * to->edge > most * token)
        json_read_fail(r, -ENOTSUP, "tile_size is %u, which is not whole tokens, %u at most", to->edge, most);
    v->shape.pixels_min = least * token;
    v->shape.pixels_max = most * token;
}

/* Reads the bounds of an image that is completed with black; some files have them in an object. */
static void read_padded(struct json_read *r, struct vision_config *v)
{
    const json_t *inner = json_read_get(r, "media_proc_cfg");
    struct json_read p = {.object = json_is_object(inner) ? inner : r->object, .where = r->where, .e = r->e};
    const char *most = json_read_either(&p, json_read_either(&p, "max_patches", "in_token_limit"),
                                        "in_patch_limit"),
               *merge = json_read_either(&p, "merge_size", "merge_kernel_size");
    const uint32_t side_max = VISION_EDGE_MAX / v->shape.patch,
                   side = json_read_u32_or(&p, "patch_limit_on_one_side", 1, side_max, 512);
    v->shape.patches_max = json_read_u32_or(&p, most, 1, 1u << 20, v->family->patches_max);
    v->shape.edge_max = MIN_OF(read_inner(&p, "size", "max_height", side), side_max) * v->shape.patch;
    json_read_expect(&p, "patch_size", v->shape.patch);
    if (json_read_has(&p, merge) && json_read_square(&p, merge, VISION_MERGE_MAX) != v->shape.merge)
        json_read_fail(&p, -ENOTSUP, "%s is not the %u of vision_config", merge, v->shape.merge);
    if (!json_read_bool_or(&p, "pad_input", true))
        json_read_fail(&p, -ENOTSUP, "pad_input is false, which is not supported");
    expect_steps(&p, 3, true);
    read_numbers(&p, v->mean, v->std);
    const uint64_t patch = (uint64_t)v->shape.patch * v->shape.patch;
    v->shape.pixels_min = patch * v->shape.merge * v->shape.merge;
    /* Tokens at the edges may be nearly empty. */
    v->shape.pixels_max = MAX_OF(v->shape.patches_max * patch * 3 / 2, v->shape.pixels_min);
    if (p.error && !r->error)
        r->error = p.error;
}

/* Reads the steps of families other than Qwen's. */
static void read_other_image(struct json_read *r, struct vision_config *v)
{
    const uint32_t edge = v->shape.patch * v->shape.merge;
    expect_steps(r, v->shape.filter ? v->shape.filter : 3, true);
    if (json_read_bool_or(r, "do_pan_and_scan", false))
        json_read_fail(r, -ENOTSUP, "do_pan_and_scan is true, which is not supported");
    read_numbers(r, v->mean, v->std);
    if (v->family->tiles)
        read_tiles(r, v);
    else
        read_edge(r, &v->shape);
    /* Pixels of a tile beyond whole tokens are cut off. */
    if (v->shape.size == IMAGE_FIXED && !v->family->tiles && v->shape.edge_max % edge != 0)
        json_read_fail(r, -ENOTSUP, "an image has edges of %u pixels, which are not whole tokens of %u",
                       v->shape.edge_max, edge);
    v->shape.pixels_min = (uint64_t)edge * edge;
    v->shape.pixels_max =
        (uint64_t)ROUND_UP(v->shape.edge_max, edge) * (uint64_t)ROUND_UP(v->shape.edge_max, edge);
}

void vision_preprocessor_image(struct json_read *r, uint32_t tokens_asked, struct vision_config *v)
{
    memcpy(v->mean, v->family->mean, sizeof(v->mean));
    memcpy(v->std, v->family->std, sizeof(v->std));
    if (v->family->budget) {
        read_budget(r, tokens_asked, v);
        return;
    }
    if (v->shape.size == IMAGE_PADDED)
        read_padded(r, v);
    if (tokens_asked)
        json_read_fail(r, -ENOTSUP, "--image-tokens is for models whose images have a budget of tokens");
    if (v->shape.size == IMAGE_PADDED)
        return;
    if (v->family->tiles && v->family->tiles->edge > 0) {
        read_token_tiles(r, v);
        return;
    }
    if (v->shape.size != IMAGE_BY_AREA) {
        read_other_image(r, v);
        return;
    }
    read_pixels(r, &v->shape, v->frames, v->mean, v->std);
    v->shape.pixels_min = v->family->pixels_min;
    v->shape.pixels_max = v->family->pixels_max;
    read_bounds(r, &v->shape.pixels_min, &v->shape.pixels_max);
    if (v->family->counts_frames) {
        v->shape.grows = true;
        v->shape.pixels_min = DIV_UP(v->shape.pixels_min, (uint64_t)v->frames);
        v->shape.pixels_max = MAX_OF(v->shape.pixels_max / v->frames, 1u);
    }
}

void vision_preprocessor_video(struct json_read *r, struct vision_config *v)
{
    struct model_vision *s = &v->shape;
    struct vision_config own = *v;
    read_pixels(r, s, v->frames, own.mean, own.std);
    if (memcmp(own.mean, v->mean, sizeof(own.mean)) != 0 || memcmp(own.std, v->std, sizeof(own.std)) != 0)
        json_read_fail(r, -ENOTSUP, "image_mean and image_std are not those of images");
    s->video_pixels_min = v->family->video_pixels_min;
    s->video_pixels_max = v->family->video_pixels_max;
    read_bounds(r, &s->video_pixels_min, &s->video_pixels_max);
    s->video_fps = json_read_f64_or(r, "fps", 1e-3, 1e3, 2);
    s->video_images = v->family->video_images;
    if (s->video_images) {
        s->video_seconds_max = json_read_f64_or(r, "max_duration", 1, 1e5, 300);
        s->video_frames_min = 1;
        s->video_frames_max = (uint32_t)fmax(fmin(s->video_seconds_max * s->video_fps, 1u << 16), 1);
        return;
    }
    s->video_frames_min = json_read_u32_or(r, "min_frames", 1, 1u << 16, 4);
    s->video_frames_max =
        json_read_u32_or(r, "max_frames", s->video_frames_min, 1u << 16, MAX_OF(s->video_frames_min, 768));
}

/* All tiles of an image together keep to the server's limit. */
static void cap_tiles(struct model_vision *s, uint64_t pixels_max)
{
    struct model_tiles *t = &s->tiles;
    const uint64_t count = MAX_OF(pixels_max / ((uint64_t)t->edge * t->edge), 1u);
    t->count_max = (uint32_t)MIN_OF(t->count_max, count);
    t->count_min = MIN_OF(t->count_min, t->count_max);
    t->longest = (uint32_t)MIN_OF(t->longest, MAX_OF(floor(sqrt((double)count)), 1) * t->edge);
}

void vision_preprocessor_cap(struct json_read *r, struct model_vision *s, uint64_t pixels_max)
{
    uint64_t edge = s->patch * s->merge, most = pixels_max ? pixels_max : VISION_PIXELS_USUAL;
    if (s->size == IMAGE_FIXED && s->pixels_max > most)
        json_read_fail(r, -EINVAL, "each image of this model has %u x %u pixels, over --max-image-pixels",
                       s->edge_max, s->edge_max);
    if (s->tiles.edge > 0)
        cap_tiles(s, most);
    if (s->size == IMAGE_FIXED)
        return;
    /* A square of the longer edge has at most that area. */
    if (s->size == IMAGE_BY_LONGEST && s->pixels_max > most) {
        s->edge_max = (uint32_t)MAX_OF((uint64_t)sqrt((double)most) / edge * edge, edge);
        most = (uint64_t)s->edge_max * s->edge_max;
    }
    s->pixels_max = MIN_OF(s->pixels_max, most);
    s->pixels_max = MAX_OF(s->pixels_max, edge * edge);
    s->pixels_min = MIN_OF(s->pixels_min, s->pixels_max);
}
