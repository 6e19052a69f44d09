/* matrix.c - packing, by panels: sixteen source rows at a time are spread over the lanes.
 *
 * A load packs every weight of a model once, so the inner loops take a row's eight values as one integer,
 * or copy elements. The tests compare them with the bit-by-bit definition in tensor/. Sources give no
 * alignment. */
#include "kernel/matrix.h"

#include "base/check.h"
#include "kernel/matrix_factor.h"
#include "kernel/matrix_quads.h"

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

/* The narrowest form that holds the scales and biases of all sources unchanged. */
static enum matrix_form qparams_form(const struct linear_source *s, uint32_t count)
{
    enum dtype dtype = s[0].scales.dtype;
    for (uint32_t i = 0; i < count; i++) {
        if (s[i].scales.dtype != dtype || s[i].biases.dtype != dtype)
            return MATRIX_F32;
    }
    return dtype == DTYPE_BF16 ? MATRIX_BF16 : dtype == DTYPE_F16 ? MATRIX_F16 : MATRIX_F32;
}

/* The matrix without its memory. */
static struct matrix shape_of(const struct linear_source *s, uint32_t count)
{
    ASSERT(count > 0 && (count == 1 || s[0].experts == 1));
    struct matrix m = {.form = form_of(&s[0]), .experts = (uint32_t)s[0].experts, .k = (uint32_t)s[0].in};
    if (m.form == MATRIX_AFFINE) {
        m.bits = s[0].bits;
        m.group = s[0].group;
        m.qparams = qparams_form(s, count);
        ASSERT(m.bits >= 2 && m.bits <= 8 && m.bits != 7 && m.group % 8 == 0 && m.group > 0 &&
               m.k % m.group == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(form_of(&s[i]) == m.form && s[i].in == m.k);
        ASSERT(!s[i].affine || (s[i].bits == m.bits && s[i].group == m.group));
        m.n += (uint32_t)s[i].out;
    }
    m.expert_bytes = ROUND_UP(matrix_panels(&m) * matrix_panel_bytes(&m), (size_t)MATRIX_ALIGN);
    return m;
}

size_t matrix_stack_bytes(const struct linear_source *s, uint32_t count)
{
    struct matrix m = shape_of(s, count);
    return m.experts * m.expert_bytes;
}

/* The bytes of one row of a dense source, all its experts counted. */
static const uint8_t *row_bytes(const struct linear_source *s, uint64_t row)
{
    return (const uint8_t *)s->weight.data + row * (s->in * dtype_bytes(s->weight.dtype));
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
    for (uint32_t width = 4; width > 0; width /= 2) {
        if (bits - shift >= width) {
            at = spread_plane(at, values, shift, width);
            shift += width;
        }
    }
}

/* Values of one row's group. With 2, 4 and 8 bits an octet is one plane, whose bytes the checkpoint has as
 * they are. An 8-bit value loses its centre here: as a signed byte it converts in one step less. */
static void spread_octets(uint8_t *at, const uint8_t *row, const struct matrix *m)
{
    if (m->bits == 2 || m->bits == 4 || m->bits == 8) {
        uint8_t centre = m->bits == 8 ? 0x80 : 0;
        for (uint32_t i = 0; i < m->group * m->bits / 8; i++)
            at[(size_t)i * MATRIX_PANEL] = row[i] ^ centre;
        return;
    }
    for (uint32_t octet = 0; octet < m->group / 8; octet++) {
        uint64_t stream = 0;
        uint8_t values[8];
        memcpy(&stream, row + (size_t)octet * m->bits, m->bits);
        for (uint32_t s = 0; s < 8; s++)
            values[s] = (uint8_t)(stream >> s * m->bits & ((1u << m->bits) - 1));
        spread_octet(at + (size_t)octet * MATRIX_PANEL * m->bits, values, m->bits);
    }
}

/* Element `index` of a checkpoint's scales or biases, into lane `lane` of a group's. */
static void spread_side(uint8_t *at, const struct tensor *t, uint64_t index, uint32_t lane,
                        const struct matrix *m)
{
    if (m->qparams == MATRIX_F32) {
        float value = tensor_f32_at(t, index);
        memcpy(at + (size_t)lane * 4, &value, 4);
    } else {
        memcpy(at + (size_t)lane * 2, (const uint8_t *)t->data + index * 2, 2);
    }
}

/* Row `row` of the source, all its experts counted, into lane `lane` of a panel. */
static void spread_affine(uint8_t *panel, const struct linear_source *s, uint64_t row, uint32_t lane,
                          const struct matrix *m)
{
    uint32_t groups = m->k / m->group;
    const uint8_t *values = (const uint8_t *)s->weight.data + row * (m->k * m->bits / 8);
    for (uint32_t g = 0; g < groups; g++) {
        uint8_t *at = panel + g * matrix_group_bytes(m);
        spread_side(at, &s->scales, row * groups + g, lane, m);
        spread_side(at + matrix_qparam_bytes(m), &s->biases, row * groups + g, lane, m);
        const uint8_t *stream = values + (size_t)g * (m->group * m->bits / 8);
        at += 2 * matrix_qparam_bytes(m);
        if (m->form == MATRIX_QUADS)
            matrix_quads_put(at, lane, stream, m->bits, m->group);
        else
            spread_octets(at + lane, stream, m);
    }
}

/* Row `row` of the source, all its experts counted, as row `at` of a matrix without experts. */
static void pack_row(const struct linear_source *s, uint64_t row, uint32_t at, const struct matrix *m)
{
    uint32_t lane = at % MATRIX_PANEL;
    uint8_t *panel = (uint8_t *)(uintptr_t)m->data + at / MATRIX_PANEL * matrix_panel_bytes(m);
    /* Planes are filled by or-ing, and rows past n must be zeros. */
    if (lane == 0)
        memset(panel, 0, matrix_panel_bytes(m));
    if (matrix_has_groups(m))
        spread_affine(panel, s, row, lane, m);
    else
        spread_dense(panel, row_bytes(s, row), lane, m);
}

struct matrix matrix_begin(const struct linear_source *s, uint32_t count, void *memory)
{
    struct matrix m = shape_of(s, count);
    ASSERT((uintptr_t)memory % MATRIX_ALIGN == 0);
    m.data = memory;
    return m;
}

struct matrix matrix_begin_quads(const struct linear_source *s, uint32_t count, void *memory)
{
    struct matrix m = matrix_begin(s, count, memory);
    ASSERT(m.form == MATRIX_AFFINE && m.group % 32 == 0 && m.group <= 128);
    m.form = MATRIX_QUADS;
    return m;
}

void matrix_put_part(const struct matrix *m, uint32_t at, const struct linear_source *rows, uint32_t from,
                     uint32_t count)
{
    ASSERT(m->experts == 1 && rows->experts == 1 && count <= m->n - at && from + count <= rows->out);
    for (uint32_t row = 0; row < count; row++)
        pack_row(rows, from + row, at + row, m);
}

void matrix_put(const struct matrix *m, uint32_t at, const struct linear_source *rows)
{
    matrix_put_part(m, at, rows, 0, (uint32_t)rows->out);
}

static void pack_all(const struct linear_source *s, uint32_t count, const struct matrix *m)
{
    for (uint32_t expert = 0; expert < m->experts; expert++) {
        struct matrix one = matrix_expert(m, expert);
        uint32_t at = 0;
        for (uint32_t i = 0; i < count; i++) {
            for (uint64_t row = 0; row < s[i].out; row++)
                pack_row(&s[i], expert * s[i].out + row, at++, &one);
        }
    }
}

void matrix_pack(const struct linear_source *s, uint32_t count, void *memory, struct matrix *ret)
{
    *ret = matrix_begin(s, count, memory);
    pack_all(s, count, ret);
}

void matrix_pack_quads(const struct linear_source *s, uint32_t count, void *memory, struct matrix *ret)
{
    *ret = matrix_begin_quads(s, count, memory);
    pack_all(s, count, ret);
}

struct matrix matrix_expert(const struct matrix *m, uint32_t expert)
{
    ASSERT(expert < m->experts);
    struct matrix one = *m;
    one.experts = 1;
    one.data = (const char *)m->data + expert * m->expert_bytes;
    return one;
}

/* Where group `group` of a row's panel begins. */
static const uint8_t *group_at(const struct matrix *m, uint32_t row, uint32_t group)
{
    return (const uint8_t *)m->data + row / MATRIX_PANEL * matrix_panel_bytes(m) +
           group * matrix_group_bytes(m);
}

static float qparam_at(const uint8_t *at, uint32_t lane, enum matrix_form form)
{
    uint16_t half;
    float value;
    if (form == MATRIX_F32) {
        memcpy(&value, at + (size_t)lane * 4, 4);
        return value;
    }
    memcpy(&half, at + (size_t)lane * 2, 2);
    return form == MATRIX_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

struct matrix_qparams matrix_plain_qparams(const struct matrix *m, uint32_t row, uint32_t group)
{
    const uint8_t *at = group_at(m, row, group);
    return (struct matrix_qparams){qparam_at(at, row % MATRIX_PANEL, m->qparams),
                                   qparam_at(at + matrix_qparam_bytes(m), row % MATRIX_PANEL, m->qparams)};
}

struct matrix_qparams matrix_qparams(const struct matrix *m, uint32_t row, uint32_t group)
{
    struct matrix_qparams q = matrix_plain_qparams(m, row, group);
    q.bias = fmaf(q.scale, (float)(1u << (m->bits - 1)), q.bias);
    return q;
}

void matrix_codes(const struct matrix *m, uint32_t row, uint32_t group, uint8_t *ret)
{
    ASSERT(m->form == MATRIX_QUADS);
    matrix_quads_get(group_at(m, row, group) + 2 * matrix_qparam_bytes(m), row % MATRIX_PANEL, m->bits,
                     m->group, ret);
}

static float factor_affine(const struct matrix *m, uint32_t row, uint32_t k)
{
    const uint8_t *at = group_at(m, row, k / m->group) + 2 * matrix_qparam_bytes(m) +
                        (size_t)(k % m->group / 8) * MATRIX_PANEL * m->bits + row % MATRIX_PANEL;
    uint32_t value = 0, shift = 0, step = k % 8;
    for (uint32_t width = 8; width > 0; width /= 2) {
        uint32_t per_byte = 8 / width;
        if (m->bits - shift < width)
            continue;
        value |= (at[step / per_byte * 16] >> step % per_byte * width & ((1u << width) - 1)) << shift;
        at += 8 / per_byte * 16;
        shift += width;
    }
    return m->bits == 8 ? (float)(int8_t)value : (float)((int)value - (1 << (m->bits - 1)));
}

float matrix_factor(const struct matrix *m, uint32_t row, uint32_t k)
{
    const uint8_t *panel = (const uint8_t *)m->data + row / MATRIX_PANEL * matrix_panel_bytes(m);
    size_t element = (size_t)k * MATRIX_PANEL + row % MATRIX_PANEL;
    switch (m->form) {
    case MATRIX_BF16:
        return bf16_to_f32(((const uint16_t *)panel)[element]);
    case MATRIX_F16:
        return f16_to_f32(((const uint16_t *)panel)[element]);
    case MATRIX_F32:
        return ((const float *)panel)[element];
    default:
        return factor_affine(m, row, k);
    }
}

/* One row's eight values of an octet whose planes begin at `at`, the row's byte of the first one. */
static void octet_values(const uint8_t *at, uint32_t bits, int values[8])
{
    uint32_t shift = 0;
    for (uint32_t s = 0; s < 8; s++)
        values[s] = bits == 8 ? (int8_t)at[s * 16] : -(1 << (bits - 1));
    for (uint32_t width = 4; width > 0 && bits < 8; width /= 2) {
        uint32_t per_byte = 8 / width, mask = (1u << width) - 1;
        if (bits - shift < width)
            continue;
        for (uint32_t s = 0; s < 8; s++)
            values[s] += (int)((at[s / per_byte * 16] >> s % per_byte * width & mask) << shift);
        at += 8 / per_byte * 16;
        shift += width;
    }
}

static void affine_row(const struct matrix *m, uint32_t row, float *ret)
{
    for (uint32_t g = 0; g < m->k / m->group; g++) {
        struct matrix_qparams q = matrix_qparams(m, row, g);
        const uint8_t *at = group_at(m, row, g) + 2 * matrix_qparam_bytes(m) + row % MATRIX_PANEL;
        for (uint32_t octet = 0; octet < m->group / 8; octet++, ret += 8) {
            int values[8];
            octet_values(at + (size_t)octet * MATRIX_PANEL * m->bits, m->bits, values);
            for (uint32_t s = 0; s < 8; s++)
                ret[s] = fmaf(q.scale, (float)values[s], q.bias);
        }
    }
}

/* The operations of affine_row: an embedding does not depend on the layout. */
static void quads_row(const struct matrix *m, uint32_t row, float *ret)
{
    uint8_t codes[128];
    for (uint32_t g = 0; g < m->k / m->group; g++) {
        struct matrix_qparams q = matrix_qparams(m, row, g);
        matrix_codes(m, row, g, codes);
        for (uint32_t i = 0; i < m->group; i++)
            *ret++ = fmaf(q.scale, (float)((int)codes[i] - (1 << (m->bits - 1))), q.bias);
    }
}

void matrix_row(const struct matrix *m, uint32_t row, float *ret)
{
    ASSERT(row < m->n);
    if (m->form == MATRIX_QUADS) {
        quads_row(m, row, ret);
        return;
    }
    if (m->form == MATRIX_AFFINE) {
        affine_row(m, row, ret);
        return;
    }
    for (uint32_t k = 0; k < m->k; k++)
        ret[k] = matrix_factor(m, row, k);
}

/* ---- copying ---- */

/* One lane's elements of `bytes` each, `count` of them, a panel's width apart. */
static void copy_lane(uint8_t *to, uint32_t to_lane, const uint8_t *from, uint32_t from_lane, size_t count,
                      size_t bytes)
{
    to += to_lane * bytes;
    from += from_lane * bytes;
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * MATRIX_PANEL * bytes, from + i * MATRIX_PANEL * bytes, bytes);
}

void matrix_copy_row(const struct matrix *to, uint32_t to_row, const struct matrix *from, uint32_t from_row)
{
    ASSERT(to->form == from->form && to->k == from->k && to->bits == from->bits && to->group == from->group &&
           to->qparams == from->qparams && to_row < to->n && from_row < from->n);
    size_t panel = matrix_panel_bytes(from), group, qparam_bytes;
    uint32_t to_lane = to_row % MATRIX_PANEL, from_lane = from_row % MATRIX_PANEL;
    uint8_t *dst = (uint8_t *)(uintptr_t)to->data + to_row / MATRIX_PANEL * panel;
    const uint8_t *src = (const uint8_t *)from->data + from_row / MATRIX_PANEL * panel;
    if (!matrix_has_groups(from)) {
        copy_lane(dst, to_lane, src, from_lane, from->k, from->form == MATRIX_F32 ? 4 : 2);
        return;
    }
    group = matrix_group_bytes(from);
    qparam_bytes = matrix_qparam_bytes(from) / MATRIX_PANEL;
    for (uint32_t g = 0; g < from->k / from->group; g++, dst += group, src += group) {
        copy_lane(dst, to_lane, src, from_lane, 2, qparam_bytes);
        /* Planes of any width are lines of a byte per row, or of a quad. */
        size_t at = 2 * matrix_qparam_bytes(from), bytes = from->form == MATRIX_QUADS ? 4 : 1;
        copy_lane(dst + at, to_lane, src + at, from_lane, (group - at) / (MATRIX_PANEL * bytes), bytes);
    }
}
