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

#endif
