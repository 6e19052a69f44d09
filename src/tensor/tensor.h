/* tensor.h - what a checkpoint holds, as data: dtypes, shapes and quantised layouts. No arithmetic on
 * weights happens here. */
#ifndef PLATEAU_TENSOR_TENSOR_H
#define PLATEAU_TENSOR_TENSOR_H

#include "base/slice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_BOOL,
    DTYPE_U8,
    DTYPE_I8,
    DTYPE_U16,
    DTYPE_I16,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_U32,
    DTYPE_I32,
    DTYPE_F32,
    DTYPE_U64,
    DTYPE_I64,
    DTYPE_F64,
    DTYPE_F8_E4M3,
    DTYPE_F8_E5M2,
    DTYPE_F8_E8M0,
    DTYPE_COUNT,
    DTYPE_BLOCKS /* not a dtype: rows are blocks of tensor.form */
};

/* Returns the spelling of safetensors: "BF16". */
const char *dtype_name(enum dtype d);
bool dtype_parse(struct slice name, enum dtype *ret);
size_t dtype_bytes(enum dtype d);

#define TENSOR_RANK_MAX 6

struct block_form;

/* A tensor, and where its bytes are: in a file of a checkpoint, from where checkpoint_read() brings pieces of
 * them, or in memory. In memory they may be UNALIGNED (MLX pads nothing): never cast and dereference, use
 * tensor_load_* below or memcpy. */
struct tensor {
    enum dtype dtype;
    const struct block_form *form; /* with DTYPE_BLOCKS, else NULL */
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX]; /* row-major, outermost first */
    size_t bytes;
    const void *data; /* NULL: in a file */
    uint64_t offset;  /* in the file, from its start */
    uint32_t file;    /* the checkpoint's number of it */
};

/* Returns the name of its dtype or its form: "BF16", "Q4_K". */
const char *tensor_form_name(const struct tensor *t);
/* Product of the shape, 1 for rank 0; UINT64_MAX on overflow. */
uint64_t tensor_count(const struct tensor *t);
/* A matrix of `rows` rows of `row` bytes each; `data` is the caller's and stays. */
struct tensor tensor_in_memory(enum dtype dtype, uint64_t rows, size_t row, const void *data);
bool tensor_has_shape(const struct tensor *t, uint32_t rank, const uint64_t *wanted);
/* "[8, 384, 48]" into `ret` of at least 128 bytes; returns ret. */
char *tensor_shape_text(uint32_t rank, const uint64_t *shape, char *ret, size_t bytes_max);

float bf16_to_f32(uint16_t b);
/* The nearest, ties to even; a NaN stays one. */
uint16_t bf16_from_f32(float f);
float f16_to_f32(uint16_t h);
/* A float of 1, 4 and 3 bits: no infinities, 0x7f is NaN. */
float e4m3_to_f32(uint8_t b);
#define E4M3_MAX 448.0f
/* The nearest, ties to even, at most E4M3_MAX in size; f is not NaN. */
uint8_t e4m3_from_f32(float f);

/* Element i as float, of BF16, F16, F32, F8_E4M3, F8_E8M0, I8 or U8. */
float tensor_f32_at(const struct tensor *t, uint64_t i);

/* Another order of a matrix's rows, of its columns or of a vector. After the first `from`, units of `size`
 * form grids of rows x columns. Unit (j, r) of a grid lies in the file at (r, j). rows 0: no other order. */
struct tensor_reorder {
    uint64_t from, rows, columns, size;
};

/* Where the file has index `i`. */
uint64_t tensor_reorder_at(const struct tensor_reorder *o, uint64_t i);

/* Meaning of a code of a quantised matrix: the code itself, or a number that it looks up. */
enum code_map {
    CODES_WHOLE, /* itself */
    CODES_E2M1,  /* 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives */
    CODES_IQ4,   /* 4 bits: CODES_IQ4_TABLE, whole numbers from -127 to 113 */
    CODES_E4M3,  /* 8 bits: a float of 1, 4 and 3 bits */
    /* 4 bits of a word of eight values (codebook.h). Scales are I8, odd numbers from 1 to 31. */
    CODES_IQ1,
    CODES_IQ2_XXS,
    CODES_IQ2_XS,
    CODES_IQ2_S,
    CODES_IQ3_XXS,
    CODES_IQ3_S,
};
/* Whether codes are words of a codebook. */
static inline bool code_is_word(enum code_map map)
{
    return map >= CODES_IQ1;
}

