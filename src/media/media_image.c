/* media_image.c - decodes images, and videos that are lists of images. */
#include "media/media_task.h"

#include "base/check.h"
#include "vision/decode.h"
#include "vision/image.h"
#include "vision/tiles.h"

#include <math.h>
#include <unistd.h>

static struct decode_limits limits_of(struct media_task *t)
{
    struct decode_limits l = DECODE_LIMITS_DEFAULT;
    l.bytes_max = t->media->opts.bytes_max;
    l.pixels_max = t->media->opts.pixels_max;
    l.stop = &t->stop;
    return l;
}

static bool load_source(struct media_task *t, struct media_part *p, struct media_source *s)
{
    struct err e = {0};
    if (s->origin != MEDIA_FROM_FILE || s->bytes.ptr)
        return true;
    int fd = media_file_open(t->media, slice_of(s->url), &e);
    int r = fd;
    if (fd >= 0) {
        r = media_file_read(fd, t->media->opts.bytes_max, &t->media->charge, &s->bytes, &e);
        close(fd);
    }
    return r >= 0 || media_fail(t, p, r, &e);
}

static struct slice bytes_of(const struct media_source *s)
{
    return (struct slice){(const char *)s->bytes.ptr, s->bytes.len};
}

/* ---- costs ---- */

static uint64_t cost_of(struct media_task *t, const struct media_part *p, const struct media_source *s)
{
    struct decode_limits limits = limits_of(t);
    struct decode_info info = {0};
    struct err e = {0};
    /* A bad image costs little; the refusal comes when it is decoded. */
    if (s->bytes.len > 0 && (p->kind == MEDIA_IMAGE || p->listed) &&
        decode_measure(bytes_of(s), &limits, &info, &e) == 0)
        return media_queue_cost_ns(s->bytes.len, (uint64_t)info.width * info.height);
    return media_queue_cost_ns(s->bytes.len, 0);
}

void media_measure(struct media_task *t)
{
    for (uint32_t i = 0; i < t->part_count; i++) {
        struct media_part *p = &t->parts[i];
        p->cost_ns = 0;
        for (uint32_t k = 0; k < p->source_count; k++)
            p->cost_ns += cost_of(t, p, &p->sources[k]);
    }
}

/* ---- one image ---- */

static enum resize_filter filter_of(const struct model_vision *v)
{
    return v->filter == 1 ? RESIZE_LANCZOS : v->filter == 2 ? RESIZE_BILINEAR : RESIZE_BICUBIC;
}

/* Pixels that whole tokens do not cover are cut off a tile. */
static struct tile_bounds tiles_of(const struct model_vision *v, const struct smart_bounds *whole)
{
    const struct model_tiles *t = &v->tiles;
    return (struct tile_bounds){.edge = t->edge,
                                .kept = t->edge / whole->edge * whole->edge,
                                .count_min = t->count_min,
                                .count_max = t->count_max,
                                .longest = t->longest,
                                .area_above = t->area_above,
                                .whole = *whole};
}

static bool make_tiles(struct media_task *t, struct media_part *p, const struct smart_bounds *whole)
{
    const struct tile_bounds bounds = tiles_of(&t->vision, whole);
    struct media_source *s = &p->sources[0];
    struct decode_limits limits = limits_of(t);
    struct err e = {0};
    if (!media_reserve_images(t, p, tiles_images_max(&bounds)) || !load_source(t, p, s))
        return false;
    struct tiles made = {.images = p->images};
    int r = tiles_decode(bytes_of(s), &limits, &bounds, &t->media->charge, &made, &e);
    media_bytes_done(&s->bytes);
    p->count = made.count;
    p->columns = made.columns;
    return r == 0 || media_fail(t, p, r, &e);
}

static bool is_bounded(const struct model_vision *v)
{
    return v->size == IMAGE_BY_LONGEST || v->size == IMAGE_PADDED;
}

