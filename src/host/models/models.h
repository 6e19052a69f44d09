/* models.h - the models of `plateau serve`: the named ones, the found ones, and the settings of each. */
#ifndef PLATEAU_HOST_MODELS_H
#define PLATEAU_HOST_MODELS_H

#include "host/device_choice.h"
#include "host/settings.h"

#include "hub/hub_name.h"

struct model_files;
struct registry;

#define MODELS_LATER_MAX 16 /* that come while a server runs */

/* Names of a model in a cache of the hub; "" elsewhere. */
struct hub_ids {
    char whole[MODEL_ID_BYTES];    /* ORG/NAME or ORG/NAME:QUANT */
    char repository[HUB_ID_BYTES]; /* ORG/NAME of the latter; "" otherwise */
};

struct models {
    const struct settings *settings;
    /* Models of the start, then the later ones. One thread adds to the list; entries below the count are
     * constant. */
    _Atomic uint32_t count;
    uint32_t models_max; /* bound of models_most(), set by models_find() */
    /* [REGISTRY_MODELS_MAX]; of the start, named ones first, then found ones, by path. An index is also that
     * of the registry. */
    struct model_settings *list;
    struct settings *own;           /* [REGISTRY_MODELS_MAX]: settings of each model */
    struct hub_ids *hub_ids;        /* [REGISTRY_MODELS_MAX]: ids of models in a cache of the hub */
    char *texts[SETTINGS_KEYS_MAX]; /* names cut out of --alias */
    uint32_t text_count;
    const char *default_id; /* --default-model; NULL: not given */
    uint32_t left_out;      /* found below a --model-dir beyond REGISTRY_MODELS_MAX */
    char first_left_out[MODEL_DIR_BYTES];
    bool sees;                   /* some of them accept images */
    struct plan_process process; /* memory of the process beside the models */
    /* Devices of the process. models_plan() opens GPUs to measure them; its caller hands them on or closes
     * them. */
    struct device_choices devices;
};

/* The models of a server that starts with `count`, with those that may come later where models are searched
 * for or pulled. Any thread. */
uint32_t models_most(const struct settings *o, uint32_t count);

/* Names, directories, aliases, sections and pins; reads no model yet. 0, -EINVAL (e has the reason),
 * -ENOENT, -ENOMEM; models_done either way. */
int models_find(const struct settings *o, struct models *ret, struct err *e);
/* Measures the devices, plans every model, and decides the limits of the process's own accounts: the models
 * of the start must fit together. A found model that cannot be served is logged and stays in the list,
 * because its files may change. 0, or why a named one cannot be served. */
int models_plan(struct models *m, struct err *e);
/* Searches the --model-dirs and the --hub-cache again, or, with `pulled`, one revision in the hub's cache.
 * Adds new models to the registry, unloaded. A model that does not fit or cannot be read is added too, and
 * logged. `id`: of the first model found, new or not. Returns how many were added, or -ENOENT: none was found
 * that is listed; e has the reason. One thread, after models_plan(). */
int models_search_again(struct models *m, struct registry *r, const struct hub_name *pulled,
                        char id[MODEL_ID_BYTES], struct err *e);
/* registry_opts.plan; `arg` is the struct models. Any thread, for one model at a time. */
int models_plan_again(void *models, struct model_settings *s, struct model_files **ret, struct err *e);
/* Zeroed is fine. */
void models_done(struct models *m);

#endif
