/* fuzz_image.h - any bytes as an image of one format: pixels, or a message, and no leak. */
#ifndef PLATEAU_TESTS_FUZZ_IMAGE_H
#define PLATEAU_TESTS_FUZZ_IMAGE_H

#include "vision/decode.h"

#include "base/charge.h"
#include "base/check.h"
#include "vision/image.h"
#include "vision/smart_size.h"

#include <errno.h>
#include <stdlib.h>

/* The charge refuses more than this, so that an allocation that a decoder makes without charge shows as too
 * much memory. */
#define FUZZ_IMAGE_BYTES ((size_t)64 << 20)

static inline int fuzz_image_take(void *owner, size_t bytes)
{
    size_t *held = owner;
    if (bytes > FUZZ_IMAGE_BYTES - *held)
        return -ENOMEM;
    *held += bytes;
    return 0;
}

static inline void fuzz_image_give(void *owner, size_t bytes)
{
    size_t *held = owner;
    ASSERT(bytes <= *held);
    *held -= bytes;
}

/* Decodes it, and returns decode_still()'s result. */
static inline int fuzz_image(struct slice bytes, struct err *e)
{
    size_t held = 0;
    struct charge charge = {fuzz_image_take, fuzz_image_give, &held};
    struct decode_limits limits = {.bytes_max = 1 << 20, .edge_max = 4096, .pixels_max = 1 << 18};
    struct smart_bounds bounds = {.edge = 8, .pixels_min = 64, .pixels_max = 4096};
    struct decode_info info = {0};
    struct image *p = NULL;
    int measured = decode_measure(bytes, &limits, &info, e);
    int r = decode_still(bytes, &limits, &bounds, &charge, &p, e);
    ASSERT(r == 0 || r == -EINVAL || r == -E2BIG || r == -ENOMEM);
    ASSERT((r == 0) == (p != NULL) && (r == 0 || e->text[0]));
    if (p) {
        unsigned sum = 0;
        ASSERT(measured == 0 && info.width > 0 && info.height > 0);
        for (size_t i = 0; i < image_frame_bytes(p->width, p->height); i++)
            sum += p->pixels[i];
        ASSERT(sum <= 255u * 3 * p->width * p->height);
    }
    image_unref(p);
    ASSERT(held == 0);
    return r;
}

/* A copy of exactly its size that starts with `magic`, so that no input is spent on finding it. Freed by the
 * caller. */
static inline struct slice fuzz_image_copy(const uint8_t *data, size_t size, struct slice magic)
{
    char *copy = malloc(size + 1);
    ASSERT(copy);
    if (size)
        memcpy(copy, data, size);
    memcpy(copy, magic.ptr, MIN_OF(size, magic.len));
    return (struct slice){copy, size};
}

#endif
