/* matrix.c - packing, by panels: sixteen source rows at a time are spread over the lanes.
 *
 * A load packs every weight of a model once, so the inner loops take a row's eight values as one integer,
 * or copy elements. The tests compare them with the bit-by-bit definition in tensor/. Sources give no
 * alignment. */
#include "kernel/matrix.h"

#include "base/check.h"
#include "kernel/matrix_factor.h"
#include "kernel/matrix_quads.h"
#include "kernel/matrix_words.h"
#include "tensor/codebook.h"

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

static enum matrix_form qparam_form_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return MATRIX_BF16;
    case DTYPE_F16:
        return MATRIX_F16;
    case DTYPE_F8_E8M0:
        return MATRIX_E8M0;
    case DTYPE_F8_E4M3:
        return MATRIX_E4M3;
    case DTYPE_I8:
        return MATRIX_I8;
    default:
        ASSERT(dtype == DTYPE_F32);
        return MATRIX_F32;
    }
}

/* The narrowest form that holds the scales and biases of all sources unchanged. */
static enum matrix_form qparams_form(const struct linear_source *s, uint32_t count)
{
    enum matrix_form form = qparam_form_of(s[0].scales.dtype);
    if (code_is_word(s[0].codes))
        return MATRIX_ODD4;
    for (uint32_t i = 0; i < count; i++) {
        bool same = s[i].scales.dtype == s[0].scales.dtype &&
                    (s[i].bias_kind != BIASES_STORED || s[i].biases.dtype == s[0].scales.dtype);
        ASSERT(same || form <= MATRIX_F32);
        if (!same)
            return MATRIX_F32;
    }
    return form;
}

/* A dense source may have been quantised in its file, and may still have bits and a group. */
static bool groups_are_alike(const struct linear_source *x, const struct linear_source *y)
{
    if (!x->affine || !y->affine)
        return x->affine == y->affine;
    return x->bits == y->bits && x->group == y->group && x->codes == y->codes &&
           x->bias_kind == y->bias_kind && x->super == y->super;
}

/* The matrix without its memory. */
static struct matrix shape_of(const struct linear_source *s, uint32_t count)
{
    ASSERT(count > 0 && (count == 1 || s[0].experts == 1));
    struct matrix m = {.form = form_of(&s[0]), .experts = (uint32_t)s[0].experts, .k = (uint32_t)s[0].in};
    if (m.form == MATRIX_AFFINE) {
        m.bits = s[0].bits;
        m.group = s[0].group;
        m.codes = s[0].codes;
        m.bias_kind = s[0].bias_kind;
        m.super = s[0].super;
        m.qparams = qparams_form(s, count);
        ASSERT(m.bits >= 2 && m.bits <= 8 && m.bits != 7 && m.group % 8 == 0 && m.group > 0 &&
               m.k % m.group == 0);
        ASSERT(m.codes == CODES_WHOLE ||
               (m.bias_kind == BIASES_CENTRED && m.bits == (m.codes == CODES_E4M3 ? 8 : 4)));
        ASSERT(m.super == 0 || (m.k % m.super == 0 && m.super % m.group == 0));
        ASSERT((m.qparams == MATRIX_I8) <= (m.super > 0) && (m.super == 0 || m.qparams >= MATRIX_E4M3));
        ASSERT((m.qparams == MATRIX_ODD4) == code_is_word(m.codes));
        ASSERT(m.qparams < MATRIX_E8M0 || m.qparams == MATRIX_I8 || m.bias_kind == BIASES_CENTRED);
    }
    for (uint32_t i = 0; i < count; i++) {
        ASSERT(form_of(&s[i]) == m.form && s[i].in == m.k && groups_are_alike(&s[i], &s[0]));
        m.n += (uint32_t)s[i].out;
    }
    m.expert_bytes = ROUND_UP(matrix_panels(&m) * matrix_panel_bytes(&m), (size_t)MATRIX_ALIGN);
    return m;
}

static bool fits_paired_groups(const struct linear_source *s)
{
    return s->group == 16 && s->in % 32 == 0 && s->super % 32 == 0 &&
           (s->codes == CODES_E2M1 ||
            (s->codes == CODES_WHOLE && (s->bits == 2 || s->bits == 3 || s->bits == 6)));
}

