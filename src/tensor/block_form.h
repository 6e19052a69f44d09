/* block_form.h - the forms of tensors in GGUF files, as data.
 *
 * A row is a whole number of blocks; a block has a fixed number of bytes and of values. All forms with blocks
 * of several values are affine, exactly: a group of values has a scale and a bias. A value is scale * code +
 * bias, its code a whole number of `bits` bits. Where a form looks its values up in a table of whole numbers,
 * those are the codes. The functions here are the reference: plain, for any alignment, tested against vectors
 * of another program. A new form is a row of the table and its function. */
#ifndef PLATEAU_TENSOR_BLOCK_FORM_H
#define PLATEAU_TENSOR_BLOCK_FORM_H

#include "tensor/tensor.h"

#define BLOCK_FORM_VALUES_MAX 256
#define BLOCK_FORM_GROUPS_MAX 16

/* One block, taken apart. */
struct block_parts {
    uint8_t codes[BLOCK_FORM_VALUES_MAX];
    float scales[BLOCK_FORM_GROUPS_MAX], biases[BLOCK_FORM_GROUPS_MAX]; /* of each group */
};

struct block_form {
    uint32_t type; /* its number in a file */
    const char *name;
    enum dtype dtype;       /* of a form of single values, else DTYPE_BLOCKS */
    uint32_t values, bytes; /* of a block */
    uint32_t bits, group;   /* of a code; values that share a scale */
    void (*split)(const struct block_form *f, const uint8_t *block, struct block_parts *ret);
    /* Where a block has its offset and high bits (0: nowhere) and its low bits; the code of the value 0. */
    uint32_t offset_at, high_at, low_at, centre;
};

/* NULL: a number that is not known, or of a form that is not read. */
const struct block_form *block_form_find(uint32_t type);
/* The name of a form that is known and not read; NULL: no such form. */
const char *block_form_refused(uint32_t type);

/* Bytes of `count` values, a whole number of blocks. */
uint64_t block_form_bytes(const struct block_form *f, uint64_t count);
/* Takes apart a block of a form that is not of single values. */
void block_form_split(const struct block_form *f, const void *block, struct block_parts *ret);
/* Values [0, count) of a row that begins at `row`; a whole number of blocks. */
void block_form_unpack(const struct block_form *f, const void *row, uint64_t count, float *ret);

#endif
