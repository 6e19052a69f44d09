/* media_bytes.c - grows by mremap, so nothing is copied and no allocator keeps freed bytes. */
#include "media/media_bytes.h"

#include "base/check.h"

#include <errno.h>
#include <sys/mman.h>

#define GRAIN ((size_t)64 << 10)

static void *map(struct media_bytes *b, size_t bytes)
{
    if (b->ptr)
        return mremap(b->ptr, b->capacity, bytes, MREMAP_MAYMOVE);
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int media_bytes_reserve(struct media_bytes *b, size_t bytes, const struct charge *charge)
{
    if (bytes <= b->capacity)
        return 0;
    if (bytes > SIZE_MAX - GRAIN)
        return -ENOMEM;
    size_t capacity = ROUND_UP(bytes, GRAIN);
    if (charge_take(charge, capacity - b->capacity) < 0)
        return -ENOMEM;
    void *p = map(b, capacity);
    if (p == MAP_FAILED) {
        charge_give(charge, capacity - b->capacity);
        return -ENOMEM;
    }
    b->ptr = p;
    b->capacity = capacity;
    b->charge = charge ? *charge : (struct charge){0};
    return 0;
}

void media_bytes_done(struct media_bytes *b)
{
    if (b->ptr) {
        munmap(b->ptr, b->capacity);
        charge_give(b->charge.give ? &b->charge : NULL, b->capacity);
    }
    *b = (struct media_bytes){0};
}
