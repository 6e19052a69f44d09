/* gpu_image.c - as an engine encodes an image, but for the steps between its slices. */
#include "gpu_image.h"

#include "base/check.h"
#include "base/clock.h"
#include "compute/device.h"
#include "memory/domain.h"
#include "model/vision.h"

#include <errno.h>
#include <stdlib.h>

struct gpu_image {
    struct device *device;
    struct vision_encoder *encoder;
    struct model_image in;
    uint8_t *pixels;
    uint64_t bytes; /* bytes of its features */
};

static int fill(struct gpu_image *p, const struct model_shape *s)
{
    const uint64_t count = (uint64_t)p->in.width * p->in.height * 3;
    const uint32_t edge = s->vision.patch * s->vision.merge;
    p->bytes = ROUND_UP((uint64_t)(p->in.width / edge) * (p->in.height / edge) * s->vision.feature_floats *
                            sizeof(float),
                        (uint64_t)UNIT_BYTES);
    p->pixels = malloc(count);
    if (!p->pixels)
        return -ENOMEM;
    for (uint64_t i = 0; i < count; i++)
        p->pixels[i] = (uint8_t)(i * 2654435761u >> 24);
    p->in.frames[0] = p->in.frames[1] = p->pixels;
    return domain_reserve(p->device->domain, p->bytes, false, &p->in.features);
}

static bool takes(const struct model_shape *s, uint32_t width, uint32_t height)
{
    const uint32_t edge = s->vision.patch * s->vision.merge;
    return s->vision.present && width > 0 && height > 0 && width % edge == 0 && height % edge == 0 &&
           (uint64_t)width * height <= s->vision.pixels_max;
}

int gpu_image_create(struct device *d, struct model *m, uint32_t width, uint32_t height,
                     struct gpu_image **ret)
{
    const struct model_shape *s = model_shape(m);
    if (!takes(s, width, height))
        return -EINVAL;
    struct gpu_image *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    *p = (struct gpu_image){
        .device = d, .encoder = model_vision_encoder(m), .in = {.width = width, .height = height}};
    int r = fill(p, s);
    if (r == 0)
        r = domain_commit(d->domain, p->in.features, p->bytes);
    if (r < 0)
        gpu_image_free(p);
    else
        *ret = p;
    return r;
}

void gpu_image_free(struct gpu_image *p)
{
    if (!p)
        return;
    if (!dev_is_null(p->in.features)) {
        (void)domain_decommit(p->device->domain, p->in.features, p->bytes);
        (void)domain_release(p->device->domain, p->in.features, p->bytes);
    }
    free(p->pixels);
    free(p);
}

/* All that is in the queue has been done. */
static void wait(struct gpu_image *p)
{
    float first;
    (void)domain_get(p->device->domain, &first, p->in.features, sizeof(first));
}

double gpu_image_encode(struct gpu_image *p, uint64_t slice_ns)
{
    uint64_t longest = 0;
    while (vision_encoder_begin(p->encoder, &p->in) > 0)
        continue;
    for (bool done = false; !done;) {
        const uint64_t begun = clock_now_ns();
        done = vision_encoder_run(p->encoder, slice_ns == UINT64_MAX ? UINT64_MAX : begun + slice_ns);
        wait(p);
        longest = MAX_OF(longest, clock_now_ns() - begun);
    }
    return (double)longest / (double)NS_PER_S;
}
