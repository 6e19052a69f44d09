/* config_gguf.h - the metadata of a GGUF model as the object that a config.json would hold. */
#ifndef PLATEAU_MODEL_CONFIG_GGUF_H
#define PLATEAU_MODEL_CONFIG_GGUF_H

#include "base/err.h"

#include <jansson.h>

struct gguf_arch;
struct model_files;

/* Reads the head of the model. The caller owns *ret (json_decref). 0, -EINVAL,
 * -ENOTSUP (an architecture or a value that is not read), -ENOMEM, or what open and read said. */
int config_gguf_read(struct model_files *files, json_t **ret, const struct gguf_arch **arch, struct err *e);

#endif
