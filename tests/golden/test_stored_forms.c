/* The forms that Hugging Face repositories have, over matrices of wide and of narrow rows: codes and scales
 * are drawn, and a model of what they mean is the reference. Then each tensor wrong, and files cut
 * anywhere. */
#include "model_path.h"
#include "small_quantised.h"

struct matrix_at {
    struct test_tensors *l;
    const char *module;
    struct rng *rng;
    uint64_t out, in;
    float *values; /* numbers that the codes stand for */
};

static void *put(const struct matrix_at *m, const char *suffix, enum dtype dtype, uint64_t rows,
                 uint64_t columns)
{
    char name[256];
    const uint64_t shape[2] = {rows, columns};
    snprintf(name, sizeof(name), "%s%s", m->module, suffix);
    return test_tensor_add(m->l, name, dtype, columns ? 2 : 1, shape);
}

static float scale_of(struct rng *rng)
{
    return (float)(16 + rng_below(rng, 48)) * 0x1p-10f;
}

static uint32_t draw(struct rng *rng, uint32_t below)
{
    return (uint32_t)rng_below(rng, below);
}

/* ---- bytes ---- */

static void bytes(const struct matrix_at *m, const char *suffix, uint64_t block_rows, uint64_t block_columns,
                  bool fp8)
{
    uint64_t lines = DIV_UP(m->out, block_rows), columns = DIV_UP(m->in, block_columns);
    uint8_t *codes = put(m, ".weight", fp8 ? DTYPE_F8_E4M3 : DTYPE_I8, m->out, m->in);
    float *scales = put(m, suffix, DTYPE_F32, lines, columns);
    for (uint64_t i = 0; i < lines * columns; i++)
        scales[i] = scale_of(m->rng) * (fp8 ? 0.25f : 0.125f);
    for (uint64_t i = 0; i < m->out * m->in; i++) {
        codes[i] = (uint8_t)draw(m->rng, fp8 ? 0x50 : 256); /* codes of E4M3 below 16 */
        codes[i] |= fp8 && draw(m->rng, 2) ? 0x80 : 0;
        float number = fp8 ? e4m3_to_f32(codes[i]) : (float)(int8_t)codes[i] / 8;
        m->values[i] =
            number * scales[i / m->in / block_rows * columns + i % m->in / block_columns] * (fp8 ? 1 : 8);
    }
}

static void fp8_block(const struct matrix_at *m)
{
    bytes(m, ".weight_scale_inv", 16, 16, true);
}

static void fp8_row(const struct matrix_at *m)
{
    bytes(m, ".weight_scale", 1, m->in, true);
}

static void fp8_tensor(const struct matrix_at *m)
{
    bytes(m, ".weight_scale", m->out, m->in, true);
}

static void int8_row(const struct matrix_at *m)
{
    bytes(m, ".weight_scale", 1, m->in, false);
}

/* ---- words ---- */

static void put_field(uint32_t *words, uint64_t at, uint32_t bits, uint32_t code)
{
    words[at * bits / 32] |= code << at * bits % 32;
}

/* A scale and a zero point for each group; words hold the zero points of several rows. */
static void packed(const struct matrix_at *m, uint32_t bits, uint64_t group)
{
    uint64_t groups = m->in / group, each = 32 / bits;
    uint32_t *words = put(m, ".weight_packed", DTYPE_I32, m->out, m->in / each);
    uint32_t *zeros = put(m, ".weight_zero_point", DTYPE_I32, m->out / each, groups);
    float *scales = put(m, ".weight_scale", DTYPE_F32, m->out, groups);
    for (uint64_t row = 0; row < m->out; row++) {
        for (uint64_t g = 0; g < groups; g++) {
            uint32_t zero = draw(m->rng, 1u << bits);
            float scale = scales[row * groups + g] = scale_of(m->rng) * 0x1p4f / (float)(1u << bits);
            zeros[row / each * groups + g] |= zero << row % each * bits;
            for (uint64_t k = g * group; k < (g + 1) * group; k++) {
                uint32_t code = draw(m->rng, 1u << bits);
                put_field(words + row * (m->in / each), k, bits, code);
                m->values[row * m->in + k] = ((float)code - (float)zero) * scale;
            }
        }
    }
}

