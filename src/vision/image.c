/* image.c - anonymous memory of its own, so that a release returns it to the system at once. */
#include "vision/image.h"

#include "base/check.h"
#include "base/pages.h"

#include <errno.h>
#include <sys/mman.h>

int image_create(uint32_t width, uint32_t height, uint32_t frames, const struct charge *charge,
                 struct image **ret)
{
    ASSERT(frames >= 1 && frames <= IMAGE_FRAMES_MAX && width > 0 && height > 0);
    size_t bytes = ROUND_UP(sizeof(struct image) + frames * image_frame_bytes(width, height), (size_t)4096);
    if (charge_take(charge, bytes) < 0)
        return -ENOMEM;
    char *map = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || pages_commit(map, bytes) < 0) {
        if (map != MAP_FAILED)
            munmap(map, bytes);
        charge_give(charge, bytes);
        return -ENOMEM;
    }
    struct image *p = (struct image *)map;
    p->width = width;
    p->height = height;
    p->frames = frames;
    p->bytes = bytes;
    p->charge = charge ? *charge : (struct charge){0};
    atomic_init(&p->holders, 1);
    *ret = p;
    return 0;
}

struct image *image_ref(struct image *p)
{
    unsigned before = atomic_fetch_add_explicit(&p->holders, 1, memory_order_relaxed);
    ASSERT(before > 0);
    return p;
}

void image_unref(struct image *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->holders, 1, memory_order_acq_rel) > 1)
        return;
    struct charge charge = p->charge;
    size_t bytes = p->bytes;
    pages_unmap((char *)p, bytes, (char *)p, bytes);
    charge_give(charge.take ? &charge : NULL, bytes);
}
