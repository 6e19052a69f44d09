/* model_hint.h - explains why a path cannot be served as a model, with the path and the next step. Reads
 * directories and the index of the weights. For messages of a command or of a start, not for clients,
 * because they name paths. */
#ifndef PLATEAU_HOST_MODEL_HINT_H
#define PLATEAU_HOST_MODEL_HINT_H

#include "base/err.h"

/* Reading `path` as a model failed with `code` and `e`. `e` names the reason where it is the path itself: it
 * does not exist, is a GGUF file, has weights of another format, is a directory above models, the cache of
 * the Hugging Face hub, or an incomplete download. Otherwise `path` is put before the message. Returns
 * `code`. */
int model_hint(const char *path, int code, struct err *e);

#endif
