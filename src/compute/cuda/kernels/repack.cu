/* repack.cu - panels of kernel/matrix.h become fragments, once, at load. */
#include "compute/cuda/kernels/fragment.cuh"

/* A value's code, which is not negative: of tables twice the number, or the number, and 128; of small floats
 * the byte. */
DEVICE uint32_t code_of(const cuda_matrix &m, const uint8_t *panel, uint32_t lane, uint32_t k)
{
    const uint8_t *codes = panel + group_offset(m, k / m.group) + sides_bytes(m) + lane;
    if (is_float(m))
        return codes[(uint64_t)(k % m.group) * 16];
    float centre = m.codes == CUDA_CODES_WHOLE ? (float)(1u << (m.bits - 1)) : 128;
    return (uint32_t)(code_value(codes, m.bits, m.codes, k % m.group) + centre);
}

DEVICE uint32_t bits_at(const cuda_matrix &m, const cuda_matrix &to, const uint8_t *panel, uint32_t lane,
                        uint32_t k)
{
    if (k >= m.k)
        return 0;
    if (to.bits < 16)
        return code_of(m, panel, lane, k);
    if (m.form == CUDA_BF16)
        return ((const uint16_t *)panel)[(uint64_t)k * CUDA_PANEL + lane];
    cuda_matrix one = m;
    one.data = panel;
    return __bfloat16_as_ushort(__float2bfloat16_rn(weight_value(one, lane, k)));
}

/* Scale, and bias or zero point, as they are stored. */
DEVICE float2 stored_sides(const cuda_matrix &m, const uint8_t *panel, uint32_t group, uint32_t lane)
{
    sides s = sides_of(panel, group, m, lane);
    const uint8_t *biases = panel + group_offset(m, group) + scale_bytes(m);
    float centre = (float)(1u << (m.bits - 1));
    if (is_float(m))
        return {s.scale / 256, 0};
    if (m.codes != CUDA_CODES_WHOLE)
        return {s.scale, 128};
    if (m.biases == CUDA_BIASES_ZEROS)
        return {s.scale, (float)biases[lane]};
    if (m.biases == CUDA_BIASES_CENTRED)
        return {s.scale, centre};
    float bias = side_value(biases, m.qparams, lane);
    if (m.super)
        bias *= -dense_value(panel + group_offset(m, group - group % (m.super / m.group)) - super_bytes(m),
                             CUDA_F16, CUDA_PANEL + lane);
    return {s.scale, bias};
}

DEVICE uint32_t narrowed(uint32_t form, float x)
{
    return form == CUDA_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                             : __half_as_ushort(__float2half_rn(x));
}

/* Blocks (x, y): panel x. Each thread owns whole words. */
KERNEL plateau_repack(const cuda_repack a)
{
    const cuda_matrix &m = a.from, &to = a.to;
    const uint8_t *from = m.data + blockIdx.x * panel_bytes(m);
    uint8_t *panel = (uint8_t *)to.data + (a.panel + blockIdx.x) * fragment_panel_bytes(to);
    uint32_t begin = blockIdx.x > 0 ? 0 : a.lane,
             end = min(CUDA_PANEL, a.lane + a.count - blockIdx.x * CUDA_PANEL);
    uint32_t each = 32 / to.bits, words = fragment_units(to) * unit_bytes(to.bits) / 4;
    uint32_t first = blockIdx.y * blockDim.x + threadIdx.x, step_words = gridDim.y * blockDim.x;
    for (uint32_t i = first; i < words; i += step_words) {
        /* The word's values: of place_of(), all with this word. */
        uint32_t word = 0, mask = 0, per_unit = words / fragment_units(to), k0 = i / per_unit * UNIT;
        uint32_t lane = 0, k = 0, in = i % per_unit;
        uint32_t t, j, low;
        if (to.bits == 16)
            lane = in / 4 % 32, j = in / 128, low = in % 4;
        else if (to.bits == 8)
            lane = in / 4 % 32, j = in / 128 * 2 + in % 4 / 2, low = in % 2;
        else
            lane = in / 4, j = in % 4, low = 0;
        t = lane % 4;
        for (uint32_t v = 0; v < each; v++) {
            uint32_t row = lane / 4, step;
            if (to.bits == 16)
                row += low % 2 * 8, step = low / 2 * 2 + v;
            else if (to.bits == 8)
                row += low * 8, step = v;
            else
                row += v / 4 * 8, step = v % 4;
            k = k0 + 16 * t + 4 * j + step;
            uint32_t shift = place_of(to.bits, row, k).shift;
            if (row < begin || row >= end)
                continue;
            word |= bits_at(m, to, from, row, k) << shift;
            mask |= (0xffffu >> (16 - to.bits)) << shift;
        }
        uint32_t *at = (uint32_t *)panel + i;
        *at = (*at & ~mask) | word;
    }
    if (to.bits == 16)
        return;
    uint32_t groups = (fragment_units(to) * UNIT + to.group - 1) / to.group;
    for (uint32_t i = first; i < groups * CUDA_PANEL; i += step_words) {
        uint32_t row = i % CUDA_PANEL, group = i / CUDA_PANEL;
        if (row < begin || row >= end)
            continue;
        float2 s = group < m.k / m.group ? stored_sides(m, from, group, row) : float2{0, 0};
        if (to.qparams == CUDA_F32)
            ((float2 *)(panel + sides_at(to, 0)))[i] = s;
        else
            ((uint32_t *)(panel + sides_at(to, 0)))[i] = narrowed(to.qparams, s.x) | narrowed(to.qparams, s.y)
                                                                                         << 16;
    }
}

/* Row `from_row` of one matrix over row `to_row` of another, a block. */
KERNEL plateau_copy_fragments(const cuda_copy_row a)
{
    const cuda_matrix &m = a.from;
    uint64_t size = fragment_panel_bytes(m);
    const uint8_t *from = m.data + a.from_row / CUDA_PANEL * size;
    uint8_t *to = (uint8_t *)a.to.data + a.to_row / CUDA_PANEL * size;
    uint32_t ones = 0xffffu >> (16 - m.bits), from_row = a.from_row % CUDA_PANEL,
             to_row = a.to_row % CUDA_PANEL;
    /* A thread has all k of a word: 4 of the same t and j, of which 16 bits have two in a word. */
    for (uint32_t i = threadIdx.x; i < fragment_units(m) * UNIT / 4; i += blockDim.x) {
        for (uint32_t k = 4 * i; k < 4 * i + 4; k++) {
            fragment_place f = place_of(m.bits, from_row, k), t = place_of(m.bits, to_row, k);
            uint32_t code = *(const uint32_t *)(from + f.word) >> f.shift & ones,
                     *word = (uint32_t *)(to + t.word);
            *word = (*word & ~(ones << t.shift)) | code << t.shift;
        }
    }
    if (m.bits == 16)
        return;
    uint32_t groups = (fragment_units(m) * UNIT + m.group - 1) / m.group, each = side_bytes(m) / 4;
    for (uint32_t i = threadIdx.x; i < groups * each; i += blockDim.x) {
        uint64_t line = sides_at(m, i / each);
        ((uint32_t *)(to + line))[to_row * each + i % each] =
            ((const uint32_t *)(from + line))[from_row * each + i % each];
    }
}