static void int4_groups(const struct matrix_at *m)
{
    packed(m, 4, 8);
}

static void int8_rows_packed(const struct matrix_at *m)
{
    packed(m, 8, m->in);
}

static uint64_t awq_field(uint64_t column)
{
    static const uint8_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return column / 8 * 8 + order[column % 8];
}

/* AWQ, GPTQ and its second version: a matrix on its side. The last group may be short. GPTQ's first version
 * lacks 1 in each field of a word, so a zero point of 0 borrows from the next field. */
static void columns(const struct matrix_at *m, bool awq, bool less_one, uint64_t group)
{
    enum { BITS = 4 };
    uint64_t groups = DIV_UP(m->in, group), words = m->out * BITS / 32;
    uint32_t *codes = awq ? put(m, ".qweight", DTYPE_I32, m->in, words)
                          : put(m, ".qweight", DTYPE_I32, m->in * BITS / 32, m->out);
    uint32_t *zeros = put(m, ".qzeros", DTYPE_I32, groups, words);
    float *scales = put(m, ".scales", DTYPE_F32, groups, m->out);
    for (uint64_t row = 0; row < m->out; row++) {
        for (uint64_t k = 0; k < m->in; k++) {
            uint64_t g = k / group, field = awq ? awq_field(row) : row;
            if (k % group == 0) {
                put_field(zeros + g * words, field, BITS, draw(m->rng, 16));
                scales[g * m->out + row] = scale_of(m->rng);
            }
            uint32_t code = draw(m->rng, 16), zero = zeros[g * words + field / 8] >> field % 8 * 4 & 15;
            if (awq)
                put_field(codes + k * words, field, BITS, code);
            else
                codes[k / 8 * m->out + row] |= code << k % 8 * 4;
            m->values[row * m->in + k] = ((float)code - (float)zero) * scales[g * m->out + row];
        }
    }
    for (uint64_t i = 0; less_one && i < groups * words; i++)
        zeros[i] -= 0x11111111;
    int32_t *order = awq ? NULL : put(m, ".g_idx", DTYPE_I32, m->in, 0);
    for (uint64_t k = 0; order && k < m->in; k++)
        order[k] = (int32_t)(k / group);
}

static void awq(const struct matrix_at *m)
{
    columns(m, true, false, 8);
}

static void awq_short(const struct matrix_at *m)
{
    columns(m, true, false, 64);
}

static void awq_rows(const struct matrix_at *m)
{
    columns(m, true, false, m->in);
}

static void gptq(const struct matrix_at *m)
{
    columns(m, false, true, 8);
}

static void gptq_short(const struct matrix_at *m)
{
    columns(m, false, true, 64);
}

static void gptq_rows(const struct matrix_at *m)
{
    columns(m, false, true, m->in);
}

static void gptq_v2(const struct matrix_at *m)
{
    columns(m, false, false, 8);
}

/* ---- four bits of E2M1 ---- */

static void nvfp4(const struct matrix_at *m, bool divides)
{
    uint64_t groups = DIV_UP(m->in, (uint64_t)16);
    uint8_t *codes = put(m, divides ? ".weight_packed" : ".weight", DTYPE_U8, m->out, m->in / 2);
    uint8_t *scales = put(m, ".weight_scale", DTYPE_F8_E4M3, m->out, groups);
    float *global = put(m, divides ? ".weight_global_scale" : ".weight_scale_2", DTYPE_F32, 1, 0);
    *global = divides ? 128 : 1.0f / 128;
    for (uint64_t i = 0; i < m->out * groups; i++)
        scales[i] = (uint8_t)(0x40 + draw(m->rng, 16));
    for (uint64_t i = 0; i < m->out * m->in; i++) {
        uint32_t code = draw(m->rng, 16);
        codes[i / 2] |= (uint8_t)(code << i % 2 * 4);
        m->values[i] =
            code_number(CODES_E2M1, code) * e4m3_to_f32(scales[i / m->in * groups + i % m->in / 16]) / 128;
    }
}

