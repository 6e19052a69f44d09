/* gguf_arch.h - what GGUF files of an architecture call things, and what they change, as data.
 *
 * An architecture is a row of a table:
 *   - the family that computes it, the keys of config.json that its metadata are, and what they leave out;
 *   - the names of its tensors by role, and which of them have rows or columns in another order than
 *     Hugging Face's files.
 * Norms are stored as w, never as w - 1, and a delta net's decay as -exp(A_log). */
#ifndef PLATEAU_MODEL_GGUF_ARCH_H
#define PLATEAU_MODEL_GGUF_ARCH_H

#include "model/load/role.h"

#include <stddef.h>

struct config;
struct part_order;
struct slice;

/* A key of the metadata, without "ARCHITECTURE.", and the key of config.json that it is. */
struct gguf_key {
    const char *key; /* NULL: the end */
    const char *name;
};

/* The order in which rows or columns of a tensor lie. */
enum gguf_order {
    GGUF_ORDER_PAIRS,       /* rows of each head: the two that rotate together side by side */
    GGUF_ORDER_HEADS,       /* rows of value heads: the first of each key head, then the second, ... */
    GGUF_ORDER_AFTER_KEYS,  /* value heads, after the rows of queries and keys */
    GGUF_ORDER_NUMBERS,     /* value heads, one number for each */
    GGUF_ORDER_HEAD_COLUMNS /* columns of value heads */
};

struct gguf_ordered {
    enum tensor_role role; /* ROLE_NONE: the end */
    enum gguf_order order;
};

struct gguf_arch {
    const char *name;       /* general.architecture */
    bool experts;           /* the row of files whose expert_count is over 0; another row has the others */
    bool windowed;          /* the row of files with a window, which comes before the row of those without */
    const char *model_type; /* its model_type in config.json */
    const struct gguf_key *keys; /* in addition to the common ones; NULL: none */
    const char *facts;           /* members of config.json that the metadata leave out, as JSON; NULL: none */
    uint32_t score_by_width;     /* a model of this many layers scales scores by hidden / heads; 0: none */
    const struct tensor_name *names;    /* in addition to the common ones; NULL: none */
    const struct gguf_ordered *ordered; /* NULL: none */
};

/* NULL: an architecture that is not read. */
const struct gguf_arch *gguf_arch_find(struct slice name, bool experts, bool windowed);
/* "llama, qwen2, ..." */
const char *gguf_arch_list(char *ret, size_t bytes_max);
/* Keys that all architectures share. */
extern const struct gguf_key gguf_arch_keys[];

/* A tensor's name without "blk.INDEX." and ".weight"; "-", which no tensor has: no file has this role. */
const char *gguf_arch_tensor(const struct gguf_arch *a, enum tensor_role role);
/* The orders of rows and columns of the tensor at `path` ("blk.3.attn_q"); zeros: no other order. */
void gguf_arch_orders(const struct config *c, const char *path, struct part_order *rows,
                      struct part_order *columns);

#endif
