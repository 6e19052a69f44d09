/* fragment.cuh - weights as the tensor cores take them, and their values in bf16.
 *
 * A panel of 16 rows is the A operand of mma.m16n8k16. It has units of 64 k steps; the last one is filled up
 * with codes 0, whose inputs are 0. A unit is `bits` / 4 pieces of 32 lanes x 16 bytes. The sides follow the
 * units: of each group 16 pairs of scale and bias, or of scale and zero point.
 * Of a unit, lane 4 g + t has rows g and g + 8 at k = 16 t + 0..15. Step j of four multiplies
 * k = 16 t + 4 j + 0..3 of all t. So a lane's inputs of a unit lie side by side, and have one group.
 * 16 bits: piece j is step j: rows g, g + 8 at the first two k, then at the others.
 *  8 bits: piece i has steps 2 i, 2 i + 1: each has 4 bytes of row g, then of g + 8, for k 0, 2, 1, 3. Codes
 *          are whole numbers, or floats of 1, 4 and 3 bits.
 *  4 bits: word j is step j: nibbles i and i + 4 are the pair i of the four above.
 * A value is w = bf16(scale * q + bias), bias = -scale * zero where there are zero points: with scales and
 * biases of bf16 rounded once, else after an fma in f32. */
#ifndef PLATEAU_CUDA_FRAGMENT_CUH
#define PLATEAU_CUDA_FRAGMENT_CUH

#include "compute/cuda/kernels/common.cuh"

#define UNIT CUDA_UNIT

typedef __nv_bfloat162 bf16x2;

DEVICE uint32_t bits_of(bf16x2 p)
{
    return *(uint32_t *)&p;
}
DEVICE bf16x2 pair_of(uint32_t bits)
{
    return *(bf16x2 *)&bits;
}

/* ---- norms of four values at a time ---- */

DEVICE void put_four(const cuda_rounded &r, uint32_t row, uint32_t i, float4 v)
{
    row += r.first;
    uint16_t *at = r.at + ((uint64_t)(i / 64) * r.rows + row) * 64;
    *(__nv_bfloat162 *)(at + rounded_place(row, i)) = __floats2bfloat162_rn(v.x, v.y);
    *(__nv_bfloat162 *)(at + rounded_place(row, i + 2)) = __floats2bfloat162_rn(v.z, v.w);
}

/* The square of a float is a double: rounded once, with or without fma. */
DEVICE double add_square(double sum, float x)
{
    return fma((double)x, (double)x, sum);
}

DEVICE float4 add_four(float4 sum, float factor, float4 x)
{
    return {fmaf(factor, x.x, sum.x), fmaf(factor, x.y, sum.y), fmaf(factor, x.z, sum.z),
            fmaf(factor, x.w, sum.w)};
}
DEVICE float norm_factor(double squares, uint32_t n, float eps)
{
    return (float)(1 / sqrt(squares / n + eps));
}
DEVICE float4 normed_four(float4 x, float4 w, float r)
{
    return {w.x * (x.x * r), w.y * (x.y * r), w.z * (x.z * r), w.w * (x.w * r)};
}

/* ---- layout ---- */

DEVICE uint32_t fragment_units(const cuda_matrix &m)
{
    return (m.k + UNIT - 1) / UNIT;
}
DEVICE uint32_t unit_bytes(uint32_t bits)
{
    return 128 * bits;
}
/* Returns the bytes of a scale and its bias. */
DEVICE uint32_t side_bytes(const cuda_matrix &m)
{
    return m.qparams == CUDA_F32 ? 8 : 4;
}
/* Returns the bytes of scales and biases in the groups that a unit reads: a multiple of 64. */
DEVICE uint32_t unit_side_bytes(const cuda_matrix &m)
{
    return m.bits == 16 ? 0 : (m.group < UNIT ? UNIT / m.group : 1) * CUDA_PANEL * side_bytes(m);
}
DEVICE uint64_t sides_at(const cuda_matrix &m, uint32_t group)
{
    return (uint64_t)fragment_units(m) * unit_bytes(m.bits) + (uint64_t)group * CUDA_PANEL * side_bytes(m);
}
DEVICE uint64_t fragment_panel_bytes(const cuda_matrix &m)
{
    return sides_at(m, m.bits == 16 ? 0 : (fragment_units(m) * UNIT + m.group - 1) / m.group);
}

