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

/* cuda:N, where the program has kernels, a driver is here, and the device too. */
static int choose_cuda(const char *text, uint64_t limit, struct device_choice *ret, struct err *e)
{
    for (uint32_t i = 0; i < CUDA_DEVICES_MAX; i++) {
        if (strcmp(text, cuda_device_name(i)) != 0)
            continue;
        if (!cuda_is_built())
            return err_set(
                e, -ENODEV,
                "--device %s: this program was built without GPU kernels, because no nvcc was there", text);
        if (i >= cuda_device_count())
            return err_set(e, -ENODEV, "--device %s: the NVIDIA driver is missing, or has %u devices", text,
                           cuda_device_count());
        uint64_t room = cuda_device_room(i);
        *ret = (struct device_choice){
            .backend = &backend_cuda,
            .memory = {.name = cuda_device_name(i), .ceiling_bytes = limit ? MIN_OF(limit, room) : room},
            .index = i};
        return 0;
    }
    return 1;
}

static bool is_one_of(const char *text, const char *const *words)
{
    while (*words && text && strcmp(text, *words) != 0)
        words++;
    return !text || *words;
}

/* Whether a GPU has --compute and --kv-dtype. */
static bool may_be_gpu(const struct model_options *o)
{
    static const char *const words[] = {"auto", "bf16", "f32", NULL};
    return is_one_of(o->compute, words) && is_one_of(o->kv_dtype, words);
}

/* The first GPU that suits, else the CPU. */
static int choose_auto(const struct settings *o, struct device_choice *ret, struct err *e)
{
    uint64_t limit = o->process.device_memory_limit;
    uint32_t count = may_be_gpu(&o->model) ? cuda_device_count() : 0;
    for (uint32_t i = 0; i < count; i++)
        if (cuda_device_suits(i) && cuda_device_room(i) > 0)
            return choose_cuda(cuda_device_name(i), limit, ret, e);
    return 0;
}

int device_choose(const struct settings *o, struct device_choice *ret, struct err *e)
{
    const char *text = o->process.device ? o->process.device : "auto";
    uint64_t limit = o->process.device_memory_limit;
    *ret = (struct device_choice){.backend = &backend_cpu};
    if (strcmp(text, "cpu") == 0)
        return 0;
    if (strcmp(text, "auto") == 0)
        return choose_auto(o, ret, e);
    int r = choose_cuda(text, limit, ret, e);
    if (r <= 0)
        return r;
    if (!choose_fake(text, ret))
        return err_set(e, -EINVAL,
                       "--device %s: auto, cpu, cuda:0 to cuda:%u or fake:0 to fake:%zu is expected", text,
                       CUDA_DEVICES_MAX - 1, COUNT_OF(fake_names) - 1);
    ret->memory.ceiling_bytes = limit ? limit : FAKE_BYTES;
    return 0;
}

static bool is_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static int add_choice(const struct settings *o, struct device_choices *ret, struct err *e)
{
    struct device_choice c;
    int r = device_choose(o, &c, e);
    for (uint32_t i = 0; i < ret->count && r == 0; i++)
        if (is_same(ret->list[i].memory.name, c.memory.name))
            return 0;
    ASSERT(ret->count < COUNT_OF(ret->list)); /* the CPU, and each device that has a name */
    if (r == 0)
        ret->list[ret->count++] = c;
    return r;
}

int device_choose_all(const struct settings *o, struct device_choices *ret, struct err *e)
{
    const char *section;
    struct settings own;
    *ret = (struct device_choices){.count = 0};
    int r = add_choice(o, ret, e);
    for (uint32_t i = 0; r == 0 && (section = settings_section(o, i)); i++) {
        r = settings_of_model(o, section, &own, e);
        if (r == 0 && (r = add_choice(&own, ret, e)) < 0)
            (void)err_prefix(e, r, "[model %s]", section);
    }
    return r;
}

int device_choice_domain(const struct device_choice *c, const struct plan_process *p, uint32_t *ret,
                         struct err *e)
{
    *ret = 0;
    if (!c->memory.name)
        return 0;
    for (uint32_t i = 0; i < p->device_count && *ret == 0; i++)
        *ret = is_same(p->devices[i].name, c->memory.name) ? i + 1 : 0;
    return *ret > 0 ? 0
                    : err_set(e, -ENODEV, "device %s was not opened at the start: restart the server",
                              c->memory.name);
}

int device_choice_open(const struct device_choice *c, uint32_t workers, struct account *stacks,
                       struct device **ret)
{
    if (c->backend == &backend_cuda)
        return cuda_device_open(c->index, ret);
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

const char *device_choice_gpu(void)
{
    return cuda_is_built() ? "with GPU kernels" : "without GPU kernels";
}
