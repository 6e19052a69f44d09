/* evaluation.h - a model's perplexity on a text, and its divergence from a reference.
 *
 * The text is cut into chunks of `context` tokens; a shorter rest is not used. Both models read each chunk, a
 * few tokens a step. The first half is context: positions in the second half are scored. If the tokenizer
 * puts a token before a text, each chunk begins with it instead of its own first token. */
#ifndef PLATEAU_HOST_EVALUATION_H
#define PLATEAU_HOST_EVALUATION_H

#include "base/err.h"
#include "base/slice.h"
#include "host/divergence.h"
#include "model/model.h"

struct evaluation_opts {
    const char *dir, *reference;   /* directories of the models; reference NULL: none. It computes in f32 */
    struct model_parts arithmetic; /* settings of the model in `dir`: compute, kv_form and quant alone */
    struct slice text;             /* UTF-8 */
    uint32_t context;              /* tokens of a chunk, at least EVALUATION_CONTEXT_MIN */
    uint32_t chunks_max;           /* 0: all */
    struct device *device;
    struct account *parent, *device_parent; /* device_parent NULL: the device's memory is the machine's */
    /* Called while models load (`loads`: the model's directory), then after each chunk (NULL). Nonzero stops
     * it: -ECANCELED. */
    int (*progress)(void *arg, const char *loads, uint64_t done, uint64_t total);
    void *arg;
};
#define EVALUATION_CONTEXT_MIN 16

struct evaluation_result {
    uint64_t tokens; /* tokens of the text */
    uint32_t chunks;
    uint64_t bytes, reference_bytes;   /* bytes of the checkpoints */
    uint64_t weight_bytes;             /* bytes of the model's weights in memory */
    char form[64], reference_form[64]; /* model_shape.form */
    struct divergence_result numbers;
};

/* The calling thread computes, beside the device's workers. 0, -ECANCELED, -EINVAL (no UTF-8, fewer tokens
 * than a chunk, another vocabulary, an encoder), -ENOENT (no tokenizer), -ENOMEM with the numbers, or an
 * error of model_load(). */
int evaluation_run(const struct evaluation_opts *opts, struct evaluation_result *ret, struct err *e);

#endif
