/* model_place.h - where a model lies that is named on a command line: a path, or a name of the Hugging
 * Face hub whose files are in the hub's cache. */
#ifndef PLATEAU_HOST_MODEL_PLACE_H
#define PLATEAU_HOST_MODEL_PLACE_H

#include "base/err.h"
#include "hub/hub_cache.h"

/* A path that exists is the result, but for a model's folder in the hub's cache, which becomes its current
 * snapshot, or its GGUF file. Else canary and smollm2 are the bundled and the starter model.
 * ORG/NAME[@REVISION][:QUANT] is looked up in the hub's cache, and so is NAME[:QUANT]; then the name among
 * the models of LM Studio and Ollama, as the command models lists them. Any other path is the result, too. 0,
 * -ENOENT and -ENODATA (a name of the hub that the cache does not have, or not complete), -ENOTUNIQ (NAME of
 * several organisations, or several GGUF models), -ENAMETOOLONG; `e` has the next step. */
int model_place_find(const char *model, char ret[HUB_PATH_BYTES], struct err *e);

/* As `model_place_find()`, but of ORG/NAME[@REVISION][:QUANT] in the hub's cache alone. */
int model_place_in_hub(const struct hub_name *name, char ret[HUB_PATH_BYTES], struct err *e);

#endif
