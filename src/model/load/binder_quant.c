/* binder_quant.c - quantised matrices of writers other than MLX and GGUF: which tensors a module has, and
 * what they make it.
 *
 * A module is quantised iff it has its companions; lists of modules in config.json repeat that. Bits and
 * group follow from shapes. A group has at most 128 columns: a scale of more stands in several groups. */
#include "model/config/config.h"
#include "model/load/binder.h"
#include "model/load/packers.h"
#include "model/load/weight_staging.h"

#include "base/check.h"
#include "weights/checkpoint.h"
#include "weights/stored_form.h"

#include <errno.h>
#include <stdio.h>

/* A module, and what becomes of it. */
struct finder {
    struct binder *b;
    const char *module;
    uint32_t rank; /* 2, or 3: a stack */
    struct linear_source *s;
    char name[BINDER_NAME_MAX]; /* name of the tensor that was looked for last */
};

static bool has(struct finder *f, const char *suffix, struct tensor *ret)
{
    snprintf(f->name, sizeof(f->name), "%s%s", f->module, suffix);
    return binder_find_optional(f->b, f->name, ret);
}

static int need(struct finder *f, const char *suffix, struct tensor *ret)
{
    snprintf(f->name, sizeof(f->name), "%s%s", f->module, suffix);
    return binder_find(f->b, f->name, ret);
}

static int wrong_dtype(struct finder *f, const char *suffix, const struct tensor *t, const char *wanted)
{
    return err_set(f->b->e, -ENOTSUP, "tensor %s%s has dtype %s; supported is %s", f->module, suffix,
                   tensor_form_name(t), wanted);
}

/* [rows, columns], of a stack behind the number of experts. */
static int check(struct finder *f, const char *suffix, const struct tensor *t, uint64_t rows,
                 uint64_t columns)
{
    const uint64_t stack[3] = {f->s->experts, rows, columns};
    snprintf(f->name, sizeof(f->name), "%s%s", f->module, suffix);
    return binder_check_shape(f->b, f->name, t, f->rank, f->rank == 3 ? stack : stack + 1);
}

/* The widest group of which a scale of `columns` columns is a whole number, or all columns. Of groups below
 * 16, which only small matrices need, kernels know nothing: their rows become F32. */
static void set_group(struct linear_source *s, uint64_t columns)
{
    s->group = 128;
    while (s->in % s->group != 0 || columns % s->group != 0)
        s->group /= 2;
    if (s->group >= 16)
        return;
    s->affine = false;
    s->weight.dtype = DTYPE_F32;
}

static void set_affine(struct linear_source *s, uint32_t bits, enum code_map codes)
{
    s->affine = true;
    s->bits = bits;
    s->codes = codes;
    s->bias_kind = BIASES_CENTRED;
    s->stored_rows = s->out;
}

/* Scales of one line [1, columns] for `rows` rows each. */
static int set_scales(struct finder *f, const char *suffix, uint64_t rows, uint64_t columns)
{
    struct linear_source *s = f->s;
    s->scale_rows = (uint32_t)rows;
    s->scale_columns = (uint32_t)columns;
    uint64_t lines = rows ? (s->out + rows - 1) / rows : 1;
    int r = check(f, suffix, &s->scales, lines, (s->in + columns - 1) / columns);
    if (r == 0)
        set_group(s, columns);
    return r;
}

/* A scale for each row, for blocks, or one for all. */
static int find_scales(struct finder *f, const char *suffix)
{
    struct linear_source *s = f->s;
    struct tensor *t = &s->scales;
    const uint32_t block_rows = f->b->config->quantization.block_rows;
    const uint32_t block_columns = f->b->config->quantization.block_columns;
    if (t->dtype == DTYPE_U8)
        t->dtype = DTYPE_F8_E8M0;
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_F8_E8M0)
        return wrong_dtype(f, suffix, t, "F32, F16, BF16 or F8_E8M0");
    if (f->rank == 2 && tensor_count(t) == 1) {
        *t = (struct tensor){.dtype = t->dtype,
                             .rank = 2,
                             .shape = {1, 1},
                             .bytes = t->bytes,
                             .offset = t->offset,
                             .file = t->file};
        return set_scales(f, suffix, 0, s->in);
    }
    if (f->rank == 2 && t->rank == 1) {
        t->rank = 2;
        t->shape[1] = 1;
    }
    uint64_t columns = t->rank == f->rank ? t->shape[t->rank - 1] : 0;
    if (block_rows && block_columns && columns == (s->in + block_columns - 1) / block_columns &&
        t->shape[t->rank - 2] == (s->out + block_rows - 1) / block_rows)
        return set_scales(f, suffix, block_rows, block_columns);
    if (columns == 0 || s->in % columns != 0 || t->shape[t->rank - 2] != s->out)
        return check(f, suffix, t, s->out, 1);
    return set_scales(f, suffix, 1, s->in / columns);
}

