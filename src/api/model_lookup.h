/* model_lookup.h - from the name in a request to the model that serves it.
 *
 * Clients change names on their way: letters in another case, Ollama's tag `:latest`, a router's `openai/` in
 * front. Any thread. */
#ifndef PLATEAU_API_MODEL_LOOKUP_H
#define PLATEAU_API_MODEL_LOOKUP_H

#include <stdbool.h>

struct api;
struct reject;
struct slice;

/* The model with that id or alias. Without one: the only model that is meant after changes of case, without
 * `:latest` and without leading `provider/`. The index in the registry, or -1: no model, or several. */
int model_lookup_find(const struct api *a, struct slice name);
/* The model for a request that generates: as model_lookup_find(), and --default-model for other names. A
 * slice without pointer is a request without a model: the default, else the first. `exact`: the name is the
 * model's id or alias. */
int model_lookup_serve(const struct api *a, struct slice name, bool *exact);
/* 404; names the models, if they are few. Returns false. */
bool model_lookup_refuse(const struct api *a, struct slice name, struct reject *why);

#endif
