/* kern_stride.h - rows that tiles can be loaded from as they lie. */
#ifndef PLATEAU_KERNEL_KERN_STRIDE_H
#define PLATEAU_KERNEL_KERN_STRIDE_H

#include <stddef.h>
#include <stdint.h>

/* How far apart the rows lie, two at least; 0: not equally far. */
static inline size_t kern_stride(const void *const *rows, uint32_t count)
{
    const size_t stride = (uintptr_t)rows[1] - (uintptr_t)rows[0];
    for (uint32_t j = 2; j < count; j++) {
        if ((uintptr_t)rows[j] != (uintptr_t)rows[0] + j * stride)
            return 0;
    }
    return stride;
}

#endif