/* Where a row's value at k lies: a word of the panel, and a place in it. */
struct fragment_place {
    uint64_t word; /* in bytes from the panel's begin */
    uint32_t shift;
};

DEVICE fragment_place place_of(uint32_t bits, uint32_t row, uint32_t k)
{
    uint32_t in = k % UNIT, t = in / 16, j = in % 16 / 4, i = in % 4, half = row / 8;
    uint32_t lane = row % 8 * 4 + t, odd = i % 2, late = i / 2;
    uint64_t unit = (uint64_t)(k / UNIT) * unit_bytes(bits);
    if (bits == 16)
        return {unit + j * 512 + lane * 16 + (late * 2 + half) * 4, odd * 16};
    if (bits == 8)
        return {unit + j / 2 * 512 + lane * 16 + (j % 2 * 2 + half) * 4, odd * 16 + late * 8};
    return {unit + lane * 16 + j * 4, (late * 2 + half) * 4 + odd * 16};
}

/* ---- values ---- */

/* A lane's scales and biases of rows g and g + 8, as they are stored. */
struct raw_sides {
    uint32_t v[4]; /* f32: the scales, then the biases; else a pair for each row */
};
/* One rounding: codes of at most eight bits, scales and biases are all bf16. */
DEVICE bool is_whole(const cuda_matrix &m)
{
    return m.bits < 16 && m.qparams == CUDA_BF16 && m.biases == CUDA_BIASES_STORED;
}

template <bool WHOLE> DEVICE raw_sides sides_from(const uint8_t *at, const cuda_matrix &m, uint32_t row)
{
    raw_sides s;
    if (!WHOLE && m.qparams == CUDA_F32) {
        uint2 low = ((const uint2 *)at)[row], high = ((const uint2 *)at)[row + 8];
        s.v[0] = low.x, s.v[1] = high.x, s.v[2] = low.y, s.v[3] = high.y;
    } else {
        s.v[0] = ((const uint32_t *)at)[row], s.v[1] = ((const uint32_t *)at)[row + 8];
        s.v[2] = s.v[3] = 0;
    }
    return s;
}

struct lane_sides {
    float scale[2], bias[2];
    bf16x2 scales[2], biases[2]; /* whole: twice each */
};

template <bool WHOLE> DEVICE lane_sides lane_sides_of(const raw_sides &raw, const cuda_matrix &m)
{
    lane_sides s;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t v = raw.v[i];
        if (WHOLE) {
            s.scales[i] = pair_of(__byte_perm(v, 0, 0x1010));
            s.biases[i] = pair_of(__byte_perm(v, 0, 0x3232));
            continue;
        }
        if (m.qparams == CUDA_F32) {
            s.scale[i] = __uint_as_float(v);
            s.bias[i] = __uint_as_float(raw.v[2 + i]);
        } else if (m.qparams == CUDA_BF16) {
            s.scale[i] = __uint_as_float(v << 16);
            s.bias[i] = __uint_as_float(v & 0xffff0000);
        } else {
            s.scale[i] = __half2float(__ushort_as_half((unsigned short)v));
            s.bias[i] = __half2float(__ushort_as_half((unsigned short)(v >> 16)));
        }
        if (m.biases == CUDA_BIASES_ZEROS)
            s.bias[i] = -s.scale[i] * s.bias[i];
    }
    return s;
}

template <bool WHOLE> DEVICE uint32_t scaled(const lane_sides &s, uint32_t half, bf16x2 q)
{
    if (WHOLE)
        return bits_of(__hfma2(q, s.scales[half], s.biases[half]));
    return bits_of(__floats2bfloat162_rn(fmaf(s.scale[half], __low2float(q), s.bias[half]),
                                         fmaf(s.scale[half], __high2float(q), s.bias[half])));
}

