/* models_search.h - models that a server serves without their names: below a directory, and in the hub's
 * cache. Skipped models are logged, with the reason. Reads directories,
 * which may be slow or never answer. */
#ifndef PLATEAU_HOST_MODELS_SEARCH_H
#define PLATEAU_HOST_MODELS_SEARCH_H

#include "host/models/catalog.h"

#include "base/err.h"

#include <stdint.h>

struct hub_name;

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
/* As `models_search_dir()`, but of the hub's cache, whose path comes back. 0, -ENOENT (it cannot be read), or
 * the result of `found`. */
int models_search_hub(models_found_fn *found, void *arg, uint32_t *count, char ret[CATALOG_PATH_BYTES],
                      struct err *e);
/* As `models_search_hub()`, but of the one model of that name. 0, an error of model_place_in_hub(), or the
 * result of `found`. */
int models_search_revision(const struct hub_name *name, models_found_fn *found, void *arg, uint32_t *count,
                           struct err *e);

#endif