/* A factor of all scales. */
static int find_super(struct finder *f, const char *suffix)
{
    struct linear_source *s = f->s;
    int r = need(f, suffix, &s->supers);
    if (r < 0)
        return r;
    if (s->supers.dtype != DTYPE_F32)
        return wrong_dtype(f, suffix, &s->supers, "F32");
    if (tensor_count(&s->supers) != 1)
        return err_set(f->b->e, -EINVAL, "tensor %s has several values; supported is one", f->name);
    s->super = (uint32_t)s->in;
    return 0;
}

/* Two values of E2M1 a byte, with E4M3 scales of 16 and a factor. */
static int find_nvfp4(struct finder *f, const char *weight, const char *super, const char *form)
{
    struct linear_source *s = f->s;
    set_affine(s, 4, CODES_E2M1);
    s->stored = stored_form_find(form);
    int r = check(f, weight, &s->weight, s->out, s->in / 2);
    if (r == 0 && s->scales.dtype != DTYPE_F8_E4M3)
        r = wrong_dtype(f, ".weight_scale", &s->scales, "F8_E4M3");
    if (r == 0)
        r = find_super(f, super);
    if (r == 0)
        r = set_scales(f, ".weight_scale", 1, 16);
    s->group = MIN_OF(s->group, 16u);
    return r;
}

/* Bytes with scales: FP8, whole numbers, or NVFP4 of modelopt. */
static int find_bytes(struct finder *f, const char *weight, const char *scales)
{
    struct linear_source *s = f->s;
    struct tensor t;
    if (s->weight.dtype == DTYPE_U8 && has(f, ".weight_scale_2", &t))
        return find_nvfp4(f, weight, ".weight_scale_2", "nvfp4");
    if (s->weight.dtype != DTYPE_F8_E4M3 && s->weight.dtype != DTYPE_I8)
        return wrong_dtype(f, weight, &s->weight, "F8_E4M3 or I8");
    if (has(f, ".weight_zero_point", &t))
        return err_set(f->b->e, -ENOTSUP, "tensor %s: zero points of bytes are not supported", f->name);
    bool fp8 = s->weight.dtype == DTYPE_F8_E4M3;
    set_affine(s, 8, fp8 ? CODES_E4M3 : CODES_WHOLE);
    s->stored = stored_form_find(fp8 ? "rows" : "int8");
    int r = check(f, weight, &s->weight, s->out, s->in);
    return r < 0 ? r : find_scales(f, scales);
}

static int find_zeros(struct finder *f)
{
    struct linear_source *s = f->s;
    if (!has(f, ".weight_zero_point", &s->biases))
        return 0;
    if (s->biases.dtype != DTYPE_I32)
        return wrong_dtype(f, ".weight_zero_point", &s->biases, "I32");
    s->bias_kind = BIASES_ZEROS;
    return check(f, ".weight_zero_point", &s->biases, DIV_UP(s->out * s->bits, (uint64_t)32),
                 s->in / s->scale_columns);
}

/* compressed-tensors: whole numbers in words, or small floats. */
static int find_packed(struct finder *f, const char *weight, const char *scales)
{
    struct linear_source *s = f->s;
    struct tensor t;
    if (has(f, ".weight_g_idx", &t))
        return err_set(f->b->e, -ENOTSUP,
                       "tensor %s: columns in the order of their activations (actorder) "
                       "are not supported",
                       f->name);
    if (s->weight.dtype == DTYPE_U8 && s->scales.dtype == DTYPE_F8_E4M3)
        return find_nvfp4(f, weight, ".weight_global_scale", "nvfp4 divided");
    if (s->weight.dtype == DTYPE_U8) {
        set_affine(s, 4, CODES_E2M1);
        s->stored = stored_form_find("rows");
        int r = check(f, weight, &s->weight, s->out, s->in / 2);
        return r < 0 ? r : find_scales(f, scales);
    }
    uint64_t bits = s->weight.rank == f->rank ? s->weight.shape[f->rank - 1] * 32 / s->in : 0;
    if (s->weight.dtype != DTYPE_I32)
        return wrong_dtype(f, weight, &s->weight, "I32 or U8");
    if (bits != 4 && bits != 8)
        return err_set(f->b->e, -ENOTSUP, "tensor %s%s: %llu bits are not supported; 4 and 8 are", f->module,
                       weight, (ull)bits);
    set_affine(s, (uint32_t)bits, CODES_WHOLE);
    s->stored = stored_form_find("rows");
    int r = s->in * bits % 32 == 0 ? check(f, weight, &s->weight, s->out, s->in * bits / 32)
                                   : check(f, weight, &s->weight, s->out, 0);
    if (r == 0)
        r = find_scales(f, scales);
    return r < 0 ? r : find_zeros(f);
}

