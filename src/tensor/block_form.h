/* block_form.h - the forms of tensors in GGUF files, as data.
 *
 * A row is a whole number of blocks; a block has a fixed number of bytes and of values (contract 1.8 and 12).
 * The unpacking here is the reference: plain, for any alignment, tested against vectors of another program.
 * A new form is a row of the table and its function. */
#ifndef PLATEAU_TENSOR_BLOCK_FORM_H
#define PLATEAU_TENSOR_BLOCK_FORM_H

#include <stddef.h>
#include <stdint.h>

#define BLOCK_FORM_VALUES_MAX 256

struct block_form {
    uint32_t type; /* its number in a file */
    const char *name;
    uint32_t values, bytes; /* of a block */
    /* The values of one block: ret[values]. */
    void (*unpack)(const uint8_t *block, float *ret);
};

/* NULL: a number that is not known, or of a form that is not read. */
const struct block_form *block_form_find(uint32_t type);
/* The name of a form that is known and not read; NULL: no such form. */
const char *block_form_refused(uint32_t type);

/* Bytes of `count` values, a whole number of blocks. */
uint64_t block_form_bytes(const struct block_form *f, uint64_t count);
/* Values [0, count) of a row that begins at `row`; a whole number of blocks. */
void block_form_unpack(const struct block_form *f, const void *row, uint64_t count, float *ret);

#endif