/* Bits of a word. */
static inline uint32_t code_word_bits(enum code_map map)
{
    switch (map) {
    case CODES_IQ1:
        return 12;
    case CODES_IQ2_S:
        return 18;
    case CODES_IQ3_XXS:
        return 24;
    case CODES_IQ3_S:
        return 26;
    default:
        return 16;
    }
}

/* E2M1 twice, and IQ4: initializers of 16 int8_t. */
#define CODES_E2M1_TABLE                                                                                     \
    {                                                                                                        \
        0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12                                              \
    }
#define CODES_IQ4_TABLE                                                                                      \
    {                                                                                                        \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113                             \
    }

/* A value is scale * number + bias, the number that of its code. */
enum bias_kind {
    BIASES_STORED,  /* a tensor has them */
    BIASES_CENTRED, /* -scale * 2^(bits - 1) with CODES_WHOLE, else none */
    BIASES_ZEROS,   /* -scale * z; the tensor `biases` has z, one U8 each */
};

struct stored_form;

/* A linear layer's weight as the checkpoint stores it: [out, in], or [experts, out, in] (rank 3).
 * Dense: BF16, F16 or F32. Affine (MLX, contract 1.6, and all forms with scales): `weight` has in * bits / 8
 * bytes a row, one little-endian bit stream; scales are BF16, F16, F32, E8M0, E4M3 or I8, one per group.
 * Transposed (dense only): the tensor is [in, out], or [experts, in, out]. */
struct linear_source {
    bool affine;
    uint32_t bits, group; /* affine only: 2,3,4,5,6,8 and 16,32,64,128 */
    enum code_map codes;
    enum bias_kind bias_kind;
    uint64_t experts; /* 1 for a plain matrix */
    uint64_t out, in;
    struct tensor weight, scales, biases;
    /* Scales of two levels: that of a group is supers[row][column / super] times its own. F16 with I8 scales,
     * which stored biases share: a second value times -bias. F32 with E4M3 scales. super 0: one level. */
    uint32_t super;
    struct tensor supers;
    /* How the files store it, where that is not the above (weights/stored_form.h): the tensors are whole, and
     * the matrix is its rows from `first_row` on. NULL: as above. Where no kernel has groups of such a width
     * it is not affine, but of F32 rows (dtype of `weight`): reading makes them of codes and scales. */
    const struct stored_form *stored;
    uint64_t first_row, stored_rows;    /* the matrix's first row; rows of the stored tensors */
    uint32_t scale_rows, scale_columns; /* rows and columns of one stored scale; scale_rows 0: one has all
                                         * rows */
    bool transposed;
    bool interleaved; /* transposed only: its columns 0, 2, 4, ... are the first half of the rows, the others
                         the second. So are the bias's values */
    /* A weight of DTYPE_BLOCKS is affine as block_form_source() says. Codes, scales and biases lie in its
     * blocks: the other tensors have no bytes. */
    struct tensor_reorder row_order, column_order; /* order of the weight's rows and columns; the bias has the
                                                * rows' order */
    bool has_bias;                                 /* y = w x + bias; not part of the values below */
    struct tensor bias;                            /* [out] */
    float bias_factor;                             /* its values are times this; 0: as they are */
    /* The weight has floats. staging_rows() quantises them (quantise.h): the source is affine with F16 scales
     * and biases, and those tensors have no bytes. */
    bool at_load;
    bool exact; /* its products are in f32 in every compute mode: few, and much depends on them */
};

/* The number of a code; not of words. */
float code_number(enum code_map map, uint32_t code);
/* The number of code `at` of those at `codes`, a byte each. */
float code_number_at(enum code_map map, const uint8_t *codes, uint64_t at);
/* The number that kernels multiply: 2 * value for E2M1, value / 256 for E4M3. code_scale() is the inverse
 * factor. Not of words (codebook.h). */
float code_factor(enum code_map map, uint32_t code);
float code_scale(enum code_map map);
/* Scale and bias of group `group` of row `row`, all experts counted; of a source in memory. */
float linear_source_scale(const struct linear_source *s, uint64_t row, uint64_t group);
float linear_source_bias(const struct linear_source *s, uint64_t row, uint64_t group);

/* Where row `row` is among the columns of a transposed source. */
uint64_t linear_source_column(const struct linear_source *s, uint64_t row);

/* Value [expert][row][column], from its definition: the reference every packing is tested against. */
float linear_source_at(const struct linear_source *s, uint64_t expert, uint64_t row, uint64_t column);

#endif