bool media_make_image(struct media_task *t, struct media_part *p)
{
    struct media_source *s = &p->sources[0];
    struct decode_limits limits = limits_of(t);
    struct smart_bounds bounds = {.edge = t->vision.patch * t->vision.merge,
                                  .pixels_min = t->vision.pixels_min,
                                  .pixels_max = t->vision.pixels_max,
                                  .filter = filter_of(&t->vision),
                                  .longest = is_bounded(&t->vision) ? t->vision.edge_max : 0,
                                  .patches_max = t->vision.patches_max,
                                  .patch = t->vision.patch,
                                  .grows = t->vision.grows,
                                  .budget = t->vision.size == IMAGE_BY_BUDGET,
                                  .square = t->vision.size == IMAGE_FIXED ? t->vision.edge_max : 0};
    struct err e = {0};
    if (t->vision.tiles.edge > 0)
        return make_tiles(t, p, &bounds);
    if (!media_reserve_images(t, p, 1) || !load_source(t, p, s))
        return false;
    int r = decode_still(bytes_of(s), &limits, &bounds, &t->media->charge, &p->images[0], &e);
    media_bytes_done(&s->bytes);
    p->count = r == 0;
    return r == 0 || media_fail(t, p, r, &e);
}

/* ---- a list of frames ---- */

static bool fail_frame(struct media_task *t, struct media_part *p, uint32_t frame, int r, struct err *e)
{
    return media_fail(t, p, err_prefix(e, r, "frame %u", frame), e);
}

/* The size of the first frame decides the size of all. */
static bool size_frames(struct media_task *t, struct media_part *p, struct smart_size *ret)
{
    struct decode_limits limits = limits_of(t);
    struct smart_bounds bounds = media_video_bounds(t, p->source_count);
    struct decode_info info;
    struct err e = {0};
    int r = decode_measure(bytes_of(&p->sources[0]), &limits, &info, &e);
    if (r == 0)
        r = smart_size_video(p->source_count, info.width, info.height, &bounds, ret, &e);
    return r == 0 || fail_frame(t, p, 0, r, &e);
}

static bool add_frame(struct media_task *t, struct media_part *p, struct image *pair, uint32_t place,
                      uint32_t frame)
{
    struct decode_limits limits = limits_of(t);
    struct err e = {0};
    int r = decode_frame(pair, place, bytes_of(&p->sources[frame]), &limits, &t->media->charge, &e);
    atomic_fetch_add(&t->frames_decoded, 1);
    atomic_fetch_add(&t->media->frames_made, 1);
    return r == 0 || fail_frame(t, p, frame, r, &e);
}

/* Two frames, or the last one twice. */
static bool add_pair(struct media_task *t, struct media_part *p, struct smart_size size, uint32_t first,
                     double fps)
{
    struct image **pair = &p->images[p->count];
    uint32_t second = MIN_OF(first + 1, p->source_count - 1);
    struct err e = {0};
    if (!load_source(t, p, &p->sources[first]) || (second > first && !load_source(t, p, &p->sources[second])))
        return false;
    int r = image_create(size.width, size.height, 2, &t->media->charge, pair);
    if (r < 0)
        return media_fail(t, p, r, &e);
    p->seconds[p->count++] = media_pair_seconds(t, first / fps, second / fps);
    bool ok = add_frame(t, p, *pair, 0, first) && add_frame(t, p, *pair, 1, second);
    media_bytes_done(&p->sources[first].bytes);
    media_bytes_done(&p->sources[second].bytes);
    return ok;
}

bool media_make_frames(struct media_task *t, struct media_part *p)
{
    double fps = isnan(p->fps) ? t->vision.video_fps : p->fps;
    struct smart_size size;
    atomic_store(&t->frames, p->source_count);
    atomic_store(&t->frames_decoded, 0);
    if (!media_reserve_images(t, p, DIV_UP(p->source_count, 2u)) || !load_source(t, p, &p->sources[0]) ||
        !size_frames(t, p, &size))
        return false;
    for (uint32_t i = 0; i < p->source_count; i += 2)
        if (atomic_load(&t->stop) || !add_pair(t, p, size, i, fps))
            return false;
    return true;
}
