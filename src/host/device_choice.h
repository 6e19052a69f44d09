/* device_choice.h - what --device says: a backend, and the memory that models compute in. */
#ifndef PLATEAU_HOST_DEVICE_CHOICE_H
#define PLATEAU_HOST_DEVICE_CHOICE_H

#include "base/err.h"
#include "compute/cuda/cuda.h"
#include "compute/fake/fake.h"
#include "host/settings.h"
#include "memory/plan.h"

struct device_choice {
    const struct backend *backend;
    struct plan_domain memory; /* name NULL: the machine's */
    /* Of a fake device. */
    uint32_t index;
    struct fake_faults faults;
};

/* auto, cpu, cuda:N, or fake:N, where N is 0 to 7 and faults of fake_faults_parse() (",step=1000") may
 * follow; auto: the first GPU that suits, else the CPU. 0, -EINVAL, or -ENODEV: there is no such GPU, or no
 * driver, or the program has no kernels. */
int device_choose(const struct settings *o, struct device_choice *ret, struct err *e);

/* The device of the process, then the devices of sections, each once. */
struct device_choices {
    struct device_choice list[DOMAINS_MAX];
    uint32_t count;
};
/* As device_choose(). */
int device_choose_all(const struct settings *o, struct device_choices *ret, struct err *e);
/* The device's number in such a process: that of its domain (plan_model.domain), 0 for the CPU. -ENODEV: the
 * process has no such device; `e` says so. */
int device_choice_domain(const struct device_choice *c, const struct plan_process *p, uint32_t *ret,
                         struct err *e);
/* The instruction set of the CPU's matrix products here: "ref", "avx2", "avx512". */
const char *device_choice_tier(void);
/* What --version says of GPUs: "GPU kernels", or that the program has none. */
const char *device_choice_gpu(void);
/* As device_open_cpu. */
int device_choice_open(const struct device_choice *c, uint32_t workers, struct account *stacks,
                       struct device **ret);

#endif
