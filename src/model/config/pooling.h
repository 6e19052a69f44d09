/* pooling.h - one vector for a text: how a sentence-transformers directory or a GGUF file describes it, and
 * its arithmetic.
 *
 * modules.json lists the modules after the transformer, 1_Pooling/config.json says which rows of the final
 * norm's output are taken. Pure but for reading these files. */
#ifndef PLATEAU_MODEL_POOLING_H
#define PLATEAU_MODEL_POOLING_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct model_files;

enum pooling {
    POOLING_NONE,
    POOLING_LAST, /* the last token's row */
    POOLING_MEAN, /* the mean of all rows */
    POOLING_CLS   /* the first token's row */
};
const char *pooling_name(enum pooling p);

#define POOLING_DIMENSIONS_MAX 32
#define POOLING_DENSE_MAX      4
#define POOLING_FOLDER_BYTES   64

struct pooling_config {
    enum pooling kind; /* POOLING_NONE: no sentence-transformers directory */
    bool normalize;    /* vectors have length 1 */
    char dense[POOLING_DENSE_MAX][POOLING_FOLDER_BYTES]; /* folders of Dense modules after it */
    uint32_t dense_count;
    bool scores; /* a LogitScore module instead of a pooling: the model scores pairs of texts */
    bool yes_no; /* a classifier's two rows are the tokens "yes" and "no" of a reranker */
    /* Vectors may be cut to fewer dimensions (is_matryoshka, matryoshka_dimensions of config.json): to one of
     * these, or with none listed to any. */
    bool cuts;
    uint32_t dimensions[POOLING_DIMENSIONS_MAX], dimension_count;
};

/* The class of a module's or an activation's type: what follows the last dot. NULL stays NULL. */
const char *pooling_class(const char *type);

/* Without modules.json, or `pooling_type` in a GGUF file, the kind is POOLING_NONE. 0, -EINVAL (a file is
 * malformed), -ENOTSUP (a module or a pooling mode that is not computed), -ENOMEM. */
int pooling_config_load(struct model_files *files, uint32_t hidden, struct pooling_config *ret,
                        struct err *e);

/* The longest text in tokens, with those that the tokenizer adds: max_seq_length of
 * sentence_bert_config.json. *ret is 0 without the file or the key. 0, -EINVAL (less than 1), -ENOMEM. */
int pooling_text_max(struct model_files *files, uint32_t *ret, struct err *e);

/* Takes rows [from, from + count) of a text into `vector`, in order; row 0 begins it anew. A sum is one
 * chain, whatever the pieces are. */
void pooling_take(enum pooling p, float *vector, uint32_t width, const float *rows, uint32_t from,
                  uint32_t count);
/* All `count` rows are taken. */
void pooling_end(enum pooling p, float *vector, uint32_t width, uint32_t count);
/* Scales to length 1; zeros stay. */
void pooling_normalize(float *vector, uint32_t width);

#endif