bool matrix_fits_quads(const struct linear_source *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!s[i].affine || s[i].codes >= CODES_E4M3 || s[i].group > 128)
            return false;
        if (s[i].group % 32 != 0 && !fits_paired_groups(&s[i]))
            return false;
    }
    return true;
}

bool matrix_fits_pairs(const struct linear_source *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const enum dtype d = s[i].weight.dtype;
        if (s[i].affine || (d != DTYPE_BF16 && d != DTYPE_F16) || s[i].in % MATRIX_PAIRS_TILE != 0)
            return false;
    }
    return true;
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

/* Pairs of k steps of a row lie together. */
static void spread_pairs(uint8_t *panel, const uint8_t *row, uint32_t lane, const struct matrix *m,
                         enum dtype dtype)
{
    uint8_t *at = panel + (size_t)lane * 4;
    for (uint32_t k = 0; k < m->k; k += 2, at += (size_t)MATRIX_PANEL * 4) {
        uint16_t pair[2];
        memcpy(pair, row + (size_t)k * 2, 4);
        for (uint32_t i = 0; dtype == DTYPE_F16 && i < 2; i++)
            pair[i] = bf16_from_f32(f16_to_f32(pair[i]));
        memcpy(at, pair, 4);
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
    ASSERT(!code_is_word(m->codes));
    if (m->bits == 2 || m->bits == 4 || m->bits == 8) {
        uint8_t centre = m->bits == 8 && m->codes == CODES_WHOLE ? 0x80 : 0;
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

/* Elements [index, index + count) of scales or biases into lane `lane` of as many groups of 16. */
static void copy_side(uint8_t *at, const struct tensor *t, uint64_t index, uint32_t count, uint32_t lane)
{
    size_t bytes = dtype_bytes(t->dtype);
    for (uint32_t i = 0; i < count; i++)
        memcpy(at + (i * MATRIX_PANEL + lane) * bytes, (const uint8_t *)t->data + (index + i) * bytes, bytes);
}

/* Copies one element of scales or biases into a lane; sources of several dtypes make it F32. */
static void spread_side(uint8_t *at, const struct tensor *t, uint64_t index, uint32_t lane,
                        const struct matrix *m)
{
    if (m->qparams == MATRIX_ODD4) {
        const uint32_t stored = ((const uint8_t *)t->data)[index] / 2u & 15;
        at[lane % 8] |= (uint8_t)(stored << lane / 8 * 4);
    } else if (m->qparams == MATRIX_F32) {
        float value = tensor_f32_at(t, index);
        memcpy(at + (size_t)lane * 4, &value, 4);
    } else {
        copy_side(at, t, index, 1, lane);
    }
}

/* Scale, and bias or zero point, of a group of row `row` of the source. */
static void spread_sides(uint8_t *at, const struct linear_source *s, uint64_t row, uint32_t group,
                         uint32_t lane, const struct matrix *m)
{
    uint64_t index = row * (m->k / m->group) + group;
    uint8_t *biases = at + matrix_qparam_bytes(m);
    spread_side(at, &s->scales, index, lane, m);
    if (m->bias_kind == BIASES_STORED)
        spread_side(biases, &s->biases, index, lane, m);
    else if (m->bias_kind == BIASES_ZEROS)
        biases[lane] = ((const uint8_t *)s->biases.data)[index];
}

/* Row `row` of the source, all its experts counted, into lane `lane` of a panel. */
static void spread_affine(uint8_t *panel, const struct linear_source *s, uint64_t row, uint32_t lane,
                          const struct matrix *m)
{
    uint32_t groups = m->k / m->group;
    const uint8_t *values = (const uint8_t *)s->weight.data + row * (m->k * m->bits / 8);
    for (uint32_t g = 0; g < groups; g++) {
        uint8_t *at = panel + matrix_group_offset(m, g);
        if (m->super && g % matrix_super_groups(m) == 0) {
            uint32_t each = m->bias_kind == BIASES_STORED ? 2 : 1;
            copy_side(at - matrix_super_bytes(m), &s->supers,
                      (row * (m->k / m->super) + g / matrix_super_groups(m)) * each, each, lane);
        }
        spread_sides(at, s, row, g, lane, m);
        const uint8_t *stream = values + (size_t)g * (m->group * m->bits / 8);
        uint8_t *codes = panel + matrix_codes_offset(m, g);
        if (code_is_word(m->codes))
            matrix_words_put(codes, lane, m->codes, stream, m->group / 8);
        else if (m->form == MATRIX_AFFINE)
            spread_octets(codes + lane, stream, m);
        else if (!matrix_pairs_groups(m))
            matrix_quads_put(codes, lane, stream, m->bits, m->group);
        else if (g % 2 == 0)
            matrix_quads_put(codes, lane, stream, m->bits, 2 * m->group);
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
    else if (m->form == MATRIX_PAIRS)
        spread_pairs(panel, row_bytes(s, row), lane, m, s->weight.dtype);
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
    ASSERT(m.form == MATRIX_AFFINE && matrix_fits_quads(s, count));
    m.form = MATRIX_QUADS;
    return m;
}

struct matrix matrix_begin_pairs(const struct linear_source *s, uint32_t count, void *memory)
{
    struct matrix m = matrix_begin(s, count, memory);
    ASSERT(matrix_fits_pairs(s, count));
    m.form = MATRIX_PAIRS;
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

void matrix_pack_pairs(const struct linear_source *s, uint32_t count, void *memory, struct matrix *ret)
{
    *ret = matrix_begin_pairs(s, count, memory);
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
           matrix_group_offset(m, group);
}

static float qparam_at(const uint8_t *at, uint32_t lane, enum matrix_form form)
{
    if (form == MATRIX_ODD4)
        return (float)(2 * (at[lane % 8] >> lane / 8 * 4 & 15) + 1);
    static const enum dtype dtypes[] = {
        [MATRIX_BF16] = DTYPE_BF16,    [MATRIX_F16] = DTYPE_F16,      [MATRIX_F32] = DTYPE_F32,
        [MATRIX_E8M0] = DTYPE_F8_E8M0, [MATRIX_E4M3] = DTYPE_F8_E4M3, [MATRIX_I8] = DTYPE_I8};
    const struct tensor t = {.dtype = dtypes[form], .data = at};
    return tensor_f32_at(&t, lane);
}

/* The upper scale of a group (0), or its bias (1). */
static float super_at(const struct matrix *m, uint32_t row, uint32_t group, uint32_t which)
{
    const uint8_t *at = group_at(m, row, group - group % matrix_super_groups(m)) - matrix_super_bytes(m);
    return qparam_at(at, which * MATRIX_PANEL + row % MATRIX_PANEL,
                     m->qparams == MATRIX_E4M3 ? MATRIX_F32 : MATRIX_F16);
}

/* Codes were lowered by `centre`; 0: those of quads, which are not. */
static struct matrix_qparams sides_of(const struct matrix *m, uint32_t row, uint32_t group, float centre)
{
    const uint8_t *at = group_at(m, row, group), *biases = at + matrix_qparam_bytes(m);
    uint32_t lane = row % MATRIX_PANEL;
    struct matrix_qparams q = {qparam_at(at, lane, m->qparams), 0};
    if (m->super)
        q.scale = super_at(m, row, group, 0) * q.scale;
    q.scale *= code_scale(m->codes);
    if (m->bias_kind == BIASES_ZEROS) {
        q.bias = (centre - (float)biases[lane]) * q.scale;
    } else if (m->bias_kind == BIASES_STORED) {
        q.bias = qparam_at(biases, lane, m->qparams);
        if (m->super)
            q.bias = -super_at(m, row, group, 1) * q.bias;
        q.bias = fmaf(q.scale, centre, q.bias);
    } else if (m->codes == CODES_WHOLE || centre == 0) {
        q.bias = (centre - (float)matrix_centre(m->codes, m->bits)) * q.scale;
    }
    return q;
}

struct matrix_qparams matrix_plain_qparams(const struct matrix *m, uint32_t row, uint32_t group)
{
    return sides_of(m, row, group, 0);
}

struct matrix_qparams matrix_qparams(const struct matrix *m, uint32_t row, uint32_t group)
{
    return sides_of(m, row, group, (float)(1u << (m->bits - 1)));
}

void matrix_codes(const struct matrix *m, uint32_t row, uint32_t group, uint8_t *ret)
{
    ASSERT(m->form == MATRIX_QUADS && m->group <= 128);
    const bool pairs = matrix_pairs_groups(m);
    const uint8_t *at =
        (const uint8_t *)m->data + row / MATRIX_PANEL * matrix_panel_bytes(m) + matrix_codes_offset(m, group);
    uint8_t codes[128];
    matrix_quads_get(at, row % MATRIX_PANEL, m->bits, pairs ? 2 * m->group : m->group, codes);
    memcpy(ret, codes + (pairs ? group % 2 * m->group : 0), m->group);
    for (uint32_t i = 0; m->codes != CODES_WHOLE && i < m->group; i++)
        ret[i] = (uint8_t)((int)code_factor(m->codes, ret[i]) + (int)matrix_centre(m->codes, m->bits));
}

/* Returns the number by which a stored code multiplies the input. */
static float factor_of(const struct matrix *m, uint32_t code)
{
    if (m->codes != CODES_WHOLE)
        return code_factor(m->codes, code);
    return m->bits == 8 ? (float)(int8_t)code : (float)((int)code - (1 << (m->bits - 1)));
}

static float factor_affine(const struct matrix *m, uint32_t row, uint32_t k)
{
    const uint8_t *at =
        group_at(m, row, k / m->group) + matrix_sides_bytes(m) + k % m->group / 8 * matrix_octet_bytes(m);
    if (code_is_word(m->codes)) {
        int8_t numbers[CODEBOOK_VALUES];
        codebook_numbers(m->codes, matrix_word_at(at, row % MATRIX_PANEL, m->codes), numbers);
        return numbers[k % 8];
    }
    at += row % MATRIX_PANEL;
    uint32_t value = 0, shift = 0, step = k % 8;
    for (uint32_t width = 8; width > 0; width /= 2) {
        uint32_t per_byte = 8 / width;
        if (m->bits - shift < width)
            continue;
        value |= (at[step / per_byte * 16] >> step % per_byte * width & ((1u << width) - 1)) << shift;
        at += 8 / per_byte * 16;
        shift += width;
    }
    return factor_of(m, value);
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
    case MATRIX_PAIRS:
        element = ((size_t)k / 2 * MATRIX_PANEL + row % MATRIX_PANEL) * 2 + k % 2;
        return bf16_to_f32(((const uint16_t *)panel)[element]);
    default:
        return factor_affine(m, row, k);
    }
}

/* One row's eight codes of an octet whose planes begin at `at`, the row's byte of the first one. */
static void octet_codes(const uint8_t *at, uint32_t bits, uint32_t codes[8])
{
    uint32_t shift = 0;
    for (uint32_t s = 0; s < 8; s++)
        codes[s] = bits == 8 ? at[s * 16] : 0;
    for (uint32_t width = 4; width > 0 && bits < 8; width /= 2) {
        uint32_t per_byte = 8 / width, mask = (1u << width) - 1;
        if (bits - shift < width)
            continue;
        for (uint32_t s = 0; s < 8; s++)
            codes[s] |= (at[s / per_byte * 16] >> s % per_byte * width & mask) << shift;
        at += 8 / per_byte * 16;
        shift += width;
    }
}

/* The factors of row `lane` in an octet. */
static void octet_factors(const struct matrix *m, const uint8_t *at, uint32_t lane, float ret[8])
{
    uint32_t codes[8];
    int8_t numbers[CODEBOOK_VALUES];
    const bool words = code_is_word(m->codes);
    if (words)
        codebook_numbers(m->codes, matrix_word_at(at, lane, m->codes), numbers);
    else
        octet_codes(at + lane, m->bits, codes);
    for (uint32_t s = 0; s < 8; s++)
        ret[s] = words ? numbers[s] : factor_of(m, codes[s]);
}

static void affine_row(const struct matrix *m, uint32_t row, float *ret)
{
    float factors[8];
    for (uint32_t g = 0; g < m->k / m->group; g++) {
        struct matrix_qparams q = matrix_qparams(m, row, g);
        const uint8_t *at = group_at(m, row, g) + matrix_sides_bytes(m);
        for (uint32_t octet = 0; octet < m->group / 8; octet++, at += matrix_octet_bytes(m)) {
            octet_factors(m, at, row % MATRIX_PANEL, factors);
            for (uint32_t s = 0; s < 8; s++)
                *ret++ = fmaf(q.scale, factors[s], q.bias);
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
            *ret++ = fmaf(q.scale, (float)((int)codes[i] - (int)matrix_centre(m->codes, m->bits)), q.bias);
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

/* As `copy_lane()`, but of the scales and words of a group; both share bytes with other rows. */
static void copy_words(uint8_t *to, uint32_t to_lane, const uint8_t *from, uint32_t from_lane,
                       const struct matrix *m)
{
    const uint32_t shift = to_lane / 8 * 4, scale = from[from_lane % 8] >> from_lane / 8 * 4 & 15u;
    to[to_lane % 8] = (uint8_t)((to[to_lane % 8] & ~(15u << shift)) | scale << shift);
    for (size_t i = 0, at = matrix_sides_bytes(m); i < m->group / 8; i++, at += matrix_octet_bytes(m))
        matrix_word_set(to + at, to_lane, m->codes, matrix_word_at(from + at, from_lane, m->codes));
}

void matrix_copy_row(const struct matrix *to, uint32_t to_row, const struct matrix *from, uint32_t from_row)
{
    ASSERT(to->form == from->form && to->k == from->k && to->bits == from->bits && to->group == from->group &&
           to->qparams == from->qparams && to->bias_kind == from->bias_kind && to->super == from->super &&
           to_row < to->n && from_row < from->n);
    size_t panel = matrix_panel_bytes(from), qparam_bytes, super_bytes;
    uint32_t to_lane = to_row % MATRIX_PANEL, from_lane = from_row % MATRIX_PANEL;
    uint8_t *dst = (uint8_t *)(uintptr_t)to->data + to_row / MATRIX_PANEL * panel;
    const uint8_t *src = (const uint8_t *)from->data + from_row / MATRIX_PANEL * panel;
    if (from->form == MATRIX_PAIRS) {
        copy_lane(dst, to_lane, src, from_lane, from->k / 2, 4);
        return;
    }
    if (!matrix_has_groups(from)) {
        copy_lane(dst, to_lane, src, from_lane, from->k, from->form == MATRIX_F32 ? 4 : 2);
        return;
    }
    qparam_bytes = matrix_qparam_bytes(from);
    super_bytes = from->qparams == MATRIX_E4M3 ? 4 : 2;
    for (uint32_t g = 0; g < from->k / from->group; g++) {
        size_t at = matrix_group_offset(from, g), codes = matrix_codes_offset(from, g);
        size_t biases = from->bias_kind == BIASES_STORED ? qparam_bytes / MATRIX_PANEL : 1;
        /* Planes of any width are lines of a byte per row, or of a quad. */
        size_t bytes = from->form == MATRIX_QUADS ? 4 : 1;
        /* The first of a pair copies the codes of both. */
        size_t steps = !matrix_pairs_groups(from) ? from->group : g % 2 == 0 ? 2 * from->group : 0;
        size_t lines = steps * from->bits / 8 / bytes, supers = matrix_super_bytes(from);
        if (supers && g % matrix_super_groups(from) == 0)
            copy_lane(dst + at - supers, to_lane, src + at - supers, from_lane,
                      supers / (MATRIX_PANEL * super_bytes), super_bytes);
        if (code_is_word(from->codes)) {
            copy_words(dst + at, to_lane, src + at, from_lane, from);
            continue;
        }
        copy_lane(dst + at, to_lane, src + at, from_lane, 1, qparam_bytes / MATRIX_PANEL);
        at += qparam_bytes;
        copy_lane(dst + at, to_lane, src + at, from_lane, from->bias_kind != BIASES_CENTRED, biases);
        copy_lane(dst + codes, to_lane, src + codes, from_lane, lines, bytes);
    }
}
