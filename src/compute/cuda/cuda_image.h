/* cuda_image.h - the kernels' machine code inside the program. */
#ifndef PLATEAU_COMPUTE_CUDA_IMAGE_H
#define PLATEAU_COMPUTE_CUDA_IMAGE_H

#include <stdint.h>

/* One image per source file of kernels/; 0: the program was built without nvcc. */
uint32_t cuda_image_count(void);
const void *cuda_image(uint32_t index);

#endif
