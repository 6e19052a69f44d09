/* matrix_words.c - bytes of a word lie in planes of 16 bytes; its high bits share bytes with other rows'. */
#include "kernel/matrix_words.h"

#include "base/check.h"
#include "kernel/matrix.h"
#include "tensor/codebook.h"

#include <string.h>

/* Where a row has its high bits. */
struct high {
    size_t at;
    uint32_t shift, mask;
};

static struct high high_of(const struct codebook *c, uint32_t lane)
{
    const uint32_t rows = 8 / c->high_bits;
    return (struct high){(size_t)c->low_bytes * MATRIX_PANEL + lane / rows, lane % rows * c->high_bits,
                         (1u << c->high_bits) - 1};
}

uint32_t matrix_word_at(const uint8_t *at, uint32_t lane, enum code_map map)
{
    const struct codebook *c = codebook_of(map);
    uint32_t word = 0;
    ASSERT(lane < MATRIX_PANEL);
    for (uint32_t i = 0; i < c->low_bytes; i++)
        word |= (uint32_t)at[i * MATRIX_PANEL + lane] << 8 * i;
    if (c->high_bits > 0) {
        const struct high h = high_of(c, lane);
        word |= (at[h.at] >> h.shift & h.mask) << 8 * c->low_bytes;
    }
    return word;
}

void matrix_word_set(uint8_t *at, uint32_t lane, enum code_map map, uint32_t word)
{
    const struct codebook *c = codebook_of(map);
    ASSERT(lane < MATRIX_PANEL);
    word &= c->mask;
    for (uint32_t i = 0; i < c->low_bytes; i++)
        at[i * MATRIX_PANEL + lane] = (uint8_t)(word >> 8 * i);
    if (c->high_bits > 0) {
        const struct high h = high_of(c, lane);
        at[h.at] = (uint8_t)((at[h.at] & ~(h.mask << h.shift)) | word >> 8 * c->low_bytes << h.shift);
    }
}

void matrix_words_put(uint8_t *at, uint32_t lane, enum code_map map, const uint8_t *words, uint32_t count)
{
    const size_t octet = MATRIX_PANEL / 8 * code_word_bits(map);
    for (uint32_t i = 0; i < count; i++, at += octet) {
        uint32_t word;
        memcpy(&word, words + 4 * (size_t)i, sizeof(word));
        matrix_word_set(at, lane, map, word);
    }
}
