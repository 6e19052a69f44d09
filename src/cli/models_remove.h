/* models_remove.h - plateau models rm ID. */
#ifndef PLATEAU_CLI_MODELS_REMOVE_H
#define PLATEAU_CLI_MODELS_REMOVE_H

#include "base/err.h"

#include <stdbool.h>

/* Removes a model from the hub's cache, after a question on the terminal unless `yes`, and prints the
 * bytes. 0, -EINVAL and -ENOENT (no such model), -EPERM (no yes), or an error of hub_remove(). */
int models_remove(const char *id, bool yes, struct err *e);

#endif
