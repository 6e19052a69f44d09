/* vectors.h - the pooled vectors of a golden: each text whole and alone against the reference, then in chunks
 * and all together with the same bits. */
#ifndef PLATEAU_TOOLS_VECTORS_H
#define PLATEAU_TOOLS_VECTORS_H

#include "golden/golden_file.h"
#include "model/model.h"

#define VECTOR_BOUND        1e-4
#define VECTOR_BOUND_KV     0.02 /* where K and V are not f32 */
#define VECTOR_BOUND_KV_FP8 0.06
/* Computed in bf16: in the golden with the smallest vectors, of 16 values, transformers' own bf16 is 0.032
 * from its f32. */
#define VECTOR_BOUND_BF16 0.04

struct vectors_result {
    double error_max;
    uint32_t wrong, first_wrong; /* vectors beyond the bound */
    uint32_t different;          /* texts whose bits differ in some chunk or batch */
};

/* `dir` has the pooling; every step of all the texts has room in the model. 0, or an error with e. */
int vectors_run(struct model *m, const char *dir, const struct golden_file *f, struct vectors_result *ret,
                struct err *e);

#endif
