/* matrix.c - packing, by panels: sixteen source rows at a time are spread over the lanes.
 *
 * A load packs every weight of a model once, so the inner loops take a row's eight values as one integer, or copy
 * elements; the bit-by-bit definition in tensor/ is what the tests compare them with. Sources give no alignment. */
#include "kernel/matrix.h"

#include "base/check.h"
#include "kernel/matrix_factor.h"

#include <math.h>

#define MATRIX_ALIGN 64

static enum matrix_form form_of(const struct linear_source *s)
{
    if (s->affine)
        return MATRIX_AFFINE;
    switch (s->weight.dtype) {
    case DTYPE_BF16:
        return MATRIX_BF16;
    case DTYPE_F16:
        return MATRIX_F16;
    default:
        ASSERT(s->weight.dtype == DTYPE_F32);
        return MATRIX_F32;
    }
}

static size_t element_bytes(enum matrix_form form)
{
    return form == MATRIX_F32 ? 4 : 2;
}

static size_t panel_bytes(const struct matrix *m)
{
    if (m->form == MATRIX_AFFINE)
        return (size_t)(m->k / 8) * 16 * m->bits;
    return (size_t)m->k * MATRIX_PANEL * element_bytes(m->form);
}

/* The matrix without its memory. */
static struct matrix shape_of(const struct linear_source *s, uint32_t count)
{
    ASSERT(count > 0 && (count == 1 || s[0].experts == 1));
    struct matrix m = {.form = form_of(&s[0]), .experts = (uint32_t)s[0].experts, .k = (uint32_t)s[0].in};
    if (m.form == MATRIX_AFFINE) {
        m.bits = s[0].bits;
        m.group = s[0].group;
        ASSERT(m.bits >= 2 && m.bits <= 8 && m.bits != 7 && m.group % 8 == 0 && m.group > 0 &&
               m.k % m.group == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(form_of(&s[i]) == m.form && s[i].in == m.k);
        ASSERT(!s[i].affine || (s[i].bits == m.bits && s[i].group == m.group));
        m.n += (uint32_t)s[i].out;
    }
    m.expert_data_bytes = ROUND_UP(matrix_panels(&m) * panel_bytes(&m), (size_t)MATRIX_ALIGN);
    if (m.form == MATRIX_AFFINE)
        m.expert_scales = (size_t)matrix_panels(&m) * (m.k / m.group) * MATRIX_PANEL;
    return m;
}

size_t matrix_stack_bytes(const struct linear_source *s, uint32_t count)
{
    struct matrix m = shape_of(s, count);
    return m.experts * (m.expert_data_bytes + 2 * m.expert_scales * sizeof(float));
}

size_t matrix_packed_bytes(const struct linear_source *s)
{
    return matrix_stack_bytes(s, 1);
}

/* The bytes of one row of the checkpoint: `expert` and `row` count within the source. */
static const uint8_t *row_bytes(const struct linear_source *s, uint64_t expert, uint64_t row)
{
    size_t bytes = s->affine ? s->in * s->bits / 8 : s->in * dtype_bytes(s->weight.dtype);
    return (const uint8_t *)s->weight.data + (expert * s->out + row) * bytes;
}

static void spread_dense(uint8_t *panel, const uint8_t *row, uint32_t lane, const struct matrix *m)
{
    if (m->form == MATRIX_F32) {
        for (uint32_t k = 0; k < m->k; k++)
            memcpy(panel + ((size_t)k * MATRIX_PANEL + lane) * 4, row + (size_t)k * 4, 4);
    } else {
        for (uint32_t k = 0; k < m->k; k++)
            memcpy(panel + ((size_t)k * MATRIX_PANEL + lane) * 2, row + (size_t)k * 2, 2);
    }
}

/* Puts `width` bits of each of eight values into the plane at `at`; returns the plane's end. */
static uint8_t *spread_plane(uint8_t *at, const uint8_t *values, uint32_t shift, uint32_t width)
{
    uint32_t per_byte = 8 / width, mask = (1u << width) - 1;
    for (uint32_t s = 0; s < 8; s++)
        at[s / per_byte * 16] |= (uint8_t)((values[s] >> shift & mask) << s % per_byte * width);
    return at + 8 / per_byte * 16;
}

static void spread_octet(uint8_t *at, const uint8_t *values, uint32_t bits)
{
    uint32_t shift = 0;
    for (uint32_t width = 8; width > 0; width /= 2) {
        if (bits - shift >= width) {
            at = spread_plane(at, values, shift, width);
            shift += width;
        }
    }
}

static void spread_affine(uint8_t *panel, const uint8_t *row, uint32_t lane, const struct matrix *m)
{
    for (uint32_t octet = 0; octet < m->k / 8; octet++) {
        uint64_t stream = 0;
        uint8_t values[8];
        memcpy(&stream, row + (size_t)octet * m->bits, m->bits);
        for (uint32_t s = 0; s < 8; s++)
            values[s] = (uint8_t)(stream >> s * m->bits & ((1u << m->bits) - 1));
        spread_octet(panel + (size_t)octet * 16 * m->bits + lane, values, m->bits);
    }
}

/* Scales and centred biases of one row; `at` is the lane in the panel's first group. */
static void spread_scales(const struct linear_source *s, uint64_t row, float *scales, float *biases)
{
    uint32_t groups = (uint32_t)(s->in / s->group);
    float centre = (float)(1u << (s->bits - 1));
    for (uint32_t g = 0; g < groups; g++) {
        float scale = tensor_f32_at(&s->scales, row * groups + g);
        scales[(size_t)g * MATRIX_PANEL] = scale;
        /* scale * centre is exact: one rounding. */
        biases[(size_t)g * MATRIX_PANEL] = tensor_f32_at(&s->biases, row * groups + g) + scale * centre;
    }
}

static void pack_row(const struct linear_source *s, uint32_t expert, uint32_t row, uint32_t at,
                     const struct matrix *m)
{
    uint32_t panel = at / MATRIX_PANEL, lane = at % MATRIX_PANEL;
    uint8_t *data = (uint8_t *)m->data + expert * m->expert_data_bytes + panel * panel_bytes(m);
    if (m->form != MATRIX_AFFINE) {
        spread_dense(data, row_bytes(s, expert, row), lane, m);
        return;
    }
    size_t scale = expert * m->expert_scales + (size_t)panel * (m->k / m->group) * MATRIX_PANEL + lane;
    spread_affine(data, row_bytes(s, expert, row), lane, m);
    spread_scales(s, expert * s->out + row, (float *)m->scales + scale, (float *)m->biases + scale);
}

void matrix_pack(const struct linear_source *s, uint32_t count, void *memory, struct matrix *ret)
{
    struct matrix m = shape_of(s, count);
    ASSERT((uintptr_t)memory % MATRIX_ALIGN == 0);
    m.data = memory;
    if (m.form == MATRIX_AFFINE) {
        m.scales = (const float *)((const char *)memory + m.experts * m.expert_data_bytes);
        m.biases = m.scales + m.experts * m.expert_scales;
    }
    /* Planes are filled by or-ing, and rows past n must be zeros. */
    memset(memory, 0, matrix_stack_bytes(s, count));
    for (uint32_t expert = 0; expert < m.experts; expert++) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t row = 0; row < s[i].out; row++)
                pack_row(&s[i], expert, row, at++, &m);
        }
    }
    *ret = m;
}

