/* matrix.h - a weight matrix in the layout the kernels read.
 *
 * Rows come in panels of 16: the lanes of a vector are 16 output rows, and k runs serially. So an output
 * element is one fixed chain of operations, whatever the number of columns beside it and whichever thread
 * computes it (exactness is a rule for kernels), and a panel streams from memory front to back.
 *
 * Dense panel:  [k][16] elements of BF16, F16 or F32.
 * Pairs panel:  [k / 2][16][2] elements of BF16, for products in BF16; k % 32 == 0. Packed files of mode bf16
 *               have it. A line of 64 bytes has two consecutive k steps of 16 rows. Sixteen lines are a tile
 *               of AMX.
 * Affine panel: [k / group] groups; a group is 16 scales and 16 biases in the checkpoint's dtype, then
 *               [group / 8] octets, so that all reads of a chain lie in one stream. (With f32 scales and
 *               biases apart, 16 more streams for 8 panels, one column took 1.4 times as long with 8 bits and
 *               1.6 times with 4: bench/kern_bench.) Instead of biases there are 16 zero points of a byte, or
 *               nothing. With scales of two levels, supers are a panel's largest part: 16 upper scales, 16
 *               upper biases where there are biases, then the groups of `super` k steps.
 *               An octet holds 8 k steps x 16 rows as bit planes, in this order:
 *               8-bit plane (bits 8):        8 x 16 bytes, step s at bytes [16 s, 16 s + 16), centred
 *               4-bit plane (bits 4, 5, 6):  4 x 16 bytes, steps 2 j (low nibble) and 2 j + 1 (high nibble)
 *               2-bit plane (bits 2, 3, 6):  2 x 16 bytes, steps 4 j + 0..3 from the low bits up
 *               1-bit plane (bits 3, 5):     1 x 16 bytes, steps 0..7 from the low bit up
 *               A value is the sum of its planes, the first plane in the low bits: 6 = 4 + 2, 5 = 4 + 1,
 *               3 = 2 + 1. Any bit width costs exactly its bits.
 *               An octet of words (codebook.h) has 16 bytes for each of the word's bytes, then its high bits:
 *               of four rows in a byte, with IQ1 of two, the first row's the lowest.
 * Quads panel:  the same affine weights for integer products, in as many bytes; the layout's name in packed
 *               files is "q16x64". [k / group] groups; a group is 16 scales and 16 biases as above, then
 *               [group / 32] units. A unit holds 32 k steps x 16 rows as bit planes in lines of 64 bytes. A
 *               line has 4 consecutive k steps (a quad) of 16 rows, row r at bytes [4 r, 4 r + 4):
 *               8-bit plane: 8 lines, line j has quad j
 *               4-bit plane: 4 lines, line j has quads j (low nibble) and j + 4 (high nibble)
 *               2-bit plane: 2 lines, line j has quads j, j + 2, j + 4, j + 6 from the low bits up
 *               1-bit plane: 1 line, quads 0..7 from the low bit up
 *               Planes join to a code as above. Codes are unsigned as in the checkpoint, of 8 bits too: a
 *               line is an operand of an unsigned-by-signed byte product as it lies. Sixteen lines of 8 bits
 *               are a tile of AMX. Groups of 16 come in pairs: scales and biases of the one, of the other,
 *               then a unit that has the first group in quads 0 to 3.
 * Rows past n in the last panel are zeros. A stack of experts is `experts` such matrices, one after
 * another. */
#ifndef PLATEAU_KERNEL_MATRIX_H
#define PLATEAU_KERNEL_MATRIX_H

#include "tensor/tensor.h"

#define MATRIX_PANEL 16
/* A dense chain is summed in blocks of 64 k steps, an affine one in blocks of its group. */
#define MATRIX_DENSE_BLOCK 64

/* k steps of a tile of a MATRIX_PAIRS matrix. */
#define MATRIX_PAIRS_TILE 32

/* E8M0, E4M3, I8 and ODD4 are forms of scales alone. ODD4 has odd numbers from 1 to 31 in four bits: those of
 * rows 0 to 7 are the low halves of eight bytes, the others the high halves. Packed files have these numbers
 * of the forms. */
enum matrix_form {
    MATRIX_BF16,
    MATRIX_F16,
    MATRIX_F32,
    MATRIX_AFFINE,
    MATRIX_QUADS,
    MATRIX_E8M0,
    MATRIX_E4M3,
    MATRIX_I8,
    MATRIX_PAIRS,
    MATRIX_ODD4
};