/* The word of 8 bits that has operand `i` of a unit: four of each step. */
DEVICE uint32_t eight_of(const uint4 *q, uint32_t i)
{
    const uint4 &piece = q[i / 8];
    return i / 4 % 2 ? (i % 2 ? piece.w : piece.z) : (i % 2 ? piece.y : piece.x);
}

/* Pair `i` of a word of 4 bits: bf16 has 128 + q in its low bits. */
DEVICE bf16x2 pair_of_nibbles(uint32_t word, uint32_t i)
{
    const uint32_t base = 0x43004300;
    return __hsub2(pair_of((word >> 4 * i & 0x000f000f) | base), pair_of(base));
}
/* Bytes `late` and late + 2 of a word. A float has 2^23 + q in its low bits. */
DEVICE bf16x2 pair_of_bytes(uint32_t word, uint32_t late)
{
    float a = __uint_as_float(__byte_perm(word, 0x4b000000, 0x7650 + late)) - 8388608.0f;
    float b = __uint_as_float(__byte_perm(word, 0x4b000000, 0x7652 + late)) - 8388608.0f;
    return __floats2bfloat162_rn(a, b);
}

/* Bytes `late` and late + 2 of a word, as floats of 1, 4 and 3 bits over 2^120: the same bits of bf16. */
DEVICE bf16x2 small_floats(uint32_t word, uint32_t late)
{
    const uint32_t signs = late ? word : word << 8, rest = late ? word >> 4 : word << 4;
    return pair_of((signs & 0x80008000) | (rest & 0x07f007f0));
}
/* A scale or small floats, times 2^120. */
DEVICE bf16x2 floats_up(bf16x2 x)
{
    return __hmul2(x, pair_of(0x7b807b80));
}
DEVICE bool is_float(const cuda_matrix &m)
{
    return m.codes == CUDA_CODES_E4M3;
}

/* The A operand of step `j`, from the pieces of a lane. */
template <uint32_t BITS, bool WHOLE>
DEVICE void fragment(const uint4 *q, const lane_sides &s, uint32_t j, uint32_t a[4])
{
    if (BITS == 16) {
        a[0] = q[j].x, a[1] = q[j].y, a[2] = q[j].z, a[3] = q[j].w;
    } else if (BITS == 8) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            a[i] = scaled<WHOLE>(s, i % 2, pair_of_bytes(eight_of(q, 4 * j + i), i / 2));
    } else {
        uint32_t word = j == 0 ? q[0].x : j == 1 ? q[0].y : j == 2 ? q[0].z : q[0].w;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            a[i] = scaled<WHOLE>(s, i % 2, pair_of_nibbles(word, i));
    }
}

/* Codes are subnormal numbers of bf16: of 8 bits q 2^-133, of 4 bits q 2^-129 from bit 4 of a
 * half word on. With a scale that is as many times larger, scale * q is the same, and so is its rounded sum.
 * bf16 has no room for larger scales than these. */
template <uint32_t BITS> DEVICE bool has_room(const raw_sides &raw)
{
    const uint32_t limit = BITS == 4 ? 0x3f00 : 0x3c80; /* 2^-1, 2^-6 */
    return ((raw.v[0] | raw.v[1]) & 0x7fff) < limit;
}
template <uint32_t BITS> DEVICE bf16x2 scales_up(bf16x2 s)
{
    return __hmul2(__hmul2(s, pair_of(0x5f805f80)), pair_of(BITS == 4 ? 0x60006000 : 0x62006200));
}
/* Step `j`, pair `i`. */
template <uint32_t BITS> DEVICE bf16x2 small_codes(const uint4 *q, uint32_t j, uint32_t i)
{
    if (BITS == 8)
        return pair_of(__byte_perm(eight_of(q, 4 * j + i), 0, 0x4240 + i / 2 * 0x0101));
    uint32_t word = j == 0 ? q[0].x : j == 1 ? q[0].y : j == 2 ? q[0].z : q[0].w;
    return pair_of((i == 0 ? word << 4 : word >> 4 * (i - 1)) & 0x00f000f0);
}

