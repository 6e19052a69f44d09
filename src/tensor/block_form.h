/* block_form.h - the forms of tensors in GGUF files, as data.
 *
 * A row is a whole number of blocks; a block has a fixed number of bytes and of values. A form says what its
 * values become: codes of `bits` bits that share a scale, perhaps a bias, per group (linear_source). Scales
 * keep their width: F16, E8M0, or I8 under an F16 of the block. The functions here are the reference: plain,
 * for any alignment, tested against vectors of another program. A new form is a row of the table and its
 * function. */
#ifndef PLATEAU_TENSOR_BLOCK_FORM_H
#define PLATEAU_TENSOR_BLOCK_FORM_H

#include "tensor/tensor.h"

#define BLOCK_FORM_VALUES_MAX 256
#define BLOCK_FORM_GROUPS_MAX 16

/* One block, taken apart. */
struct block_parts {
    uint8_t codes[BLOCK_FORM_VALUES_MAX];
    /* [group] in the form's dtype: bytes of I8 and E8M0, or an F16. */
    uint8_t scales[BLOCK_FORM_GROUPS_MAX], biases[BLOCK_FORM_GROUPS_MAX];
    uint16_t half, bias_half; /* F16: of the only group, or the block's, with I8 scales */
};

struct block_form {
    uint32_t type; /* its number in a file */
    const char *name;
    enum dtype dtype;       /* dtype of a form of single values, else DTYPE_BLOCKS */
    uint32_t values, bytes; /* values and bytes of a block */
    uint32_t bits, group;   /* bits of a code; values that share a scale */
    void (*split)(const struct block_form *f, const uint8_t *block, struct block_parts *ret);
    enum dtype scales;   /* dtype of a group's scale and bias: F16, F8_E8M0 or I8 */
    enum bias_kind bias; /* stored or centred */
    enum code_map codes;
    /* Where a block has its offset and high bits (0: nowhere) and its low bits. */
    uint32_t offset_at, high_at, low_at;
};

/* NULL: a number that is not known, or of a form that is not read. */
const struct block_form *block_form_find(uint32_t type);
/* The name of a form that is known and not read; NULL: no such form. */
const char *block_form_refused(uint32_t type);

/* Bytes of `count` values, a whole number of blocks. */
uint64_t block_form_bytes(const struct block_form *f, uint64_t count);
/* Sets what a source whose weight has this form consists of: its other tensors have no bytes. */
void block_form_source(const struct block_form *f, struct linear_source *s);
/* Takes apart a block of a form that is not of single values. */
void block_form_split(const struct block_form *f, const void *block, struct block_parts *ret);
/* Values [0, count) of a row that begins at `row`; a whole number of blocks. */
void block_form_unpack(const struct block_form *f, const void *row, uint64_t count, float *ret);

#endif
