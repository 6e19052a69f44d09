/* models.h - which models `plateau serve` knows: those it was told, those it finds, and what each is to be
 * served with. */
#ifndef PLATEAU_CLI_MODELS_H
#define PLATEAU_CLI_MODELS_H

#include "cli/options.h"
#include "registry/registry.h"

struct models {
    const struct options *options;
    uint32_t count;
    struct model_settings
        *list; /* [REGISTRY_MODELS_MAX]; those that were named come first, then those found, by path */
    struct options *own;           /* likewise: what holds for each */
    char *texts[OPTIONS_KEYS_MAX]; /* names cut out of --alias */
    uint32_t text_count;
    uint32_t left_out; /* found below a --model-dir beyond REGISTRY_MODELS_MAX */
    char first_left_out[MODEL_DIR_BYTES];
    bool sees;                   /* some of them take pictures */
    struct plan_process process; /* what the process takes beside them */
};

/* Names, directories, aliases, sections and pins; reads no model yet. 0, -EINVAL (e says what is wrong),
 * -ENOENT, -ENOMEM; models_done either way. */
int models_find(const struct options *o, struct models *ret, struct err *e);
/* Plans every model, and decides how much the process's own accounts get: those that are loaded at the start
 * must fit together. One found that cannot be served is told in the log and stays in the list: its files may
 * change. 0, or why one that was named cannot be. */
int models_plan(struct models *m, struct err *e);
/* registry_opts.plan; `arg` is the struct models. Any thread, for one model at a time. */
int models_plan_again(void *models, struct model_settings *s, struct err *e);
/* Zeroed is fine. */
void models_done(struct models *m);

#endif
