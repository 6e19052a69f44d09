/* model_json.h - the JSON files of a model, each parsed within bounds. */
#ifndef PLATEAU_WEIGHTS_MODEL_JSON_H
#define PLATEAU_WEIGHTS_MODEL_JSON_H

#include "base/err.h"
#include "base/slice.h"

#include <jansson.h>

struct model_files;

#define MODEL_JSON_BYTES_MAX ((size_t)4 << 20)

/* Parses one JSON object of at most 4 MiB, nested at most 32 deep, no duplicate keys. The caller owns *ret
 * (json_decref). 0, -EINVAL, -ENOMEM. `name` goes into the messages. */
int model_json_parse(struct slice text, const char *name, json_t **ret, struct err *e);
/* As `model_json_parse()`, but of the model's file `name`. Also -ENOENT and the errors of open and read. */
int model_json(struct model_files *files, const char *name, json_t **ret, struct err *e);
/* As `model_json()`, but of a file with a list. */
int model_json_list(struct model_files *files, const char *name, json_t **ret, struct err *e);
/* As `model_json()`, but of a view (model_files_is_view()), whose values have the bounds of their file. */
int model_json_view(struct model_files *files, const char *name, json_t **ret, struct err *e);

#endif