/* As `unit_fragments()`, but of small floats. Products of 4 and 8 bits are rounded once, in either form. */
template <bool WHOLE> DEVICE void float_fragments(uint32_t f[16], const uint4 *q, const raw_sides &raw,
                                                  const lane_sides &s)
{
    const bool room = ((raw.v[0] | raw.v[1]) & 0x7fff) < 0x4300; /* 2^7 */
    if (WHOLE && __all_sync(0xffffffffu, room)) {
        const bf16x2 scales[2] = {floats_up(s.scales[0]), floats_up(s.scales[1])};
#pragma unroll
        for (uint32_t i = 0; i < 16; i++)
            f[i] = bits_of(__hfma2(small_floats(eight_of(q, i), i % 4 / 2), scales[i % 2], s.biases[i % 2]));
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 16; i++)
        f[i] = scaled<WHOLE>(s, i % 2, floats_up(small_floats(eight_of(q, i), i % 4 / 2)));
}

/* The A operands of a unit, of step j from f[4 j] on, where scales have room. */
template <uint32_t BITS> DEVICE void small_fragments(uint32_t f[16], const uint4 *q, const lane_sides &s)
{
    const bf16x2 scales[2] = {scales_up<BITS>(s.scales[0]), scales_up<BITS>(s.scales[1])};
#pragma unroll
    for (uint32_t i = 0; i < 16; i++)
        f[i] = bits_of(__hfma2(small_codes<BITS>(q, i / 4, i % 4), scales[i % 2], s.biases[i % 2]));
}

/* The A operands of a unit in any case. All lanes of the warp call. */
template <uint32_t BITS, bool WHOLE>
DEVICE void unit_fragments(uint32_t f[16], const uint4 *q, const raw_sides &raw, const cuda_matrix &m)
{
    lane_sides s;
    if (BITS < 16)
        s = lane_sides_of<WHOLE>(raw, m);
    if (BITS == 8 && is_float(m)) {
        float_fragments<WHOLE>(f, q, raw, s);
        return;
    }
    if (BITS < 16 && WHOLE && __all_sync(0xffffffffu, has_room<BITS>(raw))) {
        small_fragments<BITS>(f, q, s);
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        fragment<BITS, WHOLE>(q, s, j, f + 4 * j);
}

/* One value, as the fragments have it. */
DEVICE float fragment_value(const cuda_matrix &m, uint32_t row, uint32_t k)
{
    const uint8_t *panel = m.data + row / CUDA_PANEL * fragment_panel_bytes(m);
    fragment_place p = place_of(m.bits, row % CUDA_PANEL, k);
    uint32_t code = *(const uint32_t *)(panel + p.word) >> p.shift & (0xffffu >> (16 - m.bits));
    if (m.bits == 16)
        return __uint_as_float(code << 16);
    const uint8_t *sides = panel + sides_at(m, k / m.group);
    bf16x2 q = is_float(m) ? floats_up(small_floats(code, 0)) : __floats2bfloat162_rn((float)code, 0);
    uint32_t half = row % CUDA_PANEL / 8, v;
    if (is_whole(m))
        v = scaled<true>(lane_sides_of<true>(sides_from<true>(sides, m, row % 8), m), half, q);
    else
        v = scaled<false>(lane_sides_of<false>(sides_from<false>(sides, m, row % 8), m), half, q);
    return __uint_as_float(v << 16);
}

/* Value k of row `row`, in any form. */
DEVICE float value_of(const cuda_matrix &m, uint32_t row, uint32_t k)
{
    return m.form == CUDA_FRAGMENTS ? fragment_value(m, row, k) : weight_value(m, row, k);
}

#endif