static void nvfp4_divided(const struct matrix_at *m)
{
    nvfp4(m, true);
}

static void nvfp4_times(const struct matrix_at *m)
{
    nvfp4(m, false);
}

/* ---- models ---- */

#define COMPRESSED(format)                                                                                   \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format "\",\"config_groups\":{}}"

static const struct form {
    const char *name, *block;
    void (*put)(const struct matrix_at *m);
} forms[] = {
    {"fp8 block", "{\"quant_method\":\"fp8\",\"weight_block_size\":[16,16]}", fp8_block},
    {"fp8 row", COMPRESSED("float-quantized"), fp8_row},
    {"fp8 tensor", "{\"quant_method\":\"modelopt\"}", fp8_tensor},
    {"int8 row", COMPRESSED("int-quantized"), int8_row},
    {"int4 groups", COMPRESSED("pack-quantized"), int4_groups},
    {"int8 packed", COMPRESSED("pack-quantized"), int8_rows_packed},
    {"awq", "{\"quant_method\":\"awq\",\"bits\":4}", awq},
    {"awq, short groups", "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64}", awq_short},
    {"awq, whole rows", "{\"quant_method\":\"awq\",\"bits\":4,\"q_group_size\":-1}", awq_rows},
    {"gptq", "{\"quant_method\":\"gptq\",\"bits\":4}", gptq},
    {"gptq, short groups", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":64}", gptq_short},
    {"gptq, whole rows", "{\"quant_method\":\"gptq\",\"group_size\":-1,\"desc_act\":true}", gptq_rows},
    {"gptq v2", "{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"gptq_v2\"}", gptq_v2},
    {"gptq v2 by format", "{\"quant_method\":\"gptq\",\"bits\":4,\"format\":\"GPTQ_V2\"}", gptq_v2},
    {"nvfp4", COMPRESSED("nvfp4-pack-quantized"), nvfp4_divided},
    {"nvfp4 of modelopt", "{\"quant_method\":\"modelopt\"}", nvfp4_times},
};

/* Rows of 64, 96 and so on, or of 40, 48 and 72, of which no kernel has whole groups. */
static const struct dims {
    uint64_t hidden, wide, head;
} all_dims[] = {{64, 96, 32}, {40, 72, 24}};

/* A form's tensors in `l`, what they mean in `dense`. */
static void add_matrix(struct test_tensors *l, struct test_tensors *dense, struct rng *rng,
                       const struct form *f, const char *module, uint64_t out, uint64_t in)
{
    char name[256];
    const uint64_t shape[2] = {out, in};
    snprintf(name, sizeof(name), "model.layers.0.%s", module);
    struct matrix_at m = {.l = l, .module = name, .rng = rng, .out = out, .in = in};
    char weight[300];
    snprintf(weight, sizeof(weight), "%s.weight", name);
    m.values = test_tensor_add(dense, weight, DTYPE_F32, 2, shape);
    f->put(&m);
}

static void add_vector(struct test_tensors *l, struct test_tensors *dense, const char *name, uint64_t rows,
                       uint64_t columns, struct rng *rng)
{
    const uint64_t shape[2] = {rows, columns};
    float *a = test_tensor_add(l, name, DTYPE_F32, columns ? 2 : 1, shape);
    float *b = test_tensor_add(dense, name, DTYPE_F32, columns ? 2 : 1, shape);
    for (uint64_t i = 0; i < rows * (columns ? columns : 1); i++)
        a[i] = b[i] = (float)rng_uniform(rng) * 2 - (columns ? 1 : 0);
}

