/* matrix_quads.c - a quad is a word of four codes, one a byte. A plane's field of all four is one shift and
 * one mask of that word, so a line takes one operation per quad. */
#include "kernel/matrix_quads.h"

#include "base/check.h"

#include <string.h>

enum { UNIT_STEPS = 32, UNIT_QUADS = 8, LINE_BYTES = 64 };

/* A plane of `width` bits of a unit: `width` lines, and field quad / width of line quad % width. */
struct plane {
    uint32_t width, shift, mask, at;
};

/* Planes of `bits`, the lowest bits first. Returns their number. */
static uint32_t planes_of(uint32_t bits, struct plane ret[2])
{
    uint32_t count = 0, shift = 0;
    for (uint32_t width = 8; width > 0; width /= 2) {
        if (bits - shift < width)
            continue;
        ret[count++] = (struct plane){width, shift, ((1u << width) - 1) * 0x01010101u, shift * LINE_BYTES};
        shift += width;
    }
    ASSERT(shift == bits);
    return count;
}

/* Eight codes from their `bits` bytes: two quads. */
static void read_codes(const uint8_t *stream, uint32_t bits, uint32_t ret[2])
{
    uint64_t all = 0;
    uint8_t codes[8];
    memcpy(&all, stream, bits);
    if (bits == 8) {
        memcpy(ret, &all, 8);
        return;
    }
    for (uint32_t i = 0; i < 8; i++)
        codes[i] = (uint8_t)(all >> i * bits & ((1u << bits) - 1));
    memcpy(ret, codes, 8);
}

static uint8_t *line_of(uint8_t *unit, const struct plane *p, uint32_t lane, uint32_t quad)
{
    return unit + p->at + (size_t)(quad % p->width) * LINE_BYTES + (size_t)lane * 4;
}

/* Four codes of four bits, a byte each. */
static uint32_t spread_nibbles(uint32_t two)
{
    two = (two | two << 8) & 0x00ff00ffu;
    return (two | two << 4) & 0x0f0f0f0fu;
}

/* A unit of four bits is one plane of four lines, whose words have quads q and q + 4. */
static void put_nibbles(uint8_t *unit, uint32_t lane, const uint8_t *stream)
{
    for (uint32_t line = 0; line < 4; line++) {
        uint16_t low, high;
        memcpy(&low, stream + (size_t)line * 2, 2);
        memcpy(&high, stream + 8 + (size_t)line * 2, 2);
        uint32_t word = spread_nibbles(low) | spread_nibbles(high) << 4;
        memcpy(unit + (size_t)line * LINE_BYTES + (size_t)lane * 4, &word, 4);
    }
}

void matrix_quads_put(uint8_t *units, uint32_t lane, const uint8_t *stream, uint32_t bits, uint32_t steps)
{
    struct plane planes[2];
    if (bits == 4) {
        for (uint32_t k = 0; k < steps; k += UNIT_STEPS)
            put_nibbles(units + (size_t)k / UNIT_STEPS * 4 * LINE_BYTES, lane, stream + k / 2);
        return;
    }
    uint32_t count = planes_of(bits, planes);
    for (uint32_t k = 0; k < steps; k += UNIT_STEPS, units += (size_t)bits * LINE_BYTES) {
        uint32_t quads[UNIT_QUADS];
        for (uint32_t i = 0; i < UNIT_QUADS; i += 2)
            read_codes(stream + (size_t)(k / 8 + i / 2) * bits, bits, quads + i);
        for (uint32_t i = 0; i < count; i++) {
            const struct plane *p = &planes[i];
            for (uint32_t quad = 0; quad < UNIT_QUADS; quad++) {
                uint8_t *at = line_of(units, p, lane, quad);
                uint32_t word;
                memcpy(&word, at, 4);
                word |= (quads[quad] >> p->shift & p->mask) << quad / p->width * p->width;
                memcpy(at, &word, 4);
            }
        }
    }
}

void matrix_quads_get(const uint8_t *units, uint32_t lane, uint32_t bits, uint32_t steps, uint8_t *ret)
{
    struct plane planes[2];
    uint32_t count = planes_of(bits, planes);
    for (uint32_t k = 0; k < steps; k += UNIT_STEPS, units += (size_t)bits * LINE_BYTES) {
        for (uint32_t quad = 0; quad < UNIT_QUADS; quad++) {
            uint32_t codes = 0;
            for (uint32_t i = 0; i < count; i++) {
                const struct plane *p = &planes[i];
                uint32_t word;
                memcpy(&word, line_of((uint8_t *)(uintptr_t)units, p, lane, quad), 4);
                codes |= (word >> quad / p->width * p->width & p->mask) << p->shift;
            }
            memcpy(ret + k + (size_t)quad * 4, &codes, 4);
        }
    }
}
