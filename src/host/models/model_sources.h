/* model_sources.h - the sources of models on this machine: the bundled and the starter model, the hub's
 * cache, the folders of LM Studio, and Ollama's store. */
#ifndef PLATEAU_HOST_MODEL_SOURCES_H
#define PLATEAU_HOST_MODEL_SOURCES_H

#include "host/models/catalog.h"

#include <stdint.h>

/* Calls `found` for each model of each source that exists. 0, or the result of `found`; what cannot be
 * read is passed over. */
int model_sources_each(model_found_fn *found, void *arg, struct err *e);

/* Identifies the model at `path`, a directory or a file, by its files, as entries of the SSD tier do. 0, or
 * an error of model_files_open() or model_fingerprint(). */
int model_sources_fingerprint(const char *path, uint8_t ret[32], struct err *e);

/* Ollama's store: models are named by manifests/HOST/OWNER/NAME/TAG, and are files blobs/sha256-HEX of
 * GGUF. The id is NAME:TAG, or OWNER/NAME:TAG. 0, -ENOENT (`dir` has no manifests), or the result of
 * `found`. */
int model_sources_ollama(const char *dir, model_found_fn *found, void *arg, struct err *e);

#endif