static void make(const struct form *f, const struct dims *d, struct test_tensors *l,
                 struct test_tensors *dense)
{
    struct rng at = {3, 0}, *rng = &at;
    add_vector(l, dense, "model.embed_tokens.weight", 96, d->hidden, rng);
    add_vector(l, dense, "model.norm.weight", d->hidden, 0, rng);
    add_vector(l, dense, "model.layers.0.input_layernorm.weight", d->hidden, 0, rng);
    add_vector(l, dense, "model.layers.0.post_attention_layernorm.weight", d->hidden, 0, rng);
    add_matrix(l, dense, rng, f, "self_attn.q_proj", 2 * d->head, d->hidden);
    add_matrix(l, dense, rng, f, "self_attn.k_proj", d->head, d->hidden);
    add_matrix(l, dense, rng, f, "self_attn.v_proj", d->head, d->hidden);
    add_matrix(l, dense, rng, f, "self_attn.o_proj", d->hidden, 2 * d->head);
    add_matrix(l, dense, rng, f, "mlp.gate_proj", d->wide, d->hidden);
    add_matrix(l, dense, rng, f, "mlp.up_proj", d->wide, d->hidden);
    add_matrix(l, dense, rng, f, "mlp.down_proj", d->hidden, d->wide);
}

/* Some writers have a bias of zeros beside each matrix, whatever the configuration says. */
static void add_zeros(struct test_tensors *l, const struct dims *d)
{
    const uint64_t rows = 2 * d->head;
    memset(test_tensor_add(l, "model.layers.0.self_attn.q_proj.bias", DTYPE_F32, 1, &rows), 0,
           rows * sizeof(float));
}

static void config_of(const struct dims *d, const struct form *f, char *ret, size_t bytes_max)
{
    snprintf(ret, bytes_max,
             "{\"model_type\":\"llama\",\"hidden_size\":%u,\"num_hidden_layers\":1,\"intermediate_size\":%u,"
             "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":%u,\"vocab_size\":96,"
             "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":true,\"max_position_embeddings\":512,"
             "\"attention_bias\":false%s%s}",
             (unsigned)d->hidden, (unsigned)d->wide, (unsigned)d->head, f ? ",\"quantization_config\":" : "",
             f ? f->block : "");
}

TEST(every_form_means_its_values_in_rows_of_any_width)
{
    for (size_t i = 0; i < COUNT_OF(forms) * COUNT_OF(all_dims); i++) {
        const struct form *f = &forms[i / COUNT_OF(all_dims)];
        const struct dims *d = &all_dims[i % COUNT_OF(all_dims)];
        struct test_tensors *l = small_tensors(), *dense = small_tensors();
        struct small_answer expected, got;
        char config[1024];
        make(f, d, l, dense);
        add_zeros(l, d);
        config_of(d, NULL, config, sizeof(config));
        small_ask(small_write(config, dense), &expected);
        config_of(d, f, config, sizeof(config));
        small_ask(small_write(config, l), &got);
        double difference = largest_difference(&expected, &got);
        if (!(difference < 2e-4))
            print_message("%s, rows of %u: %g\n", f->name, (unsigned)d->hidden, difference);
        assert_true(difference < 2e-4);
        small_free(l);
        small_free(dense);
    }
}

#define K_PROJ "model.layers.0.self_attn.k_proj"

/* The tensors of a module become what they mean. */
static void keep_floats(struct test_tensors *l, const struct test_tensors *dense)
{
    const struct test_tensor *from = test_tensor_find((struct test_tensors *)dense, K_PROJ ".weight");
    for (size_t i = l->count; i-- > 0;) {
        if (strncmp(l->list[i].name, K_PROJ ".", strlen(K_PROJ ".")) == 0)
            test_tensor_remove(l, l->list[i].name);
    }
    memcpy(test_tensor_add(l, K_PROJ ".weight", DTYPE_F32, 2, from->t.shape), from->t.data, from->t.bytes);
}

