/* tokenizer_gguf.h - the tokenizer of a GGUF model, as the objects of a tokenizer.json and of a
 * tokenizer_config.json. */
#ifndef PLATEAU_TOKENIZER_TOKENIZER_GGUF_H
#define PLATEAU_TOKENIZER_TOKENIZER_GGUF_H

#include "base/err.h"

#include <jansson.h>

struct model_files;

/* Reads the head of the model. The caller owns both (json_decref). 0,
 * -EINVAL, -ENOENT (it has no tokenizer), -ENOTSUP (a kind that is not read), -ENOMEM, or what open and read
 * said. */
int tokenizer_gguf_read(struct model_files *files, json_t **root, json_t **config, struct err *e);

#endif
