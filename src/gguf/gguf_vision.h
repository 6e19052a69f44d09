/* gguf_vision.h - a vision encoder in a file of its own (mmproj), beside a GGUF model.
 *
 * Its metadata become vision_config and the preprocessor's configuration, and its tensors have the names of
 * Hugging Face's files. Encoders are those of Qwen3-VL and Qwen3.5 (projector qwen3vl_merger), Qwen2.5-VL,
 * Pixtral, Gemma 3, Idefics3 with SmolVLM, and InternVL. Pure. */
#ifndef PLATEAU_GGUF_GGUF_VISION_H
#define PLATEAU_GGUF_GGUF_VISION_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct gguf;
struct slice;

#define GGUF_VISION_NAME_BYTES 128

/* Whether `encoder` is a file of a vision encoder that belongs to the model: it computes embeddings of the
 * model's width, and the model's architecture sees. */
bool gguf_vision_fits(const struct gguf *model, const struct gguf *encoder);
/* As `gguf_vision_fits()`, with the reason in e. 0, -EINVAL, -ENOTSUP. */
int gguf_vision_check(const struct gguf *model, const struct gguf *encoder, struct err *e);
/* Whether gguf_vision_filters() are to be one tensor. */
bool gguf_vision_weaves(const struct gguf *encoder);
/* The name of one of its tensors: "model.visual.blocks.3.norm1.weight". False: the tensor is not read. */
bool gguf_vision_name(const struct gguf *encoder, struct slice name, char ret[GGUF_VISION_NAME_BYTES]);
/* Tensors with the filters of a patch's first and second frame, which are one tensor in Hugging Face's files.
 * NULL: there is none. */
const struct gguf_tensor *gguf_vision_filters(const struct gguf *encoder, unsigned frame);

/* Sets vision_config and ids of tokens in the object of config.json. 0, -EINVAL, -ENOTSUP, -ENOMEM. */
int gguf_vision_config(const struct gguf *model, const struct gguf *encoder, json_t *root, struct err *e);
/* The object of preprocessor_config.json; the caller owns it. 0 or -ENOMEM. */
int gguf_vision_preprocessor(const struct gguf *encoder, json_t **ret, struct err *e);

#endif
