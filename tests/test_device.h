/* test_device.h - the device of a test program: the CPU, or with PLATEAU_TEST_DEVICE=fake the fake one. */
#ifndef PLATEAU_TESTS_TEST_DEVICE_H
#define PLATEAU_TESTS_TEST_DEVICE_H

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
    return test_device_is_fake() ? fake_device_open(&fake, ret) : device_open_cpu(workers, NULL, ret);
}

#endif
