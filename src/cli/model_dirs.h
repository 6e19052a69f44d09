/* model_dirs.h - the models below a directory. */
#ifndef PLATEAU_CLI_MODEL_DIRS_H
#define PLATEAU_CLI_MODEL_DIRS_H

#include "base/err.h"

#define MODEL_DIRS_PATH_BYTES 4096

/* Files with weights in other formats, which are passed over. */
struct model_dirs_others {
    unsigned ggufs, bins;
    char first[MODEL_DIRS_PATH_BYTES + 256]; /* the path of one */
};

/* Calls `found` for each directory below `dir`, itself included, that has config.json and a .safetensors
 * file, in the order of their names. Looks 8 levels deep and at 4096 directories; not below a model, and at
 * none whose name begins with a dot. 0, -ENOENT (there is no such directory), -E2BIG (more directories),
 * -ENOMEM, or what `found` said. `others` (NULL: not wanted) is filled as far as the search came. */
int model_dirs_find(const char *dir, int (*found)(void *arg, const char *path, struct err *e), void *arg,
                    struct model_dirs_others *others, struct err *e);

#endif
