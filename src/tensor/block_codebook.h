/* block_codebook.h - functions of block_form.c for blocks of GGUF whose codes are words of a codebook. */
#ifndef PLATEAU_TENSOR_BLOCK_CODEBOOK_H
#define PLATEAU_TENSOR_BLOCK_CODEBOOK_H

#include "tensor/block_form.h"

typedef void block_codebook_fn(const struct block_form *f, const uint8_t *block, struct block_parts *ret);

block_codebook_fn block_codebook_iq1_s, block_codebook_iq1_m, block_codebook_iq2_xxs, block_codebook_iq2_xs,
    block_codebook_iq2_s, block_codebook_iq3_xxs, block_codebook_iq3_s;

#endif
