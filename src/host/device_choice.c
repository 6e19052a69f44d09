/* device_choice.c - parses --device. */
#include "host/device_choice.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

/* Of a fake device without --device-memory-limit. */
#define FAKE_BYTES ((uint64_t)4 << 30)

static const char *const fake_names[] = {"fake:0", "fake:1", "fake:2", "fake:3",
                                         "fake:4", "fake:5", "fake:6", "fake:7"};

static bool choose_fake(const char *text, struct device_choice *ret)
{
    for (uint32_t i = 0; i < COUNT_OF(fake_names); i++) {
        size_t len = strlen(fake_names[i]);
        if (strncmp(text, fake_names[i], len) != 0 || (text[len] && text[len] != ','))
            continue;
        *ret = (struct device_choice){.backend = &backend_fake, .memory.name = fake_names[i], .index = i};
        return !text[len] || fake_faults_parse(text + len + 1, &ret->faults);
    }
    return false;
}

int device_choose(const struct settings *o, struct device_choice *ret, struct err *e)
{
    const char *text = o->process.device ? o->process.device : "auto";
    *ret = (struct device_choice){.backend = &backend_cpu};
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0)
        return 0;
    if (!choose_fake(text, ret))
        return err_set(e, -EINVAL, "--device %s: auto, cpu or fake:0 to fake:%zu is expected", text,
                       COUNT_OF(fake_names) - 1);
    uint64_t limit = o->process.device_memory_limit;
    ret->memory.ceiling_bytes = limit ? limit : FAKE_BYTES;
    return 0;
}

int device_choice_open(const struct device_choice *c, uint32_t workers, struct account *stacks,
                       struct device **ret)
{
    const struct fake_opts fake = {.index = c->index,
                                   .bytes = c->memory.ceiling_bytes,
                                   .workers = workers,
                                   .stacks = stacks,
                                   .faults = c->faults};
    return c->backend == &backend_fake ? fake_device_open(&fake, ret) : device_open_cpu(workers, stacks, ret);
}

const char *device_choice_tier(void)
{
    return device_cpu_tier();
}
