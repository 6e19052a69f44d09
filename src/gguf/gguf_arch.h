/* gguf_arch.h - what GGUF files of an architecture call things, and what they change, as data.
 *
 * An architecture is a row of a table:
 *   - the family that computes it, the keys of config.json that its metadata are, and what they leave out;
 *   - the names of its tensors by role, and which of them have rows or columns in another order than
 *     Hugging Face's files (tensor_naming.h). */
#ifndef PLATEAU_GGUF_GGUF_ARCH_H
#define PLATEAU_GGUF_GGUF_ARCH_H

#include "tensor/tensor_naming.h"

#include <stddef.h>

struct slice;

/* A key of the metadata, without "ARCHITECTURE.", and the key of config.json that it is. */
struct gguf_key {
    const char *key; /* NULL: the end */
    const char *name;
};

struct gguf_arch {
    const char *name;       /* general.architecture */
    bool experts;           /* the row of files whose expert_count is over 0; another row has the others */
    bool windowed;          /* the row of files with a window, which comes before the row of those without */
    const char *model_type; /* its model_type in config.json */
    const struct gguf_key *keys; /* in addition to the common ones; NULL: none */
    const char *facts;           /* members of config.json that the metadata leave out, as JSON; NULL: none */
    uint32_t score_by_width;     /* a model of this many layers scales scores by hidden / heads; 0: none */
    struct tensor_naming naming;
};

/* NULL: an architecture that is not read. */
const struct gguf_arch *gguf_arch_find(struct slice name, bool experts, bool windowed);
/* "llama, qwen2, ..." */
const char *gguf_arch_list(char *ret, size_t bytes_max);
/* Keys that all architectures share. */
extern const struct gguf_key gguf_arch_keys[];

#endif
