/* vector_head.h - layers after the pooling: Dense modules of a sentence-transformers directory, or the
 * classifier of a model that scores.
 *
 * A few small matrices in f32, in the machine's memory: host code applies them to one pooled vector, after
 * the step. Their bytes are the model's tables. The loading thread makes a head, the engine's applies it. */
#ifndef PLATEAU_MODEL_VECTOR_HEAD_H
#define PLATEAU_MODEL_VECTOR_HEAD_H

#include "model/config/pooling.h"

#include "tensor/tensor.h"

struct account;
struct arena;
struct checkpoint;
struct config;
struct model_files;

#define VECTOR_HEAD_MAX POOLING_DENSE_MAX

/* y = f(w x + bias) */
struct vector_layer {
    uint32_t in, out;
    bool tanh;           /* f; else f(x) = x */
    bool minus;          /* the file has two rows for the one: the first less the second */
    const float *weight; /* [out][in] */
    const float *bias;   /* [out]; NULL: none */
};

struct vector_head {
    struct vector_layer layer[VECTOR_HEAD_MAX];
    uint32_t count;    /* 0: the pooled vector is the result */
    uint32_t labels;   /* classes of a classifier; 0: it makes vectors */
    float *between[2]; /* [widest] each */
};

/* Where a head's tensors are. */
struct vector_head_source {
    struct vector_head shape; /* without weights */
    struct tensor weight[VECTOR_HEAD_MAX], bias[VECTOR_HEAD_MAX];
    bool has_bias[VECTOR_HEAD_MAX];
    const struct checkpoint *checkpoint[VECTOR_HEAD_MAX];
};

/* Finds the modules that `pooling` lists, or without a pooling the classifier of the checkpoint,
 * whose text model has `prefix`. `a` keeps the tables of more files. 0, -EINVAL, -ENOTSUP (more labels than
 * one, another dtype), or what opening said. */
int vector_head_find(struct arena *a, struct model_files *files, const struct pooling_config *pooling,
                     const struct config *c, const struct checkpoint *checkpoint, const char *prefix,
                     struct account *account, struct vector_head_source *ret, struct err *e);

/* Bytes that vector_head_read() takes of `a`. */
uint64_t vector_head_bytes(const struct vector_head *h);
/* 0, -ENOMEM, -EINVAL (a value is not finite), or what reading said. */
int vector_head_read(struct arena *a, const struct vector_head_source *s, struct vector_head *ret,
                     struct err *e);

/* Values of a result, and the most that a vector has on the way; `hidden`: of the pooled one. */
uint32_t vector_head_width(const struct vector_head *h, uint32_t hidden);
uint32_t vector_head_width_max(const struct vector_head *h, uint32_t hidden);
/* The pooled vector becomes the result, in place. A value is one fixed chain of sums. */
void vector_head_apply(const struct vector_head *h, float *vector);

#endif
