/* device_choice.h - what --device says: a backend, and the memory that models compute in. */
#ifndef PLATEAU_HOST_DEVICE_CHOICE_H
#define PLATEAU_HOST_DEVICE_CHOICE_H

#include "base/err.h"
#include "compute/fake/fake.h"
#include "memory/plan.h"

struct settings;

struct device_choice {
    const struct backend *backend;
    struct plan_domain memory; /* name NULL: the machine's */
    uint32_t index;
    struct fake_faults faults; /* faults of a fake device */
    /* Set for a GPU that was measured. `opened`: until device_choice_open(). */
    struct device_measured measured;
    struct device *opened;
};

/* auto, cpu, cuda:N, or fake:N, where N is 0 to 7 and what fake_faults_parse() reads (",step=1000") may
 * follow; auto: the first GPU that suits and that device_choose_next() has not passed over, else the CPU;
 * fake:auto: as auto, with fake devices for GPUs. Opens nothing: a GPU's ceiling is an estimate. 0,
 * -EINVAL, or -ENODEV: there is no such GPU, or no driver, or the program has no kernels. */
int device_choose(const struct settings *o, struct device_choice *ret, struct err *e);

/* Whether --device says to choose. */
bool device_choice_is_auto(const struct settings *o);
/* The model of these settings does not fit where device_choose() places it: the next device of `auto`, at
 * last the CPU. False: there is no other, or --device names one, or it has replicas. */
bool device_choose_next(struct settings *o);

/* The name of the device of a replica (--replicas); 0: that of device_choose(), and the next ones for others.
 * 0, -EINVAL (the CPU has no replicas), -ENODEV (there are fewer devices). */
int device_choose_replica(const struct settings *o, uint32_t replica, const char **ret, struct err *e);

/* The device of the process, then the devices of sections, each once, with the devices of replicas. */
struct device_choices {
    struct device_choice list[DOMAINS_MAX];
    uint32_t count;
};
/* As `device_choose()`, but for the process and all sections. */
int device_choose_all(const struct settings *o, struct device_choices *ret, struct err *e);
/* The model's device, and those that --place names. */
int device_choices_of(const struct settings *o, struct device_choices *ret, struct err *e);
/* As `device_choose()`, but for the process alone; adds its devices unless they are there. */
int device_choices_add(const struct settings *o, struct device_choices *c, struct err *e);
/* Opens the GPUs among them that are not measured yet. Their ceilings become the free memory with the
 * context, less a reserve. 0, or an error of device_choice_refuse(); device_choices_close() either way. */
int device_choices_measure(const struct settings *o, struct device_choices *c, struct err *e);
/* Closes the GPUs that device_choice_open() has not handed out. The figures stay. Zeroed is fine. */
void device_choices_close(struct device_choices *c);
/* The choice of that name; NULL: there is none. */
const struct device_choice *device_choices_named(const struct device_choices *c, const char *name);
/* Bytes of other programs when it was measured; 0: few, or not measured. */
uint64_t device_choice_others_bytes(const struct device_choice *c);
/* The device's number in such a process: that of its domain (plan_model.domain), 0 for the CPU. -ENODEV: the
 * process has no such device; `e` says so. */
int device_choice_domain(const struct device_choice *c, const struct plan_process *p, uint32_t *ret,
                         struct err *e);
/* The instruction set of the CPU's matrix products here: "ref", "avx2", "avx512". */
const char *device_choice_tier(void);
/* Returns the words of --version about GPUs: "GPU kernels", or that the program has none. */
const char *device_choice_gpu(void);
/* As `device_open_cpu()`, but of any device: a measured GPU is taken. */
int device_choice_open(struct device_choice *c, uint32_t workers, struct account *stacks,
                       struct device **ret);
/* Says that it could not be opened, and why. Returns `error`. */
int device_choice_refuse(const struct device_choice *c, int error, struct err *e);

#endif
