/* cuda_image.c - brings what nvcc made into the program, as it lies in the build folder. */
#include "compute/cuda/cuda_image.h"

#ifdef PLATEAU_CUDA_KERNELS

#include <stddef.h>

#define IMAGE(name)                                                                                          \
    __asm__(".section .rodata\n.balign 64\n.hidden plateau_cuda_" #name "\n.global plateau_cuda_" #name      \
            "\nplateau_cuda_" #name ":\n.incbin \"" PLATEAU_CUDA_KERNELS "/" #name                           \
            ".fatbin\"\n.byte 0\n.previous\n");                                                              \
    extern const char plateau_cuda_##name[];
IMAGE(rows)
IMAGE(project)
IMAGE(attention)
IMAGE(recurrent)
IMAGE(route)
IMAGE(encode)

static const void *const images[] = {plateau_cuda_rows,      plateau_cuda_project, plateau_cuda_attention,
                                     plateau_cuda_recurrent, plateau_cuda_route,   plateau_cuda_encode};

uint32_t cuda_image_count(void)
{
    return sizeof(images) / sizeof(images[0]);
}

const void *cuda_image(uint32_t index)
{
    return images[index];
}

#else

uint32_t cuda_image_count(void)
{
    return 0;
}

const void *cuda_image(uint32_t index)
{
    (void)index;
    return 0;
}

#endif
