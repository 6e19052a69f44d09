/* runtime.h - what every command that computes needs: the ledger, the workers, one model and its engine. */
#ifndef PLATEAU_HOST_RUNTIME_H
#define PLATEAU_HOST_RUNTIME_H

#include "host/planning.h"
#include "engine/engine.h"
#include "memory/units.h"
#include "registry/loaded_model.h"

#include "memory/domain.h"
#include "memory/plan.h"
#include "registry/model_settings.h"
#include "registry/registry.h"

struct footprint;

#define RUNTIME_DIR_BYTES 4096
#define RUNTIME_ID_BYTES  256

struct runtime {
    const struct settings *settings;
    struct plan_process process; /* limits of the process's accounts; running parts keep to them */
    struct ledger *ledger;
    struct account *heap, *threads, *text, *network; /* children of the root */
    struct account *responses;                       /* child of the root; NULL: none are stored */
    struct account *conversations;                   /* child of the root; NULL: none are kept */
    struct account *history;                         /* child of the root; NULL: the process does not serve */
    struct account *pull;                            /* child of the root; NULL: none are pulled */
    struct account *media;                           /* child of the root; NULL: no model accepts images */
    struct holders *holders;                         /* all sets of pools */
    struct guard *guard;                             /* NULL: a process with one model needs no guard */
    uint64_t heap_bytes;                             /* reserved there */
    /* By plan_model.domain: [0] is the CPU; NULL: no model has it. */
    struct device *devices[DOMAINS_MAX];
    struct account *device_roots[DOMAINS_MAX]; /* roots of their domains; [0] is NULL: that is the
                                                * machine's */
    struct account *contexts[DOMAINS_MAX];     /* below them; NULL: the device has none */
    struct account *ssd_staging, *ssd_table;
    struct account *shared_memory;
    struct shared_tier *shared; /* NULL: no --shared-cache, or a command that does not serve */
    struct store *store;        /* NULL: no --ssd-dir, or a command that does not serve */
};

/* Faults for tests. NULL in the program. */
struct runtime_faults {
    struct ledger_faults ledger;
    struct engine_faults engine;
    struct registry_faults registry;
    struct units_faults units;
    void (*footprint)(void *arg,
                      struct footprint *ret); /* the guard's view of the system; NULL: the real one */
    void *footprint_arg;
};
extern const struct runtime_faults *runtime_faults;

/* The directory of a MODEL (NULL: the bundled one, else as catalog_find()) and its id: the alias, or
 * catalog_name_of(). dir: RUNTIME_DIR_BYTES, id: RUNTIME_ID_BYTES. 0, -ENAMETOOLONG, or an
 * error of catalog_find(). */
int runtime_find_model(const char *model, const char *alias, char *dir, char *id, struct err *e);
/* Fills in a model's settings as far as options give them; its plan is made later. */
int runtime_settings(const struct settings *o, const char *dir, const char *id, uint32_t seqs, uint32_t queue,
                     struct model_settings *ret, struct err *e);
/* A plan's numbers as a load needs them. */
void runtime_set_plan(const struct planning *p, struct model_settings *s);
/* How many threads compute. */
uint32_t runtime_workers(const struct settings *o);

/* Ledger, accounts and workers of a process of such a plan, and no model. Takes those of the measured devices
 * that the plan has. On failure the runtime is closed. */
int runtime_open_process(const struct settings *o, const struct plan_process *process,
                         struct device_choices *devices, uint32_t workers, struct runtime *ret,
                         struct err *e);
/* In a process with one model: the domain of its device, and the device. */
static inline uint32_t runtime_domain(const struct runtime *rt)
{
    return rt->process.device_count;
}
static inline struct device *runtime_device(const struct runtime *rt)
{
    return rt->devices[runtime_domain(rt)];
}
/* The guard of this process, for a server. Before its models are loaded. 0 or an error of guard_create(). */
int runtime_guard(struct runtime *rt, struct err *e);
/* Closes all open parts, in order, each whatever the others returned; the ledger must be empty then. */
void runtime_close(struct runtime *rt);

#endif
