/* codebook.h - codes of the forms IQ1, IQ2 and IQ3 of GGUF: eight values are one word.
 *
 * A word looks up eight numbers in a grid, or twice four, and says which of them are negative. Grids are part
 * of the form; the file that quantised a matrix chose its points from them. In a linear_source a word is
 * eight codes of four bits, of which the first is the lowest. */
#ifndef PLATEAU_TENSOR_CODEBOOK_H
#define PLATEAU_TENSOR_CODEBOOK_H

#include "tensor/tensor.h"

#define CODEBOOK_VALUES 8

/* Numbers of a map, for fast reading; constant. A word has `low_bytes` bytes, then `high_bits` bits:
 *   IQ2: index of 8 bits, signs; IQ3: two indices of 8 bits, signs; IQ1: index of 8 bits.
 *   High bits: those of the index, one for each index of IQ3. The fourth of IQ1 lowers the numbers, which it
 *   raises else.
 * Signs are a byte, whose value lies in `signs`. With IQ2_XXS, IQ2_XS and IQ3_XXS the eighth sign makes their
 * number even, and the byte's highest bit is the index's ninth. */
struct codebook {
    uint32_t low_bytes, high_bits;
    uint32_t mask; /* bits of a word that count */
    bool even_signs;
    const uint64_t *eights; /* IQ1, IQ2: eight numbers of an index, the first in the lowest byte */
    const uint32_t *fours;  /* IQ3: four numbers */
    const uint64_t *signs;  /* [256] bytes of 0 or 0xff for the signs' byte; NULL: IQ1 */
};

/* The first call makes the tables of all; any thread. */
const struct codebook *codebook_of(enum code_map map);

/* The numbers of a word; bits that do not count are not read. */
void codebook_numbers(enum code_map map, uint32_t word, int8_t ret[CODEBOOK_VALUES]);

#endif
