/* model_dirs.h - the models below a directory. */
#ifndef PLATEAU_CLI_MODEL_DIRS_H
#define PLATEAU_CLI_MODEL_DIRS_H

#include "base/err.h"

#define MODEL_DIRS_PATH_BYTES 4096

/* Calls `found` for each directory below `dir`, itself included, that has config.json and a .safetensors file, in the order of
 * their names. Looks 8 levels deep and at 4096 directories; not below a model, and at none whose name begins with a dot. 0, -ENOENT (there is no
 * such directory), -E2BIG (more directories), -ENOMEM, or what `found` said. */
int model_dirs_find(const char *dir, int (*found)(void *arg, const char *path, struct err *e), void *arg,
                    struct err *e);

#endif
