/* device_choice.c - parses --device, and measures GPUs.
 *
 * A ceiling is estimated where models are only looked at: to measure it, a context is made, which costs time
 * and memory, and beside a server that fills the GPU nothing would seem to fit. */
#include "host/device_choice.h"

#include "host/settings.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "compute/cuda/cuda.h"
#include "registry/model_settings.h"

#include <errno.h>
#include <string.h>

/* Memory of a fake device without --device-memory-limit. */
#define FAKE_BYTES ((uint64_t)4 << 30)
/* Part of a GPU's memory that the driver may take as it goes: 2 MiB in 100 loads on an H100. */
#define RESERVE_BYTES ((uint64_t)256 << 20)
/* Fewer bytes beside the context may be the driver's own, not other programs'. */
#define OTHERS_LEAST ((uint64_t)64 << 20)

#define FAKE_AUTO "fake:auto"

static const char *const fake_names[] = {"fake:0", "fake:1", "fake:2", "fake:3",
                                         "fake:4", "fake:5", "fake:6", "fake:7"};

static bool choose_fake(const char *text, struct device_choice *ret)
{
    for (uint32_t i = 0; i < COUNT_OF(fake_names); i++) {
        size_t len = strlen(fake_names[i]);
        if (strncmp(text, fake_names[i], len) != 0 || (text[len] && text[len] != ','))
            continue;
        *ret = (struct device_choice){.backend = &backend_fake, .memory.name = fake_names[i], .index = i};
        if (text[len] && !fake_faults_parse(text + len + 1, &ret->faults))
            return false;
        ret->memory.context_bytes = (uint64_t)ret->faults.context_mib << 20;
        return true;
    }
    return false;
}