/* Constant once packed. The arithmetic of every kernel, in every tier, for output row i and column x:
 *   dense:  acc = 0; for each block b of 64: p = 0; for k in b: p = fma(w[i][k], x[k], p); acc = acc + p
 *   affine: acc = 0; for each group g: p = 0; for k in g: p = fma((float)(q[i][k] - centre), x[k], p);
 *           acc = fma(scale[i][g], p, acc); acc = fma(bias[i][g], xsum[g], acc)
 *   with centre = 2^(bits-1), bias = fma(scale, centre, checkpoint bias), xsum[g] = kern group_sums. With
 *   zero points bias = (centre - zero) * scale. Without biases the last step is left out. Codes that look
 *   numbers up: instead of q - centre it is twice the E2M1 (scale / 2), the whole number of IQ4 or of a word
 *   (scale * code_scale()), or the E4M3 over 256 (scale * 256). Two levels: scale and bias are products, bias
 *   that of a negative.
 *   quads:  the input is a row of whole numbers v[k] with a scale and a sum per group (quants.h).
 *           acc = 0; for each group g: S = sum over k in g of q[i][k] * v[k], exact, an int32;
 *           acc = fma((float)S, scale[i][g] * v.scale[g], acc); acc = fma(bias[i][g], v.sum[g], acc)
 *           with the codes, scales and biases of the checkpoint; without stored biases they are -scale * zero
 *           point, or -scale * centre. Codes that look numbers up: q is twice the E2M1 (scale / 2) or the
 *           whole number of IQ4, plus the centre, which makes the least of them 0. |S| < 255 * 32512 * 128
 *           fits in 31 bits. The bias follows its group at once: both terms are large where the inputs share
 *           a sign, and cancel.
 *           S may be summed in any order and in pieces: bytes of v apart, by any instruction.
 *   pairs:  the input is rounded to BF16, to the nearest and ties to even; so are weights of F16. Denormals
 *           count as zeros of their sign, read or computed.
 *           acc = 0; for each tile of 32 k: even = odd = 0;
 *           for k = 0, 2 .. 30 of it: even = fma(w[i][k], x[k], even), odd = fma(w[i][k + 1], x[k + 1], odd);
 *           acc = acc + (even + odd). This is what AMX does with a tile.
 * The f32 operations are exactly these, in this order, so tiers agree bit for bit. */
struct matrix {
    enum matrix_form form;
    uint32_t n, k; /* rows (outputs), columns (inputs) of one matrix; k % 8 == 0 for affine */
    uint32_t experts;
    uint32_t bits, group;     /* affine, quads */
    enum matrix_form qparams; /* form of scales and of stored biases; affine, quads */
    enum code_map codes;      /* map of a code to its number; quads: not CODES_E4M3 */
    enum bias_kind bias_kind;
    uint32_t super;      /* k steps of an upper scale, F32 above E4M3, F16 above I8; 0: one level */
    const void *data;    /* panels */
    size_t expert_bytes; /* stride between experts in data */
};

/* Packs `count` sources with equal `in` and form one above the other (q, k, v into one matrix) into
 * `memory` of matrix_stack_bytes(), 64-byte aligned. Rows keep their order: source 0 first. Experts: count
 * must be 1. */
size_t matrix_stack_bytes(const struct linear_source *s, uint32_t count);
void matrix_pack(const struct linear_source *s, uint32_t count, void *memory, struct matrix *ret);

/* Whether the sources can be MATRIX_QUADS: codes stand for whole numbers, groups are of 32, 64 or 128, or of
 * 16 in pairs and of 2, 3 or 6 bits or E2M1, as K-quants and NVFP4 have them. */
bool matrix_fits_quads(const struct linear_source *s, uint32_t count);
/* As `matrix_pack()`, but as MATRIX_QUADS instead of MATRIX_AFFINE. */
void matrix_pack_quads(const struct linear_source *s, uint32_t count, void *memory, struct matrix *ret);

/* Whether the sources can be MATRIX_PAIRS: BF16 or F16, whole tiles of k. */
bool matrix_fits_pairs(const struct linear_source *s, uint32_t count);
/* As `matrix_pack()`, but as MATRIX_PAIRS instead of MATRIX_BF16 or MATRIX_F16. */
void matrix_pack_pairs(const struct linear_source *s, uint32_t count, void *memory, struct matrix *ret);

/* Pack in pieces, for sources whose rows arrive one after the other. matrix_begin() returns the matrix, whose
 * rows are not written yet. matrix_put() writes them in their order and without a gap: the rows of `rows`, a
 * source without experts, become `at` and following. */
struct matrix matrix_begin(const struct linear_source *s, uint32_t count, void *memory);
struct matrix matrix_begin_quads(const struct linear_source *s, uint32_t count, void *memory);
struct matrix matrix_begin_pairs(const struct linear_source *s, uint32_t count, void *memory);
void matrix_put(const struct matrix *m, uint32_t at, const struct linear_source *rows);
/* As `matrix_put()`, but of the rows only [from, from + count). */
void matrix_put_part(const struct matrix *m, uint32_t at, const struct linear_source *rows, uint32_t from,
                     uint32_t count);

/* One expert of a stack, as a matrix of its own. */
struct matrix matrix_expert(const struct matrix *m, uint32_t expert);

/* Row `from_row` of one matrix over row `to_row` of another of the same form and k, whose memory may be
 * written. Neither has experts. */
void matrix_copy_row(const struct matrix *to, uint32_t to_row, const struct matrix *from, uint32_t from_row);

/* Row `row` dequantised: ret[k] f32, affine: fma(scale, q - centre, bias). Embedding lookups. */
void matrix_row(const struct matrix *m, uint32_t row, float *ret);

