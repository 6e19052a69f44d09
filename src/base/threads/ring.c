/* ring.c - free-running indices; the difference is the count, so no slot is wasted. */
#include "base/threads/ring.h"

#include "base/check.h"

#include <string.h>

void ring_init(struct ring *r, uint32_t capacity, uint32_t element_bytes, void *memory)
{
    ASSERT(capacity > 0 && (capacity & (capacity - 1)) == 0);
    r->capacity = capacity;
    r->element_bytes = element_bytes;
    r->elements = memory;
    atomic_init(&r->head, 0);
    atomic_init(&r->tail, 0);
}

static char *ring_at(const struct ring *r, uint32_t index)
{
    return r->elements + (size_t)(index & (r->capacity - 1)) * r->element_bytes;
}

bool ring_put(struct ring *r, const void *element)
{
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&r->head, memory_order_acquire) == r->capacity)
        return false;
    memcpy(ring_at(r, tail), element, r->element_bytes);
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
    return true;
}

bool ring_take(struct ring *r, void *element)
{
    uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    if (atomic_load_explicit(&r->tail, memory_order_acquire) == head)
        return false;
    memcpy(element, ring_at(r, head), r->element_bytes);
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
    return true;
}

uint32_t ring_count(const struct ring *r)
{
    return atomic_load_explicit(&r->tail, memory_order_acquire) -
           atomic_load_explicit(&r->head, memory_order_acquire);
}
