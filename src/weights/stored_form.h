/* stored_form.h - quantised matrices as files of safetensors have them, beside rows of codes and scales.
 *
 * A stored form says how the tensors of a linear_source lie in a file. stored_form_rows() turns some rows
 * into what a source in memory has (tensor.h): a bit stream of codes, a scale per group, perhaps a zero point
 * per group and an upper scale per row. A new form is a row of the table. */
#ifndef PLATEAU_WEIGHTS_STORED_FORM_H
#define PLATEAU_WEIGHTS_STORED_FORM_H

#include "base/err.h"
#include "tensor/tensor.h"

struct checkpoint;

enum stored_layout {
    STORED_ROWS, /* weight [out, in]; zero points, if any, packed along out: [out * bits / 32, groups] */
    STORED_COLUMNS_OUT, /* weight [in, out * bits / 32], zero points [groups, out * bits / 32] */
    STORED_COLUMNS_IN,  /* weight [in * bits / 32, out], zero points as above */
};

struct stored_form {
    const char *name;
    enum stored_layout layout;
    uint8_t flip;         /* bits that are flipped in a byte of codes */
    bool divides;         /* the value of `supers` divides; else it is a factor */
    bool zeros_less_one;  /* words of zero points lack 1 in each field */
    const uint8_t *order; /* STORED_COLUMNS_OUT: the field of each column of a word */
};

/* By name: "rows", "int8", "nvfp4", "nvfp4 divided", "awq", "gptq", "gptq v2". */
const struct stored_form *stored_form_find(const char *name);

/* Memory of `count` rows as a source, and what reading them takes beside it, 64-byte aligned parts. */
size_t stored_form_row_bytes(const struct linear_source *s);
size_t stored_form_bytes(const struct linear_source *s, uint64_t count);

/* Reads rows [first, first + count) of `s` into `memory` of stored_form_bytes(). 0, or what
 * checkpoint_read() said. */
int stored_form_rows(const struct checkpoint *c, const struct linear_source *s, uint64_t first,
                     uint64_t count, char *memory, struct linear_source *ret, struct err *e);

#endif
