/* model_folder.h - a source of models for a listing: the directories and files of one folder.
 *
 * A folder is a model itself, or holds models one or two levels below, or is a cache of the Hugging Face hub
 * (models--ORG--NAME/snapshots/COMMIT), of which the current snapshot counts.
 * Reads names only. Another source has the same callback. */
#ifndef PLATEAU_HOST_MODEL_FOLDER_H
#define PLATEAU_HOST_MODEL_FOLDER_H

#include "base/err.h"

/* `path` is a directory or a file, `id` its name: of the hub's cache ORG/NAME. Both are valid during the
 * call. */
typedef int model_found_fn(void *arg, const char *path, const char *id, struct err *e);

/* Calls `found` for what looks like a model: a directory with config.json or with weights, and each GGUF
 * file (model_ggufs.h), of which vision encoders are refused later. In the order of their names; names
 * that begin with a dot are skipped. 0, -ENOENT (not readable), -E2BIG (over 4096 entries), or the result of
 * `found`. */
int model_folder_each(const char *dir, model_found_fn *found, void *arg, struct err *e);

#endif
