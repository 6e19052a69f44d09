/* models.h - the models of `plateau serve`: the named ones, the found ones, and the settings of each. */
#ifndef PLATEAU_HOST_MODELS_H
#define PLATEAU_HOST_MODELS_H

#include "host/settings.h"
#include "registry/registry.h"

struct models {
    const struct settings *settings;
    uint32_t count;
    struct model_settings *list;     /* [REGISTRY_MODELS_MAX]; named ones first, then found ones, by path */
    struct settings *own;            /* likewise: what holds for each */
    char (*hub_ids)[MODEL_ID_BYTES]; /* likewise; ORG/NAME of those that lie in a cache of the hub */
    char *texts[SETTINGS_KEYS_MAX];  /* names cut out of --alias */
    uint32_t text_count;
    uint32_t left_out; /* found below a --model-dir beyond REGISTRY_MODELS_MAX */
    char first_left_out[MODEL_DIR_BYTES];
    bool sees;                   /* some of them accept images */
    struct plan_process process; /* what the process takes beside them */
};

/* Names, directories, aliases, sections and pins; reads no model yet. 0, -EINVAL (e has the reason),
 * -ENOENT, -ENOMEM; models_done either way. */
int models_find(const struct settings *o, struct models *ret, struct err *e);
/* Plans every model, and decides the limits of the process's own accounts: the models of the start must
 * fit together. A found model that cannot be served is logged and stays in the list, because its files may
 * change. 0, or why a named one cannot be served. */
int models_plan(struct models *m, struct err *e);
/* registry_opts.plan; `arg` is the struct models. Any thread, for one model at a time. */
int models_plan_again(void *models, struct model_settings *s, struct err *e);
/* Zeroed is fine. */
void models_done(struct models *m);

#endif
