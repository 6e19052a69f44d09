/* ring.h - a bounded queue between exactly two threads: one puts, one takes.
 *
 * Elements are copied. Full is an answer, not a wait: the producer decides (an engine pauses the row).
 * Memory: the caller's block of ring_bytes(). */
#ifndef PLATEAU_BASE_RING_H
#define PLATEAU_BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
    uint32_t capacity; /* a power of two */
    uint32_t element_bytes;
    char *elements;
    _Alignas(64) _Atomic uint32_t head; /* next to take; the consumer's */
    _Alignas(64) _Atomic uint32_t tail; /* next to put; the producer's */
};

/* Bytes for the elements. */
static inline size_t ring_bytes(uint32_t capacity, uint32_t element_bytes)
{
    return (size_t)capacity * element_bytes;
}

/* `memory` has ring_bytes() and outlives the ring. */
void ring_init(struct ring *r, uint32_t capacity, uint32_t element_bytes, void *memory);
/* Producer. False when full. */
bool ring_put(struct ring *r, const void *element);
/* Consumer. False when empty. */
bool ring_take(struct ring *r, void *element);
/* Either side; a snapshot. */
uint32_t ring_count(const struct ring *r);

#endif