struct matrix matrix_expert(const struct matrix *m, uint32_t expert)
{
    ASSERT(expert < m->experts);
    struct matrix one = *m;
    one.experts = 1;
    one.data = (const char *)m->data + expert * m->expert_data_bytes;
    if (m->form == MATRIX_AFFINE) {
        one.scales += expert * m->expert_scales;
        one.biases += expert * m->expert_scales;
    }
    return one;
}

static float factor_affine(const struct matrix *m, const uint8_t *panel, uint32_t lane, uint32_t k)
{
    const uint8_t *at = panel + (size_t)(k / 8) * 16 * m->bits + lane;
    uint32_t value = 0, shift = 0;
    for (uint32_t width = 8; width > 0; width /= 2) {
        uint32_t per_byte = 8 / width, step = k % 8;
        if (m->bits - shift < width)
            continue;
        value |= (at[step / per_byte * 16] >> step % per_byte * width & ((1u << width) - 1)) << shift;
        at += 8 / per_byte * 16;
        shift += width;
    }
    return (float)((int)value - (1 << (m->bits - 1)));
}

float matrix_factor(const struct matrix *m, uint32_t row, uint32_t k)
{
    const uint8_t *panel = (const uint8_t *)m->data + row / MATRIX_PANEL * panel_bytes(m);
    size_t element = (size_t)k * MATRIX_PANEL + row % MATRIX_PANEL;
    switch (m->form) {
    case MATRIX_BF16:
        return bf16_to_f32(((const uint16_t *)panel)[element]);
    case MATRIX_F16:
        return f16_to_f32(((const uint16_t *)panel)[element]);
    case MATRIX_F32:
        return ((const float *)panel)[element];
    default:
        return factor_affine(m, panel, row % MATRIX_PANEL, k);
    }
}

void matrix_row(const struct matrix *m, uint32_t row, float *ret)
{
    ASSERT(row < m->n);
    uint32_t groups = m->form == MATRIX_AFFINE ? m->k / m->group : 0;
    size_t first = (size_t)(row / MATRIX_PANEL) * groups * MATRIX_PANEL + row % MATRIX_PANEL;
    for (uint32_t k = 0; k < m->k; k++) {
        ret[k] = matrix_factor(m, row, k);
        if (m->form == MATRIX_AFFINE) {
            size_t scale = first + (size_t)(k / m->group) * MATRIX_PANEL;
            ret[k] = fmaf(m->scales[scale], ret[k], m->biases[scale]);
        }
    }
}
