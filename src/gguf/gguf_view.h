/* gguf_view.h - the head of a GGUF file as the files of a directory: config.json, tokenizer.json,
 * tokenizer_config.json, generation_config.json, modules.json and the pooling's configuration as objects,
 * chat_template.jinja as text; with a vision encoder's file (gguf_vision.h) preprocessor_config.json,
 * too. The list of added tokens in tokenizer.json is whole, and add_bos_token of tokenizer_config.json
 * counts. Pure. */
#ifndef PLATEAU_GGUF_GGUF_VIEW_H
#define PLATEAU_GGUF_GGUF_VIEW_H

#include "gguf/gguf_head.h"

#include <jansson.h>

struct tensor_naming;

/* The value that the file `name` would hold; the caller owns it (json_decref). 0, -ENOENT (there would be no
 * such file), -EINVAL, -ENOTSUP (an architecture, a tokenizer or a value that is not read), -ENOMEM. */
int gguf_view_json(const struct gguf_head *file, const char *name, json_t **ret, struct err *e);
/* The text that the file `name` would hold, a part of the head. False: there would be no such file. */
bool gguf_view_text(const struct gguf_head *file, const char *name, struct slice *ret);
/* About the bytes that the file `name` would have; 0: there would be no such file. */
uint64_t gguf_view_bytes(const struct gguf_head *file, const char *name);
/* The names of the architecture's tensors. 0, -EINVAL, -ENOTSUP. */
int gguf_view_naming(const struct gguf_head *file, const struct tensor_naming **ret, struct err *e);

/* ---- between the files of this module ---- */

#define GGUF_POOLING_RANK   4 /* value of pooling_type of a model that scores */
#define GGUF_POOLING_FOLDER "1_Pooling"

int gguf_config_read(const struct gguf_head *file, json_t **ret, struct err *e);
int gguf_config_modules(const struct gguf_head *file, json_t **ret, struct err *e);
int gguf_config_pooling(const struct gguf_head *file, json_t **ret, struct err *e);
int gguf_tokenizer_read(const struct gguf_head *file, json_t **ret, struct err *e);
int gguf_tokenizer_config(const struct gguf_head *file, json_t **ret, struct err *e);
uint64_t gguf_tokenizer_bytes(const struct gguf_head *file);

#endif
