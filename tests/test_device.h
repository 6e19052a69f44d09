/* test_device.h - the device of a test program: the CPU, with PLATEAU_TEST_DEVICE=fake the fake one, and with
 * TEST_SIMT a GPU whose kernels run on the CPU (tests/simt). */
#ifndef PLATEAU_TESTS_TEST_DEVICE_H
#define PLATEAU_TESTS_TEST_DEVICE_H

#include "compute/cuda/cuda.h"
#include "compute/fake/fake.h"

#include <stdlib.h>
#include <string.h>

#define TEST_DEVICE_BYTES ((uint64_t)4 << 30)

static inline bool test_device_is_fake(void)
{
    const char *name = getenv("PLATEAU_TEST_DEVICE");
    return name && strcmp(name, "fake") == 0;
}

/* As `device_open_cpu()`, but of the device under test. */
static inline int test_device_open(uint32_t workers, struct device **ret)
{
    const struct fake_opts fake = {.bytes = TEST_DEVICE_BYTES, .workers = workers};
#ifdef TEST_SIMT
    return cuda_device_open(0, ret);
#endif
    return test_device_is_fake() ? fake_device_open(&fake, ret) : device_open_cpu(workers, NULL, ret);
}

#endif
