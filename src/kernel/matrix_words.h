/* matrix_words.h - the words of a codebook in the octets of an affine panel. Inside kernel/ only. */
#ifndef PLATEAU_KERNEL_MATRIX_WORDS_H
#define PLATEAU_KERNEL_MATRIX_WORDS_H

#include "tensor/tensor.h"

/* The word of row `lane` in the octet at `at`. */
uint32_t matrix_word_at(const uint8_t *at, uint32_t lane, enum code_map map);
void matrix_word_set(uint8_t *at, uint32_t lane, enum code_map map, uint32_t word);
/* Puts the `count` words of a row's group into as many octets, of which the first begins at `at`. */
void matrix_words_put(uint8_t *at, uint32_t lane, enum code_map map, const uint8_t *words, uint32_t count);

#endif