/* Weights with scales, in either layout. */
static inline bool matrix_has_groups(const struct matrix *m)
{
    return m->form == MATRIX_AFFINE || m->form == MATRIX_QUADS;
}

/* Whether its products read the input in rows of another form: quantised, or rounded to BF16. */
static inline bool matrix_rounds_input(const struct matrix *m)
{
    return m->form == MATRIX_QUADS || m->form == MATRIX_PAIRS;
}

/* Whether its products need the group sums of their input. */
static inline bool matrix_needs_sums(const struct matrix *m)
{
    return m->form == MATRIX_AFFINE && m->bias_kind != BIASES_CENTRED;
}

/* Returns the centre of the codes' numbers: they lie from -centre up, below 256 - centre. */
static inline uint32_t matrix_centre(enum code_map map, uint32_t bits)
{
    return map == CODES_E2M1 ? 12 : map == CODES_IQ4 ? 127 : 1u << (bits - 1);
}

/* Whether two groups share a unit of codes. */
static inline bool matrix_pairs_groups(const struct matrix *m)
{
    return m->form == MATRIX_QUADS && m->group < 32;
}

static inline uint32_t matrix_panels(const struct matrix *m)
{
    return (m->n + MATRIX_PANEL - 1) / MATRIX_PANEL;
}

/* Bytes of eight k steps of 16 rows. */
static inline size_t matrix_octet_bytes(const struct matrix *m)
{
    return MATRIX_PANEL / 8 * (code_is_word(m->codes) ? code_word_bits(m->codes) : 8 * (size_t)m->bits);
}

/* Bytes of a group's 16 scales. */
static inline size_t matrix_qparam_bytes(const struct matrix *m)
{
    if (m->qparams == MATRIX_ODD4)
        return MATRIX_PANEL / 2;
    return MATRIX_PANEL * (m->qparams == MATRIX_F32 ? 4 : m->qparams <= MATRIX_F16 ? 2 : 1);
}

/* Bytes of its scales and what there is of biases. */
static inline size_t matrix_sides_bytes(const struct matrix *m)
{
    size_t scales = matrix_qparam_bytes(m);
    return m->bias_kind == BIASES_STORED  ? 2 * scales
           : m->bias_kind == BIASES_ZEROS ? scales + MATRIX_PANEL
                                          : scales;
}

/* Bytes of one group of an affine panel, in either layout. */
static inline size_t matrix_group_bytes(const struct matrix *m)
{
    return matrix_sides_bytes(m) + m->group / 8 * matrix_octet_bytes(m);
}

/* Bytes of the upper scales and biases before the groups of a super; 0 with one level. */
static inline size_t matrix_super_bytes(const struct matrix *m)
{
    if (m->super == 0)
        return 0;
    return MATRIX_PANEL * (m->qparams == MATRIX_E4M3 ? 4 : m->bias_kind == BIASES_STORED ? 4 : 2);
}

/* Groups of a super; with one level all. */
static inline uint32_t matrix_super_groups(const struct matrix *m)
{
    return (m->super ? m->super : m->k) / m->group;
}

/* Offset of a group's scales in its panel. */
static inline size_t matrix_group_offset(const struct matrix *m, uint32_t group)
{
    const bool second = matrix_pairs_groups(m) && group % 2;
    size_t at = (group - second) * matrix_group_bytes(m) + second * matrix_sides_bytes(m);
    return m->super ? at + (group / matrix_super_groups(m) + 1) * matrix_super_bytes(m) : at;
}

/* Offset of its codes: with pairs, of the unit that has them. */
static inline size_t matrix_codes_offset(const struct matrix *m, uint32_t group)
{
    const bool first = matrix_pairs_groups(m) && group % 2 == 0;
    return matrix_group_offset(m, group) + (1 + first) * matrix_sides_bytes(m);
}

/* Offset of the upper scales of a group; 0 with one level. */
static inline size_t matrix_super_offset(const struct matrix *m, uint32_t group)
{
    if (m->super == 0)
        return 0;
    return matrix_group_offset(m, group - group % matrix_super_groups(m)) - matrix_super_bytes(m);
}

static inline size_t matrix_panel_bytes(const struct matrix *m)
{
    if (matrix_has_groups(m))
        return (size_t)(m->k / m->group) * matrix_group_bytes(m) +
               (m->super ? m->k / m->super * matrix_super_bytes(m) : 0);
    return (size_t)m->k * MATRIX_PANEL * (m->form == MATRIX_F32 ? 4 : 2);
}

/* At most `count` panels of one matrix, from `panel` on, as a matrix of its own. */
static inline struct matrix matrix_part(const struct matrix *m, uint32_t panel, uint32_t count)
{
    struct matrix part = *m;
    uint32_t left = m->n - panel * MATRIX_PANEL;
    part.data = (const char *)m->data + panel * matrix_panel_bytes(m);
    part.n = count * MATRIX_PANEL < left ? count * MATRIX_PANEL : left;
    return part;
}

#endif
