/* block_codebook.c - each function finds the 32 words of a block of 256 values, and its scales.
 *
 * A stored scale s of three or four bits means 2 s + 1 eighths, quarters or ones (code_scale). */
#include "tensor/block_codebook.h"

#include "base/check.h"
#include "tensor/codebook.h"

#define WORDS 32u

static uint16_t short_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t long_at(const uint8_t *p)
{
    return short_at(p) | (uint32_t)short_at(p + 2) << 16;
}

/* Half `i` of the bytes at `p`. */
static uint32_t nibble_at(const uint8_t *p, uint32_t i)
{
    return p[i / 2] >> i % 2 * 4 & 15u;
}

/* Word `at` becomes eight codes of four bits. */
static void put_word(struct block_parts *ret, uint32_t at, uint32_t word)
{
    ASSERT(at < WORDS && word < 1u << 26);
    for (uint32_t i = 0; i < CODEBOOK_VALUES; i++)
        ret->codes[at * CODEBOOK_VALUES + i] = (uint8_t)(word >> 4 * i & 15);
}

static void put_scale(struct block_parts *ret, uint32_t group, uint32_t stored)
{
    ASSERT(group < BLOCK_FORM_GROUPS_MAX && stored < 16);
    ret->scales[group] = (uint8_t)(2 * stored + 1);
}

/* 32 values: four indices, then four times seven signs and a scale of four bits. */
void block_codebook_iq2_xxs(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    const uint8_t *low = b + f->low_at;
    ASSERT(f->bytes == 66 && f->group == 32);
    ret->half = short_at(b);
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint32_t signs = long_at(low + i / 4 * 8 + 4);
        put_word(ret, i, low[i / 4 * 8 + i % 4] | (signs >> 7 * (i % 4) & 127) << 8);
        put_scale(ret, i / 4, signs >> 28);
    }
}

/* Nine bits of index and seven signs; a scale for 16 values. */
void block_codebook_iq2_xs(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->bytes == 74 && f->group == 16);
    ret->half = short_at(b);
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint32_t stored = short_at(b + f->low_at + 2 * i);
        put_word(ret, i, (stored & 255) | stored >> 9 << 8 | (stored >> 8 & 1) << 15);
        put_scale(ret, i / 2, nibble_at(b + 66, i / 2));
    }
}

/* Low bytes of the indices, eight signs each, two high bits of each index; a scale for 16 values. */
void block_codebook_iq2_s(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->bytes == 82 && f->group == 16);
    ret->half = short_at(b);
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint32_t high = b[66 + i / 4] >> i % 4 * 2 & 3u;
        put_word(ret, i, b[f->low_at + i] | (uint32_t)b[34 + i] << 8 | high << 16);
        put_scale(ret, i / 2, nibble_at(b + 74, i / 2));
    }
}

/* Indices of four values; then for each 32 values four times seven signs and a scale of four bits. */
void block_codebook_iq3_xxs(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->bytes == 98 && f->group == 32);
    ret->half = short_at(b);
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint32_t signs = long_at(b + 66 + i / 4 * 4);
        put_word(ret, i, short_at(b + f->low_at + 2 * i) | (signs >> 7 * (i % 4) & 127) << 16);
        put_scale(ret, i / 4, signs >> 28);
    }
}

/* Low bytes of the indices of four values, a high bit of each, eight signs each; a scale for 32 values. */
void block_codebook_iq3_s(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->bytes == 110 && f->group == 32);
    ret->half = short_at(b);
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint32_t high = b[66 + i / 4] >> i % 4 * 2 & 3u;
        put_word(ret, i, short_at(b + f->low_at + 2 * i) | (uint32_t)b[74 + i] << 16 | high << 24);
        put_scale(ret, i / 4, nibble_at(b + 106, i / 4));
    }
}

/* Low bytes of the indices; 32 values share 16 bits: three high bits of each index, a scale of three bits,
 * and whether the numbers are lowered. */
void block_codebook_iq1_s(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    ASSERT(f->bytes == 50 && f->group == 32);
    ret->half = short_at(b);
    for (uint32_t i = 0; i < WORDS; i++) {
        const uint32_t shared = short_at(b + 34 + i / 4 * 2);
        put_word(ret, i, b[f->low_at + i] | (shared >> i % 4 * 3 & 7) << 8 | shared >> 15 << 11);
        put_scale(ret, i / 4, shared >> 12 & 7);
    }
}

/* Low bytes of the indices; four bits each: high bits, and whether the numbers are lowered. Four times 16
 * bits: scales of three bits for 16 values, and a quarter of the block's. */
void block_codebook_iq1_m(const struct block_form *f, const uint8_t *b, struct block_parts *ret)
{
    const uint8_t *scales = b + 48;
    ASSERT(f->bytes == 56 && f->group == 16);
    ret->half = 0;
    for (uint32_t i = 0; i < 4; i++)
        ret->half |= (uint16_t)(short_at(scales + 2 * i) >> 12 << 4 * i);
    for (uint32_t i = 0; i < WORDS; i++) {
        put_word(ret, i, b[f->low_at + i] | nibble_at(b + 32, i) << 8);
        put_scale(ret, i / 2, short_at(scales + i / 8 * 2) >> i / 2 % 4 * 3 & 7u);
    }
}
