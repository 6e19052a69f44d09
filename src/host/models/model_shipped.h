/* model_shipped.h - the models that come with the program. */
#ifndef PLATEAU_HOST_MODEL_SHIPPED_H
#define PLATEAU_HOST_MODEL_SHIPPED_H

#include "base/err.h"
#include "hub/hub_cache.h"

/* The bundled model: beside the program's folder (build/plateau in a checkout), in share of the installation
 * (PREFIX/bin/plateau), or in the checkout of the build. 0 or -ENOENT. */
int model_shipped_bundled(char ret[HUB_PATH_BYTES], struct err *e);

/* The starter model: SmolLM2-135M-Instruct, where tools/fetch-starter has put it. False: it is not there. */
bool model_shipped_starter(char ret[HUB_PATH_BYTES]);

#endif
