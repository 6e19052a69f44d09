/* cuda_image.h - the kernels' machine code inside the program. */
#ifndef PLATEAU_COMPUTE_CUDA_IMAGE_H
#define PLATEAU_COMPUTE_CUDA_IMAGE_H

/* One for each source file of kernels/. */
#define CUDA_IMAGES(X)                                                                                       \
    X(rows)                                                                                                  \
    X(bf16)                                                                                                  \
    X(experts)                                                                                               \
    X(wide)                                                                                                  \
    X(few)                                                                                                   \
    X(few_small)                                                                                             \
    X(wide_small)                                                                                            \
    X(repack)                                                                                                \
    X(project)                                                                                               \
    X(attention)                                                                                             \
    X(attend)                                                                                                \
    X(attend_warp)                                                                                           \
    X(attend_wide)                                                                                           \
    X(recurrent)                                                                                             \
    X(delta)                                                                                                 \
    X(route)                                                                                                 \
    X(top)                                                                                                   \
    X(sample)                                                                                                \
    X(encode)                                                                                                \
    X(encode_attend)

enum cuda_image {
#define X(name) CUDA_IMAGE_##name,
    CUDA_IMAGES(X)
#undef X
        CUDA_IMAGE_COUNT
};

/* NULL: the program was built without nvcc. */
const void *cuda_image(enum cuda_image image);

#endif
