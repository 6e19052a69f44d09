/* model_use.h - what a model was made for, from its files: text, vectors, or scores of a query and a
 * document. */
#ifndef PLATEAU_REGISTRY_MODEL_USE_H
#define PLATEAU_REGISTRY_MODEL_USE_H

#include "base/arena.h"
#include "model/config/pooling.h"

struct model_files;
struct model_settings;
struct model_shape;
struct tokenizer;

enum model_kind { MODEL_GENERATES, MODEL_EMBEDS, MODEL_RERANKS };
const char *model_kind_name(enum model_kind k); /* "generate", "embed", "rerank" */

struct model_use {
    enum model_kind kind;
    bool texts, vectors, scores;   /* kinds of requests that it serves; --embeddings gives all to a
                                    * generator */
    struct pooling_config pooling; /* with `vectors`, and of a classifier */
    uint32_t yes, no;              /* with `scores`: the tokens whose logits decide */
};

/* `tokenizer` may be NULL; a model without one gives no scores. Without modules.json an encoder pools the
 * mean, and a decoder that is to embed its last token. 0, or what reading the files said. */
int model_use_load(const struct model_settings *s, struct model_files *files, const struct model_shape *shape,
                   const struct tokenizer *tokenizer, struct arena *scratch, struct model_use *ret,
                   struct err *e);

#endif
