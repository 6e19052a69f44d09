/* planning.h - from options and a model's directory to the plan that is printed, and that a run keeps to. */
#ifndef PLATEAU_HOST_PLANNING_H
#define PLATEAU_HOST_PLANNING_H

#include "memory/plan.h"
#include "registry/model_plan.h"
#include "registry/model_use.h"

struct device_choices;
struct model_files;
struct settings;

struct planning {
    const struct settings *settings;
    uint32_t seqs; /* 0: plan_seqs() */
    uint32_t queue, workers;
    uint32_t models; /* that the process may load; 0 counts as 1 */
    bool serves;     /* there are connections and prep threads */
    bool sees;       /* some model accepts images; planning_make() sets it for its own */
    /* The process's devices, measured; NULL: nothing is to be opened, and the ceilings of GPUs are estimates.
     * Borrowed; not looked at where `process` is given. */
    const struct device_choices *devices;
    /* Decided already, for several models; NULL: planning_make() decides. Borrowed. */
    const struct plan_process *process;
    uint64_t model_bytes_max; /* limit of the model's account; 0: the ceiling */
    /* Filled by planning_make. */
    struct model_plan model;
    enum model_kind kind;     /* MODEL_GENERATES where the files do not say */
    bool placed;              /* --place is given */
    struct model_parts given; /* model.parts before the files are read */
    const char *ceiling_from; /* which of its bounds makes the machine's ceiling */
    struct plan plan;
    struct model_files **files; /* gets the files that it read, open; NULL: they are closed */
    bool unreadable;            /* planning_make() failed at the model's files: catalog_hint() can say more */
};

/* Reads --compute, --kv-dtype and --quant into `ret`. 0 or -EINVAL. */
int planning_arithmetic(const struct settings *settings, struct model_parts *ret, struct err *e);
/* Fills in the bytes that the process takes whatever it serves. `least`: texts and bodies get only the bytes
 * that a server of short prompts needs. Fills p->ceiling_from. */
void planning_process(struct planning *p, bool least, struct plan_process *ret);
/* Reads headers, loads nothing. 0, an error of model_probe(), or -ENOMEM and -EINVAL when it does not fit:
 * `e` has numbers, and the context and the sequences that would fit. `name` is the model's id. */
int planning_make(struct planning *p, const char *dir, const char *name, struct err *e);
/* Return a planned model's compute mode, and the types of its keys and values and of its quantised
 * weights. */
const char *planning_compute(const struct planning *p);
const char *planning_kv_dtype(const struct planning *p);
const char *planning_quant(const struct planning *p);

#endif