/* Also where rows have no whole groups, so that all parts of a projection are floats in memory. */
TEST(a_module_that_was_not_converted_keeps_its_floats)
{
    for (size_t i = 0; i < COUNT_OF(forms) * COUNT_OF(all_dims); i++) {
        const struct form *f = &forms[i / COUNT_OF(all_dims)];
        const struct dims *d = &all_dims[i % COUNT_OF(all_dims)];
        struct test_tensors *l = small_tensors(), *dense = small_tensors();
        struct small_answer expected, got;
        char config[1024];
        make(f, d, l, dense);
        keep_floats(l, dense);
        config_of(d, NULL, config, sizeof(config));
        small_ask(small_write(config, dense), &expected);
        config_of(d, f, config, sizeof(config));
        small_ask(small_write(config, l), &got);
        assert_true(largest_difference(&expected, &got) < 2e-4);
        small_free(l);
        small_free(dense);
    }
}

/* ---- wrong files ---- */

/* Loading a model of form `f` and width `d` with one tensor changed is refused, and the tensor named. */
static void refuses_with(int code, const char *form, const struct dims *d,
                         void (*change)(struct test_tensors *l), const char *says)
{
    const struct form *f = forms;
    struct test_tensors *l = small_tensors(), *dense = small_tensors();
    char config[1024];
    while (strcmp(f->name, form) != 0)
        f++;
    make(f, d, l, dense);
    change(l);
    config_of(d, f, config, sizeof(config));
    small_refuses(small_write(config, l), code, says);
    small_free(l);
    small_free(dense);
}

static void refuses(const char *form, const struct dims *d, void (*change)(struct test_tensors *l),
                    const char *says)
{
    refuses_with(-EINVAL, form, d, change, says);
}

static void fp8_nan(struct test_tensors *l)
{
    ((uint8_t *)test_tensor_find(l, K_PROJ ".weight")->t.data)[77] = 0xff;
}

static void scale_infinite(struct test_tensors *l)
{
    struct test_tensor *t = test_tensor_find(l, K_PROJ ".weight_scale");
    if (!t)
        t = test_tensor_find(l, K_PROJ ".scales");
    ((float *)t->t.data)[0] = INFINITY;
}

static void scale_nan_e4m3(struct test_tensors *l)
{
    ((uint8_t *)test_tensor_find(l, K_PROJ ".weight_scale")->t.data)[3] = 0x7f;
}

static void factor_nan(struct test_tensors *l)
{
    ((float *)test_tensor_find(l, K_PROJ ".weight_global_scale")->t.data)[0] = NAN;
}

static void group_out_of_range(struct test_tensors *l)
{
    ((int32_t *)test_tensor_find(l, K_PROJ ".g_idx")->t.data)[5] = 1000000;
}

static void group_negative(struct test_tensors *l)
{
    ((int32_t *)test_tensor_find(l, K_PROJ ".g_idx")->t.data)[0] = -1;
}

static void factor_inputs(struct test_tensors *l)
{
    const struct tensor *t = &test_tensor_find(l, K_PROJ ".weight")->t;
    test_tensor_add(l, K_PROJ ".pre_quant_scale", DTYPE_F32, 1, &t->shape[1]);
}

TEST(factors_of_inputs_are_refused)
{
    refuses_with(-ENOTSUP, "nvfp4 of modelopt", &all_dims[0], factor_inputs,
                 K_PROJ ".pre_quant_scale: factors of inputs are not supported");
}