/* gpt-oss: blocks of 32 values. */
static int find_blocks(struct finder *f, const char *weight, const char *scales)
{
    struct linear_source *s = f->s;
    const uint64_t shape[4] = {s->experts, s->out, s->in / 32, 16};
    set_affine(s, 4, CODES_E2M1);
    s->group = 32;
    snprintf(f->name, sizeof(f->name), "%s%s", f->module, weight);
    if (s->weight.dtype != DTYPE_U8)
        return wrong_dtype(f, weight, &s->weight, "U8");
    if (s->scales.dtype != DTYPE_U8)
        return wrong_dtype(f, scales, &s->scales, "U8");
    if (f->rank != 3 || s->in % 32 != 0)
        return err_set(f->b->e, -ENOTSUP, "tensor %s: blocks of this matrix are not supported", f->name);
    int r = binder_check_shape(f->b, f->name, &s->weight, 4, shape);
    if (r < 0)
        return r;
    s->weight.rank = 3;
    s->weight.shape[2] = s->in / 2;
    s->scales.dtype = DTYPE_F8_E8M0;
    return check(f, scales, &s->scales, s->out, s->in / 32);
}

/* Order i / group alone, which is read with the weights. */
static int check_order(struct finder *f, const struct tensor *t, uint64_t columns)
{
    const uint64_t in = f->s->in;
    struct tensor order;
    if (t->dtype != DTYPE_I32)
        return wrong_dtype(f, ".g_idx", t, "I32");
    int r = binder_check_shape(f->b, f->name, t, 1, &in);
    f->b->stage_bytes = MAX_OF(f->b->stage_bytes, weight_staging_vector_bytes(t));
    if (r < 0 || !f->b->memory || f->b->used < f->b->ready)
        return r;
    r = weight_staging_vector(packers_staging(f->b->packers), t, &order, f->b->e);
    for (uint64_t i = 0; r == 0 && i < in; i++) {
        int32_t group;
        memcpy(&group, (const char *)order.data + i * 4, 4);
        if (group < 0 || (uint64_t)group >= DIV_UP(in, columns))
            r = err_set(f->b->e, -EINVAL, "tensor %s: group %d of column %llu is out of range", f->name,
                        group, (ull)i);
        else if ((uint64_t)group != i / columns)
            r = err_set(f->b->e, -ENOTSUP,
                        "tensor %s: columns in the order of their activations (desc_act) are not supported",
                        f->name);
    }
    return r;
}

static int check_words(struct finder *f, const char *suffix, const struct tensor *t, uint64_t rows,
                       uint64_t columns)
{
    return t->dtype == DTYPE_I32 ? check(f, suffix, t, rows, columns) : wrong_dtype(f, suffix, t, "I32");
}

/* Columns of each of `groups` groups, or 0. The last group may have fewer where config.json has the number. A
 * module of another group than that has a power of two. */
static uint64_t group_columns(const struct finder *f, uint64_t groups)
{
    const uint64_t in = f->s->in, given = f->b->config->quantization.group;
    if (groups == 0)
        return 0;
    if (given && DIV_UP(in, given) == groups)
        return MIN_OF(given, in);
    const uint64_t columns = in / groups;
    return in % groups == 0 && (groups == 1 || (columns & (columns - 1)) == 0) ? columns : 0;
}