static uint64_t ceiling_of(uint64_t room, uint64_t limit)
{
    return limit ? MIN_OF(limit, room) : room;
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
        *ret = (struct device_choice){
            .backend = &backend_cuda,
            .memory = {.name = cuda_device_name(i),
                       .ceiling_bytes = ceiling_of(cuda_device_usable_bytes(i), limit)},
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

/* Whether a GPU has --compute; it has every --kv-dtype. */
static bool may_be_gpu(const struct model_options *o)
{
    static const char *const words[] = {"auto", "bf16", "f32", NULL};
    return is_one_of(o->compute, words);
}

static bool is_usable(uint32_t cuda_index)
{
    return cuda_device_suits(cuda_index) && cuda_device_usable_bytes(cuda_index) > 0;
}

bool device_choice_is_auto(const struct settings *o)
{
    const char *text = o->process.device ? o->process.device : "auto";
    return strcmp(text, "auto") == 0 || strcmp(text, FAKE_AUTO) == 0;
}

/* The first GPU that suits and was not passed over, else the CPU. */
static int choose_auto(const struct settings *o, struct device_choice *ret, struct err *e)
{
    uint64_t limit = o->process.device_memory_limit;
    uint32_t count = may_be_gpu(&o->model) ? cuda_device_count() : 0, passed_over = o->process.passed_over;
    for (uint32_t i = 0; i < count; i++)
        if (is_usable(i) && passed_over-- == 0)
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
    if (strcmp(text, FAKE_AUTO) == 0) {
        if (o->process.passed_over >= COUNT_OF(fake_names))
            return 0;
        text = fake_names[o->process.passed_over];
    }
    if (!choose_fake(text, ret))
        return err_set(e, -EINVAL,
                       "--device %s: auto, cpu, cuda:0 to cuda:%u or fake:0 to fake:%zu is expected", text,
                       CUDA_DEVICES_MAX - 1, COUNT_OF(fake_names) - 1);
    ret->memory.ceiling_bytes = limit ? limit : FAKE_BYTES;
    return 0;
}

/* Returns the name of the GPU `ahead` places after `index`; --device auto counts suitable ones only. NULL:
 * there are fewer. */
static const char *next_cuda(const struct settings *o, uint32_t index, uint32_t ahead)
{
    bool any = device_choice_is_auto(o);
    for (uint32_t i = index + 1; i < cuda_device_count() && ahead > 0; i++) {
        ahead -= !any || is_usable(i);
        index = i;
    }
    return ahead == 0 ? cuda_device_name(index) : NULL;
}

bool device_choose_next(struct settings *o)
{
    struct device_choice now;
    struct err ignored;
    bool moves = device_choice_is_auto(o) && o->model.replicas <= 1 &&
                 device_choose(o, &now, &ignored) == 0 && now.memory.name;
    o->process.passed_over += moves;
    return moves;
}

int device_choose_replica(const struct settings *o, uint32_t replica, const char **ret, struct err *e)
{
    struct device_choice first;
    const char *name = NULL;
    int r = device_choose(o, &first, e);
    if (r < 0)
        return r;
    if (!first.memory.name && replica > 0)
        return err_set(e, -EINVAL,
                       "--replicas %u: each replica is on a device of its own, and the CPU is one; give "
                       "--device cuda:N",
                       o->model.replicas);
    if (replica == 0)
        name = o->process.device;
    else if (first.backend == &backend_cuda)
        name = next_cuda(o, first.index, replica);
    else if (first.index + replica < COUNT_OF(fake_names))
        name = fake_names[first.index + replica];
    if (!name && replica > 0)
        return err_set(e, -ENODEV, "--replicas %u: from %s on there are only %u devices", o->model.replicas,
                       first.memory.name, replica);
    *ret = name;
    return 0;
}

static bool is_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

const struct device_choice *device_choices_named(const struct device_choices *c, const char *name)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (is_same(c->list[i].memory.name, name))
            return &c->list[i];
    return NULL;
}

static int add_one(const struct settings *o, struct device_choices *c, struct err *e)
{
    struct device_choice one;
    int r = device_choose(o, &one, e);
    if (r < 0 || device_choices_named(c, one.memory.name))
        return r;
    ASSERT(c->count < COUNT_OF(c->list)); /* the CPU, and each device that has a name */
    c->list[c->count++] = one;
    return 0;
}

int device_choices_of(const struct settings *o, struct device_choices *ret, struct err *e)
{
    struct placement_wish wish = {.count = 0};
    struct settings own = *o;
    *ret = (struct device_choices){.count = 0};
    int r = add_one(o, ret, e);
    if (r == 0)
        r = placement_parse(o->model.place ? o->model.place : "", &wish, e);
    for (uint32_t i = 0; i < wish.count && r == 0; i++) {
        own.process.device = wish.rules[i].place;
        if (strcmp(own.process.device, "cpu") != 0 && !device_choices_named(ret, own.process.device))
            r = add_one(&own, ret, e);
        if (r < 0)
            (void)err_prefix(e, r, "--place");
    }
    return r;
}

int device_choices_add(const struct settings *o, struct device_choices *c, struct err *e)
{
    struct device_choices own;
    int r = device_choices_of(o, &own, e);
    for (uint32_t i = 0; i < own.count && r == 0; i++) {
        if (device_choices_named(c, own.list[i].memory.name))
            continue;
        ASSERT(c->count < COUNT_OF(c->list));
        c->list[c->count++] = own.list[i];
    }
    return r;
}

/* As `device_choices_add()`, and the devices of its replicas. */
static int add_replicas(const struct settings *o, struct device_choices *c, struct err *e)
{
    struct settings own = *o;
    int r = device_choices_add(o, c, e);
    for (uint32_t i = 1; i < o->model.replicas && r == 0; i++) {
        r = device_choose_replica(o, i, &own.process.device, e);
        if (r == 0)
            r = device_choices_add(&own, c, e);
    }
    return r;
}

int device_choose_all(const struct settings *o, struct device_choices *ret, struct err *e)
{
    const char *section;
    struct settings own;
    *ret = (struct device_choices){.count = 0};
    int r = add_replicas(o, ret, e);
    for (uint32_t i = 0; r == 0 && (section = settings_section(o, i)); i++) {
        r = settings_of_model(o, section, &own, e);
        if (r == 0 && (r = add_replicas(&own, ret, e)) < 0)
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

/* ---- measured ---- */

static const char *reason_of(const struct device_choice *c, int error)
{
    bool full = c->backend == &backend_cuda && error == -ENOSPC;
    return full ? "other programs leave no room in its memory" : strerror(-error);
}

int device_choice_refuse(const struct device_choice *c, int error, struct err *e)
{
    if (!c->memory.name)
        return err_set(e, error, "worker threads could not be opened: %s", strerror(-error));
    return err_set(e, error, "device %s could not be opened: %s; --device cpu does without it",
                   c->memory.name, reason_of(c, error));
}

static int refuse_full(const struct device_choice *c, struct err *e)
{
    const struct device_measured *m = &c->measured;
    return err_set(
        e, -ENOSPC,
        "device %s could not be opened: of its memory, %s, %s are free, and the driver needs %s as it "
        "goes; --device cpu does without it",
        c->memory.name, bytes_text(m->total_bytes).text, bytes_text(m->free_bytes).text,
        bytes_text(RESERVE_BYTES).text);
}

/* Without figures of the driver the estimate stays. */
static int measure(struct device_choice *c, uint64_t limit, struct err *e)
{
    int r = cuda_device_open(c->index, &c->opened);
    if (r < 0)
        return device_choice_refuse(c, r, e);
    struct device_measured m = c->opened->measured;
    c->measured = m;
    if (m.total_bytes == 0)
        return 0;
    if (m.free_bytes < RESERVE_BYTES)
        return refuse_full(c, e);
    c->memory.context_bytes = m.context_bytes;
    c->memory.ceiling_bytes = ceiling_of(m.free_bytes + m.context_bytes - RESERVE_BYTES, limit);
    if (m.context_bytes > c->memory.ceiling_bytes)
        return err_set(e, -ENOMEM, "--device-memory-limit %s: the context of device %s takes %s",
                       bytes_text(limit).text, c->memory.name, bytes_text(m.context_bytes).text);
    return 0;
}

int device_choices_measure(const struct settings *o, struct device_choices *c, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < c->count && r == 0; i++)
        if (c->list[i].backend == &backend_cuda && c->list[i].measured.total_bytes == 0)
            r = measure(&c->list[i], o->process.device_memory_limit, e);
    return r;
}

void device_choices_close(struct device_choices *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        device_close(c->list[i].opened);
        c->list[i].opened = NULL;
    }
}

uint64_t device_choice_others_bytes(const struct device_choice *c)
{
    const struct device_measured *m = &c->measured;
    if (m->context_bytes == 0)
        return 0;
    uint64_t taken = m->total_bytes - m->free_bytes;
    return taken > m->context_bytes + OTHERS_LEAST ? taken - m->context_bytes : 0;
}

int device_choice_open(struct device_choice *c, uint32_t workers, struct account *stacks, struct device **ret)
{
    if (c->backend == &backend_cuda) {
        ASSERT(c->opened);
        *ret = c->opened;
        c->opened = NULL;
        return 0;
    }
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
