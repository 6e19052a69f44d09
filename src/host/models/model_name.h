/* model_name.h - what a model is called unless something says otherwise: one name in listings, plans, servers
 * and conversations. */
#ifndef PLATEAU_HOST_MODEL_NAME_H
#define PLATEAU_HOST_MODEL_NAME_H

#include <stddef.h>

/* The models that come with the program: the bundled one, and the starter model of tools/fetch-starter. */
#define MODEL_NAME_BUNDLED "canary"
#define MODEL_NAME_STARTER "smollm2"

/* ORG/NAME or ORG/NAME:QUANT of the hub's cache; else the name of a GGUF or packed file without its ending,
 * or of a directory. Looks into a snapshot of the hub's cache for the names of its GGUF files. */
void model_name_of(const char *path, char *ret, size_t bytes);

#endif
