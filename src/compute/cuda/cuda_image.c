/* cuda_image.c - brings what nvcc made into the program, as it lies in the build folder. */
#include "compute/cuda/cuda_image.h"

#include <stddef.h>

#ifdef PLATEAU_CUDA_KERNELS

#define X(name)                                                                                              \
    __asm__(".section .rodata\n.balign 64\n.hidden plateau_cuda_" #name "\n.global plateau_cuda_" #name      \
            "\nplateau_cuda_" #name ":\n.incbin \"" PLATEAU_CUDA_KERNELS "/" #name                           \
            ".fatbin\"\n.byte 0\n.previous\n");                                                              \
    extern const char plateau_cuda_##name[];
CUDA_IMAGES(X)
#undef X

#define X(name) plateau_cuda_##name,
static const void *const images[] = {CUDA_IMAGES(X)};
#undef X

const void *cuda_image(enum cuda_image image)
{
    return images[image];
}

#else

const void *cuda_image(enum cuda_image image)
{
    (void)image;
    return NULL;
}

#endif
