/* model_dirs.h - the models below a directory. */
#ifndef PLATEAU_HOST_MODEL_DIRS_H
#define PLATEAU_HOST_MODEL_DIRS_H

#include "base/err.h"

#define MODEL_DIRS_PATH_BYTES 4096

/* Files that are passed over: vision encoders of GGUF models, and weights in other formats. */
struct model_dirs_others {
    unsigned mmprojs, bins;
    unsigned hub_models;                     /* models of the hub's cache without a complete snapshot */
    struct err hub_why;                      /* reason of the first of these */
    char first[MODEL_DIRS_PATH_BYTES + 256]; /* the path of one */
};

/* Calls `found` for each directory below `dir`, itself included, that has config.json and a .safetensors
 * file, and for each GGUF model (model_ggufs.h), in the order of their names. Searches 8 levels and at
 * most 4096 directories; it skips directories inside a model, names that begin with a dot, and all but the
 * current snapshot in a model of the hub's cache. 0, -ENOENT (no such directory), -E2BIG (more
 * directories), -ENOMEM, or the result of `found`. `others` (may be NULL) is filled as far as the search
 * came. */
int model_dirs_find(const char *dir, int (*found)(void *arg, const char *path, struct err *e), void *arg,
                    struct model_dirs_others *others, struct err *e);

#endif
