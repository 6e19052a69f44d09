/* catalog.h - the models below a directory, by one walk that every command and the server share.
 *
 * The walk follows links down to 8 levels and reads at most 4096 directories. It skips directories inside a
 * model, names that begin with a dot, and all but the current snapshot in a model of the hub's cache. It
 * reads names only, in their order. */
#ifndef PLATEAU_HOST_CATALOG_H
#define PLATEAU_HOST_CATALOG_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define CATALOG_PATH_BYTES 4096
#define CATALOG_ID_BYTES   256

enum catalog_kind {
    CATALOG_DIRECTORY, /* with config.json and .safetensors files */
    CATALOG_FILE,      /* a GGUF model, by its first part that is there, or a packed file */
    /* The others are not served. */
    CATALOG_ENCODER, /* a GGUF file with a vision encoder */
    CATALOG_BIN,     /* a directory with config.json, whose weights are .bin files */
    CATALOG_PARTIAL, /* a directory with config.json or .safetensors files, and not both */
    CATALOG_HUB      /* a model's folder in the hub's cache, without a complete snapshot */
};

struct catalog_entry {
    char *path;                /* path of a directory or a file */
    char *why;                 /* reason of CATALOG_HUB; else NULL */
    char id[CATALOG_ID_BYTES]; /* the name that a server gives it; of the hub's cache ORG/NAME[:QUANT] */
    enum catalog_kind kind;
};

static inline bool catalog_is_model(const struct catalog_entry *m)
{
    return m->kind <= CATALOG_FILE;
}

/* Calls `found` for each entry, once all have their names. 0, -ENOENT (`dir` cannot be read), -E2BIG (more
 * directories or entries), -ENOMEM, or the result of `found`. */
int catalog_walk(const char *dir, int (*found)(void *arg, const struct catalog_entry *m, struct err *e),
                 void *arg, struct err *e);

/* Receives a model's path and id, both valid during the call. */
typedef int model_found_fn(void *arg, const char *path, const char *id, struct err *e);
/* As `catalog_walk()`, but `found` gets path and id alone, of what is not served, too. */
int catalog_each(const char *dir, model_found_fn *found, void *arg, struct err *e);

#endif