/* AWQ and GPTQ. */
static int find_columns(struct finder *f, const char *weight, const char *scales)
{
    struct linear_source *s = f->s;
    struct tensor order;
    const enum quantization_method method = f->b->config->quantization.method;
    const bool awq = method == QUANTIZATION_AWQ;
    if (!awq && method != QUANTIZATION_GPTQ && method != QUANTIZATION_GPTQ_V2)
        return err_set(f->b->e, -EINVAL, "tensor %s%s exists, but config.json names neither awq nor gptq",
                       f->module, weight);
    const uint64_t groups = s->scales.rank == 2 ? s->scales.shape[0] : 0;
    const uint64_t columns = group_columns(f, groups);
    if (f->rank != 2 || s->weight.rank != 2 || columns == 0)
        return err_set(f->b->e, -EINVAL,
                       "tensors %s%s and %s do not fit a matrix of %llu rows and %llu columns", f->module,
                       weight, scales, (ull)s->out, (ull)s->in);
    uint64_t bits = awq ? 4 : s->weight.shape[0] * 32 / s->in;
    if (bits != 2 && bits != 4 && bits != 8)
        return err_set(f->b->e, -ENOTSUP, "tensor %s%s: %llu bits are not supported; 2, 4 and 8 are",
                       f->module, weight, (ull)bits);
    set_affine(s, (uint32_t)bits, CODES_WHOLE);
    s->bias_kind = BIASES_ZEROS;
    s->stored = stored_form_find(awq ? "awq" : method == QUANTIZATION_GPTQ ? "gptq" : "gptq v2");
    const uint64_t words = s->out * bits / 32;
    s->scale_columns = (uint32_t)columns;
    int r = s->out * bits % 32 == 0 && s->in * bits % 32 == 0
                ? need(f, ".qzeros", &s->biases)
                : err_set(f->b->e, -EINVAL, "%s: %llu x %llu values of %llu bits do not fill whole words",
                          f->module, (ull)s->out, (ull)s->in, (ull)bits);
    if (r == 0)
        r = awq ? check_words(f, weight, &s->weight, s->in, words)
                : check_words(f, weight, &s->weight, s->in * bits / 32, s->out);
    if (r == 0)
        r = check_words(f, ".qzeros", &s->biases, groups, words);
    if (r == 0 && s->scales.dtype != DTYPE_F16 && s->scales.dtype != DTYPE_BF16 &&
        s->scales.dtype != DTYPE_F32)
        r = wrong_dtype(f, scales, &s->scales, "F16, BF16 or F32");
    if (r == 0)
        r = check(f, scales, &s->scales, groups, s->out);
    if (r == 0)
        set_group(s, columns);
    return r == 0 && has(f, ".g_idx", &order) ? check_order(f, &order, columns) : r;
}

/* The tensors that make a module of a form, the first that fits. A stack of experts has no ".weight". */
static const struct {
    const char *weight, *scales;
    int (*find)(struct finder *f, const char *weight, const char *scales);
} forms[] = {
    {".qweight", ".scales", find_columns},    {".weight_packed", ".weight_scale", find_packed},
    {"_blocks", "_scales", find_blocks},      {".weight", ".weight_scale_inv", find_bytes},
    {".weight", ".weight_scale", find_bytes}, {"", "_scale_inv", find_bytes},
};

/* A weight that only a quantised module has. */
static bool has_own_name(const char *weight)
{
    return weight[0] && strcmp(weight, ".weight") != 0;
}

bool binder_has_stored(const struct binder *b, const char *module)
{
    char name[BINDER_NAME_MAX];
    struct tensor t;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        snprintf(name, sizeof(name), "%s%s", module, forms[i].weight);
        if (has_own_name(forms[i].weight) && binder_find_optional(b, name, &t))
            return true;
    }
    return false;
}

/* Factors of a module's inputs, which modelopt's AWQ has beside its scales. */
static int refuse_inputs(struct finder *f)
{
    struct tensor t;
    return has(f, ".pre_quant_scale", &t)
               ? err_set(f->b->e, -ENOTSUP, "tensor %s: factors of inputs are not supported", f->name)
               : 0;
}

int binder_stored_source(struct binder *b, const char *module, uint32_t rank, struct linear_source *s,
                         bool *found)
{
    struct linear_source source = *s;
    struct finder f = {.b = b, .module = module, .rank = rank, .s = &source};
    *found = false;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        bool named = has_own_name(forms[i].weight);
        if (!has(&f, forms[i].weight, &source.weight) ||
            (!named && !has(&f, forms[i].scales, &source.scales)))
            continue;
        *found = true;
        int r = refuse_inputs(&f);
        if (r == 0)
            r = need(&f, forms[i].scales, &source.scales);
        if (r == 0)
            r = forms[i].find(&f, forms[i].weight, forms[i].scales);
        if (r == 0)
            *s = source;
        return r;
    }
    return 0;
}
