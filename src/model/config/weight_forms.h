/* weight_forms.h - which forms a model's matrices have, and what they are called.
 *
 * A form is how the files store a matrix: "BF16", "Q4_K", "mlx 4 bit g64", "fp8 e4m3 block 128",
 * "awq 4 bit", "nvfp4". A matrix quantised by a load is "q4 g64 from BF16". A mixture has the name of the
 * form with most bytes, and the number of the others: "Q4_K and 2 others". Plain data; the caller's
 * thread. */
#ifndef PLATEAU_MODEL_WEIGHT_FORMS_H
#define PLATEAU_MODEL_WEIGHT_FORMS_H

#include "tensor/tensor.h"

#define WEIGHT_FORMS_MAX   32 /* forms of one model; further ones are not counted */
#define WEIGHT_FORMS_BYTES 64

/* Tells two forms apart. */
struct weight_form_key {
    const struct block_form *blocks;
    const struct stored_form *stored;
    enum dtype dtype, scales;
    enum code_map codes;
    uint32_t bits, group;   /* 0: a float */
    uint32_t rows, columns; /* rows and columns of one stored scale */
    bool at_load;           /* the files have `dtype`, which is quantised while it is loaded */
};

struct weight_forms {
    struct weight_form_key keys[WEIGHT_FORMS_MAX];
    uint64_t bytes[WEIGHT_FORMS_MAX]; /* bytes of a matrix of each form, in the files */
    uint32_t count;
};

/* `bytes` of matrix `s` are in the files. 0: a table, which is not what the model is named after. */
void weight_forms_add(struct weight_forms *f, const struct linear_source *s, uint64_t bytes);
/* Writes the names of all forms; "no matrices" without any. */
void weight_forms_text(const struct weight_forms *f, char ret[WEIGHT_FORMS_BYTES]);

#endif
