/* model_hint.h - why a path cannot be served as a model, in words that name the path and the next step. Reads
 * directories and the index of the weights; for messages of a command or of a start, not for clients: they
 * name paths. */
#ifndef PLATEAU_CLI_MODEL_HINT_H
#define PLATEAU_CLI_MODEL_HINT_H

#include "base/err.h"

/* Reading `path` as a model failed with `code` and `e`. Where the path itself is why (nothing is there, a
 * GGUF file, weights of another format, a directory above models, the cache of the Hugging Face hub, a
 * download that is not complete), `e` says so; else `path` is put before what it says. Returns `code`. */
int model_hint(const char *path, int code, struct err *e);

#endif
