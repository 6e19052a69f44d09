/* models_state.h - what the files of the list of models share. Not for others. */
#ifndef PLATEAU_HOST_MODELS_STATE_H
#define PLATEAU_HOST_MODELS_STATE_H

#include "host/models/catalog.h"
#include "host/models/models.h"

#include <stdbool.h>
#include <stdint.h>

struct hub_name;
struct plan_process;
struct planning;

/* models.c */

/* Fills in the names that model `index` has by its place in a cache of the hub. */
void models_note_hub_ids(struct models *m, uint32_t index);
/* The further names of a model of the hub: without its organisation, without its quantisation, without
 * either. NULL: it has no more. */
const char *models_short_name(const struct models *m, uint32_t index, uint32_t number);
/* Whether two paths lead to one place. */
bool models_is_same_dir(const char *a, const char *b);
/* One more name of a model, which must live as long as the list. 0 or -EINVAL. */
int models_add_alias(struct model_settings *s, const char *name, struct err *e);
/* Joins the settings of the start and of the model's section. 0 or -EINVAL. */
int models_read_settings(struct models *m, uint32_t index, struct err *e);

/* models_replicas.c */

/* Writes the replica of the model `index` with that number into the entry index + replica: the same model on
 * another device, under the id ID@DEVICE. 0, or an error of device_choose_replica(). */
int models_make_replica(struct models *m, uint32_t index, uint32_t replica, struct err *e);
/* Adds the replicas of all models of the list, each after its model. 0, -E2BIG, or an error of
 * models_make_replica(). */
int models_add_replicas(struct models *m, struct err *e);

/* models_fit.c */

/* Whether there are others, now or later: then what each cannot run without is set aside. */
static inline bool models_are_several(const struct models *m)
{
    return m->models_max > 1;
}
/* Plans one model into *s; `p` has the plan. 0, or an error of planning_make(). */
int models_plan_one(const struct models *m, uint32_t index, const struct plan_process *process,
                    struct model_settings *s, struct planning *p, struct err *e);
/* Finds the model's device in the process. 0, -EINVAL, -ENODEV. */
int models_choose_device(struct models *m, uint32_t index, struct err *e);
/* Logs that a model cannot be served, and why. */
void models_tell_unusable(const struct model_settings *s, const struct err *why);

/* models_search.c: models that a server serves without their names, below a directory and in the hub's cache.
 * Models and files that are passed over are logged, with the reason. Reads directories, which may be slow or
 * never answer. */

/* Entries that are passed over: vision encoders of GGUF models, and weights in other formats. */
struct models_others {
    unsigned mmprojs, bins;
    unsigned hub_models;            /* models of the hub's cache without a complete snapshot */
    struct err hub_why;             /* reason of the first of these */
    char first[CATALOG_PATH_BYTES]; /* the path of one */
};

typedef int models_found_fn(void *arg, const char *path, struct err *e);

/* Calls `found` for each model below `dir`, and counts them. 0, or an error of catalog_walk(). `others`
 * counts what is passed over. */
int models_search_dir(const char *dir, models_found_fn *found, void *arg, uint32_t *count,
                      struct models_others *others, struct err *e);
/* As `models_search_dir()`, but of the hub's cache, whose path comes back. */
int models_search_hub(models_found_fn *found, void *arg, uint32_t *count, char ret[CATALOG_PATH_BYTES],
                      struct err *e);
/* As `models_search_hub()`, but of the one model of that name. 0, an error of catalog_find_in_hub(), or the
 * result of `found`. */
int models_search_revision(const struct hub_name *name, models_found_fn *found, void *arg, uint32_t *count,
                           struct err *e);

#endif
