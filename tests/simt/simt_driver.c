/* simt_driver.c - the driver of a GPU whose kernels run on the CPU, for tests that bring none themselves. */
#include "fake_cuda.h"

#include <pthread.h>

#define SHARED_BYTES ((size_t)2 << 20)

/* Instead of the C library's: every thread has room for what blocks share, which is thread-local. */
int pthread_attr_setstack(pthread_attr_t *attr, void *stack, size_t bytes)
{
    (void)stack;
    return pthread_attr_setstacksize(attr, bytes + SHARED_BYTES);
}
