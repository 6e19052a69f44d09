/* mk_shape.h - the models that mkmodel can make up: their numbers, and the config.json that states them.
 *
 * Constant tables; any thread. */
#ifndef PLATEAU_TOOLS_MK_SHAPE_H
#define PLATEAU_TOOLS_MK_SHAPE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MK_GROUP         64  /* values per affine scale */
#define MK_BLOCK         128 /* rows and columns of an FP8 scale */
#define MK_TAPS          4   /* taps of the delta net's convolution */
#define MK_FULL_INTERVAL 4   /* one of this many layers of a hybrid has full attention */

/* Patches of 16 x 16 pixels, merged 2 x 2; stored as bf16 in every form. */
#define MK_PATCH 16
#define MK_MERGE 2
struct mk_vision {
    uint32_t depth, hidden, heads, intermediate;
    uint32_t grid; /* edge of the table of positions */
};

struct mk_shape {
    const char *name;
    const char *model_type; /* "qwen3", "qwen3_5", "qwen3_5_moe" */
    uint32_t layers, hidden, vocab, context_max;
    uint32_t heads, kv_heads, head_dim;
    uint32_t intermediate; /* dense MLP */
    bool tied;
    double rope_theta;
    /* Linear attention; 0 without it. */
    uint32_t key_heads, value_heads, linear_dim;
    /* Experts; 0 = none. */
    uint32_t experts, top_k, expert_intermediate, shared_intermediate;
    struct mk_vision vision; /* hybrids only; zeros: none */
};

/* How weights are stored. */
struct mk_form {
    const char *name;
    uint32_t bits; /* MLX affine; 0: bf16 */
    bool floats;   /* matrices of layers are FP8 in blocks, as Hugging Face writes them */
};

extern const struct mk_shape mk_shapes[]; /* the last one has no name */
extern const struct mk_form mk_forms[];   /* the last one has no name */

/* Whether the form has names for all of the shape's matrices: of FP8 only dense layers. */
static inline bool mk_form_fits(const struct mk_form *f, const struct mk_shape *s)
{
    return !f->floats || (s->experts == 0 && s->value_heads == 0);
}

/* NULL: unknown name. */
const struct mk_shape *mk_shape_find(const char *name);
const struct mk_form *mk_form_find(const char *name);

static inline bool mk_shape_is_hybrid(const struct mk_shape *s)
{
    return s->value_heads > 0;
}

static inline bool mk_shape_is_full(const struct mk_shape *s, uint32_t layer)
{
    return !mk_shape_is_hybrid(s) || (layer + 1) % MK_FULL_INTERVAL == 0;
}

/* Bits of an expert layer's router and of the gate of its shared expert: MLX's converters never go below 8
 * there. */
static inline uint32_t mk_form_gate_bits(const struct mk_form *f)
{
    return f->bits ? 8 : 0;
}

/* Prefix of "layers.0..." in names: Hugging Face's and MLX's writers differ. */
const char *mk_shape_prefix(const struct mk_shape *s, const struct mk_form *f);

/* config.json of the shape with `layers` layers. Errors show in ferror(out). */
void mk_shape_config(FILE *out, const struct mk_shape *s, const struct mk_form *f, uint32_t layers);

#endif
