/* tensor_naming.h - how a writer of checkpoints calls and lays out tensors where Hugging Face's files differ.
 *
 * Such a checkpoint has norms as w, never as w - 1, a delta net's decay as -exp(A_log), an MTP head as a
 * layer behind the others, and no tensors of other models. Constant. */
#ifndef PLATEAU_TENSOR_TENSOR_NAMING_H
#define PLATEAU_TENSOR_TENSOR_NAMING_H

#include "tensor/role.h"

/* The order in which rows or columns of a tensor lie. */
enum tensor_order {
    ORDER_PAIRS,       /* rows of each head: the two that rotate together side by side */
    ORDER_HEADS,       /* rows of value heads: the first of each key head, then the second, ... */
    ORDER_AFTER_KEYS,  /* value heads, after the rows of queries and keys */
    ORDER_NUMBERS,     /* value heads, one number for each */
    ORDER_HEAD_COLUMNS /* columns of value heads */
};

struct tensor_ordered {
    enum tensor_role role; /* ROLE_NONE: the end */
    enum tensor_order order;
};

struct tensor_naming {
    const char *layers;                   /* word in front of a layer's number: "blk" */
    const char *const *names;             /* [TENSOR_ROLES] */
    const struct tensor_name *own;        /* names before those; NULL: none */
    const struct tensor_ordered *ordered; /* tensors with another order of rows or columns; NULL: none */
};

/* Returns a tensor's name without the layer and ".weight"; "-", which no tensor has, if no file has the
 * role. */
const char *tensor_naming_of(const struct tensor_naming *n, enum tensor_role role);

#endif
