/* simt_driver.c - the driver of a GPU whose kernels run on the CPU, for tests that bring none themselves. */
#include "fake_cuda.h"