TEST(a_value_that_is_no_number_is_found_and_its_tensor_named)
{
    for (size_t i = 0; i < COUNT_OF(all_dims); i++) {
        const struct dims *d = &all_dims[i];
        const char *wide = i == 0 ? K_PROJ ".weight holds a value" : K_PROJ ".weight_scale holds a value";
        refuses("fp8 row", d, fp8_nan, wide);
        refuses("fp8 row", d, scale_infinite, K_PROJ ".weight_scale holds a value that is infinite");
        refuses("int8 row", d, scale_infinite, K_PROJ ".weight_scale holds a value that is infinite");
        refuses("int4 groups", d, scale_infinite, K_PROJ ".weight_scale holds a value that is infinite");
        refuses("awq", d, scale_infinite, K_PROJ ".scales holds a value that is infinite");
        refuses("nvfp4", d, scale_nan_e4m3, K_PROJ ".weight_scale holds a value that is infinite");
        refuses("nvfp4", d, factor_nan, K_PROJ ".weight_scale holds a value that is infinite");
        refuses("gptq", d, group_out_of_range, K_PROJ ".g_idx: group 1000000 of column 5 is out of range");
        refuses("gptq", d, group_negative, K_PROJ ".g_idx: group -1 of column 0 is out of range");
    }
}

/* Each tensor in turn has a row, or a value, too many, and is missing: never a crash, always its module's
 * name. */
TEST(a_wrong_shape_of_any_tensor_names_it)
{
    const char *dir = test_dir();
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        const struct form *f = &forms[i];
        const struct dims *d = &all_dims[i % COUNT_OF(all_dims)];
        struct test_tensors *l = small_tensors(), *dense = small_tensors();
        char config[1024];
        make(f, d, l, dense);
        config_of(d, f, config, sizeof(config));
        test_write_text(dir, "config.json", config);
        for (size_t t = 0; t < l->count; t++) {
            struct test_tensor *one = &l->list[t];
            const struct test_tensor as_it_was = *one;
            one->t.shape[0]++;
            one->t.bytes = (size_t)tensor_count(&one->t) * dtype_bytes(one->t.dtype);
            one->t.data = calloc(1, one->t.bytes);
            struct model *m = NULL;
            struct err e = {{0}};
            struct model_opts o = small_opts(NULL);
            test_write_tensors(l, dir, "model.safetensors", 0, NULL);
            int r = model_load_at(dir, &o, &m, &e);
            char module[256];
            snprintf(module, sizeof(module), "%.*s", (int)(strrchr(one->name, '.') - one->name), one->name);
            if (r >= 0 || !strstr(e.text, module))
                print_message("%s, %s: %d %s\n", f->name, one->name, r, e.text);
            assert_true(r == -EINVAL || r == -ENOTSUP);
            assert_non_null(strstr(e.text, module));
            free((void *)one->t.data);
            *one = as_it_was;
        }
        small_free(l);
        small_free(dense);
    }
}

/* A file cut at every 397th byte, and near its ends at each. */
TEST(files_cut_anywhere_are_refused)
{
    const char *dir = test_dir();
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        struct test_tensors *l = small_tensors(), *dense = small_tensors();
        char config[1024];
        size_t len;
        make(&forms[i], &all_dims[1], l, dense);
        config_of(&all_dims[1], &forms[i], config, sizeof(config));
        test_write_text(dir, "config.json", config);
        test_write_tensors(l, dir, "model.safetensors", 0, NULL);
        char *whole = test_read_file(dir, "model.safetensors", &len);
        for (size_t cut = 0; cut < len; cut += cut < 16 || cut + 16 > len ? 1 : 397) {
            struct model *m = NULL;
            struct err e = {{0}};
            struct model_opts o = small_opts(NULL);
            test_write_file(dir, "model.safetensors", whole, cut);
            assert_int_equal(model_load_at(dir, &o, &m, &e), -EINVAL);
            assert_non_null(strstr(e.text, "model.safetensors"));
        }
        free(whole);
        small_free(l);
        small_free(dense);
    }
}

TEST_MAIN()
