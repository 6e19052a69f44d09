/* small_quantised.h - a made-up model of every kind of quantised matrix, in MLX's names and layouts, and the
 * model that its weights mean. */
#ifndef PLATEAU_TESTS_SMALL_QUANTISED_H
#define PLATEAU_TESTS_SMALL_QUANTISED_H

#include "small_mtp.h"

#include <math.h>

/* A configuration whose dimensions every group divides. */
#define QUANT_HIDDEN 128
#define QUANT_CONFIG                                                                                         \
    "\"model_type\":\"qwen3_5_moe_text\",\"hidden_size\":128,\"num_hidden_layers\":3,"                       \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":200,"                \
    "\"max_position_embeddings\":512,\"linear_conv_kernel_dim\":4,\"linear_num_key_heads\":4,"               \
    "\"linear_num_value_heads\":8,\"linear_key_head_dim\":16,\"linear_value_head_dim\":16,"                  \
    "\"full_attention_interval\":2,\"num_experts\":6,\"num_experts_per_tok\":2,"                             \
    "\"moe_intermediate_size\":128,\"shared_expert_intermediate_size\":128"

static inline void add_random(struct test_tensors *l, struct rng *rng, float size, const char *name,
                              uint32_t rank, const uint64_t *shape)
{
    float *w = test_tensor_add(l, name, DTYPE_F32, rank, shape);
    for (uint64_t i = 0; i < tensor_count(&l->list[l->count - 1].t); i++)
        w[i] = bf16_to_f32(f32_to_bf16(size * ((float)rng_uniform(rng) * 2 - 1)));
}

#define RANDOM(size, rank, ...) add_random(l, rng, (size), name, (rank), (const uint64_t[]){__VA_ARGS__})

static inline void add_mixer(struct test_tensors *l, struct rng *rng, int layer)
{
    char name[192];
#define NAME(text) snprintf(name, sizeof(name), "language_model.model.layers.%d." text, layer)
    if (layer == 1) {
        NAME("self_attn.q_proj.weight"), RANDOM(0.15f, 2, 256, QUANT_HIDDEN);
        NAME("self_attn.k_proj.weight"), RANDOM(0.15f, 2, 64, QUANT_HIDDEN);
        NAME("self_attn.v_proj.weight"), RANDOM(0.15f, 2, 64, QUANT_HIDDEN);
        NAME("self_attn.o_proj.weight"), RANDOM(0.15f, 2, QUANT_HIDDEN, 128);
        NAME("self_attn.q_norm.weight"), RANDOM(2, 1, 32);
        NAME("self_attn.k_norm.weight"), RANDOM(2, 1, 32);
        return;
    }
    NAME("linear_attn.in_proj_qkv.weight"), RANDOM(0.15f, 2, 256, QUANT_HIDDEN);
    NAME("linear_attn.in_proj_z.weight"), RANDOM(0.15f, 2, 128, QUANT_HIDDEN);
    NAME("linear_attn.in_proj_b.weight"), RANDOM(0.15f, 2, 8, QUANT_HIDDEN);
    NAME("linear_attn.in_proj_a.weight"), RANDOM(0.15f, 2, 8, QUANT_HIDDEN);
    NAME("linear_attn.out_proj.weight"), RANDOM(0.15f, 2, QUANT_HIDDEN, 128);
    NAME("linear_attn.conv1d.weight"), RANDOM(0.5f, 3, 256, 4, 1);
    NAME("linear_attn.A_log"), RANDOM(1, 1, 8);
    NAME("linear_attn.dt_bias"), RANDOM(1, 1, 8);
    NAME("linear_attn.norm.weight"), RANDOM(2, 1, 16);
}

/* A random model in MLX's names and layouts, all of it F32. */
static inline struct test_tensors *random_model(uint64_t seed, bool tied)
{
    struct test_tensors *l = small_tensors();
    struct rng at = {seed, 0}, *rng = &at;
    char name[192];
    snprintf(name, sizeof(name), "language_model.model.embed_tokens.weight");
    RANDOM(0.3f, 2, 200, QUANT_HIDDEN);
    if (!tied) {
        snprintf(name, sizeof(name), "language_model.lm_head.weight");
        RANDOM(0.15f, 2, 200, QUANT_HIDDEN);
    }
    snprintf(name, sizeof(name), "language_model.model.norm.weight");
    RANDOM(2, 1, QUANT_HIDDEN);
    for (int layer = 0; layer < 3; layer++) {
        NAME("input_layernorm.weight"), RANDOM(2, 1, QUANT_HIDDEN);
        NAME("post_attention_layernorm.weight"), RANDOM(2, 1, QUANT_HIDDEN);
        add_mixer(l, rng, layer);
        NAME("mlp.gate.weight"), RANDOM(0.3f, 2, 6, QUANT_HIDDEN);
        NAME("mlp.shared_expert_gate.weight"), RANDOM(0.15f, 2, 1, QUANT_HIDDEN);
        NAME("mlp.shared_expert.gate_proj.weight"), RANDOM(0.15f, 2, 128, QUANT_HIDDEN);
        NAME("mlp.shared_expert.up_proj.weight"), RANDOM(0.15f, 2, 128, QUANT_HIDDEN);
        NAME("mlp.shared_expert.down_proj.weight"), RANDOM(0.15f, 2, QUANT_HIDDEN, 128);
        NAME("mlp.switch_mlp.gate_proj.weight"), RANDOM(0.15f, 3, 6, 128, QUANT_HIDDEN);
        NAME("mlp.switch_mlp.up_proj.weight"), RANDOM(0.15f, 3, 6, 128, QUANT_HIDDEN);
        NAME("mlp.switch_mlp.down_proj.weight"), RANDOM(0.15f, 3, 6, QUANT_HIDDEN, 128);
    }
    return l;
}

/* One group the way MLX quantises it: scale and bias, and codes. */
static inline void quantise_group(const float *w, uint32_t n, uint32_t bits, uint8_t *q, float *scale,
                                  float *bias)
{
    float low = w[0], high = w[0], levels = (float)((1u << bits) - 1);
    for (uint32_t i = 1; i < n; i++) {
        low = fminf(low, w[i]);
        high = fmaxf(high, w[i]);
    }
    float s = fmaxf((high - low) / levels, 1e-7f), edge = fabsf(low) > fabsf(high) ? low : high;
    if (edge == high)
        s = -s;
    float q0 = rintf(edge / s);
    *scale = q0 != 0 ? edge / q0 : s;
    *bias = q0 != 0 ? edge : 0;
    for (uint32_t i = 0; i < n; i++)
        q[i] = (uint8_t)fminf(fmaxf(rintf((w[i] - *bias) / *scale), 0), levels);
}

static inline void put_code(uint8_t *row, uint64_t column, uint32_t bits, uint32_t code)
{
    for (uint32_t b = 0; b < bits; b++)
        row[(column * bits + b) / 8] |= (uint8_t)((code >> b & 1) << (column * bits + b) % 8);
}

/* Replaces P.weight in `quantised` by P.weight, P.scales, P.biases, and its values in `dense` by what those
 * mean. */
static inline void quantise(struct test_tensors *quantised, struct test_tensors *dense, const char *weight,
                            uint32_t bits, uint32_t group, enum dtype dtype)
{
    char module[192], name[208];
    struct tensor w = test_tensor_find(dense, weight)->t;
    uint64_t shape[3], in = w.shape[w.rank - 1], rows = tensor_count(&w) / in;
    float *values = (float *)w.data;
    snprintf(module, sizeof(module), "%.*s", (int)(strlen(weight) - strlen(".weight")), weight);
    memcpy(shape, w.shape, sizeof(shape));
    test_tensor_remove(quantised, weight);
    shape[w.rank - 1] = in * bits / 32;
    uint8_t *packed = test_tensor_add(quantised, weight, DTYPE_U32, w.rank, shape);
    shape[w.rank - 1] = in / group;
    snprintf(name, sizeof(name), "%s.scales", module);
    float *scales = test_tensor_add(quantised, name, DTYPE_F32, w.rank, shape);
    struct test_tensor *scales_tensor = &quantised->list[quantised->count - 1];
    snprintf(name, sizeof(name), "%s.biases", module);
    float *biases = test_tensor_add(quantised, name, DTYPE_F32, w.rank, shape);
    struct test_tensor *biases_tensor = &quantised->list[quantised->count - 1];
    uint8_t q[128];
    for (uint64_t g = 0; g < rows * in / group; g++) {
        quantise_group(values + g * group, group, bits, q, &scales[g], &biases[g]);
        for (uint32_t i = 0; i < group; i++) {
            uint64_t at = g * group + i;
            put_code(packed + at / in * (in * bits / 8), at % in, bits, q[i]);
        }
        if (dtype != DTYPE_F32) {
            /* Cast after packing, as the writer does. */
            bool brain = dtype == DTYPE_BF16;
            scales[g] = brain ? bf16_to_f32(f32_to_bf16(scales[g])) : f16_to_f32(f32_to_f16(scales[g]));
            biases[g] = brain ? bf16_to_f32(f32_to_bf16(biases[g])) : f16_to_f32(f32_to_f16(biases[g]));
        }
        for (uint32_t i = 0; i < group; i++)
            values[g * group + i] = fmaf(scales[g], q[i], biases[g]);
    }
    if (dtype != DTYPE_F32) {
        small_to_half(scales_tensor, dtype);
        small_to_half(biases_tensor, dtype);
    }
}

static inline bool is_matrix(const struct test_tensor *n)
{
    return n->t.rank >= 2 && !strstr(n->name, "conv1d");
}

/* mlx-lm keeps these two at 8 bits, group 64. */
static inline bool is_router(const char *name)
{
    return strstr(name, "mlp.gate.") || strstr(name, "shared_expert_gate.");
}

static inline void quantise_model(struct test_tensors *quantised, struct test_tensors *dense, uint32_t bits,
                                  uint32_t group, enum dtype dtype)
{
    for (size_t i = 0; i < dense->count; i++) {
        const char *name = dense->list[i].name;
        if (!is_matrix(&dense->list[i]))
            continue;
        if (is_router(name))
            quantise(quantised, dense, name, 8, 64, dtype);
        else
            quantise(quantised, dense, name, bits, group, dtype);
    }
}

static inline void quantised_config(char *ret, size_t bytes_max, uint32_t bits, uint32_t group)
{
    size_t n = (size_t)snprintf(ret, bytes_max, "{%s,\"quantization\":{\"bits\":%u,\"group_size\":%u",
                                QUANT_CONFIG, bits, group);
    for (int layer = 0; layer < 3; layer++)
        n += (size_t)snprintf(ret + n, bytes_max - n,
                              ",\"model.language_model.layers.%d.mlp.gate\":{\"bits\":8,\"group_size\":64}"
                              ",\"language_model.model.layers.%d.mlp.shared_expert_gate\":{\"bits\":8,"
                              "\"group_size\":64}",
                              layer, layer);
    snprintf(ret + n, bytes_max - n, "}}");
}

static inline double largest_difference(const struct small_answer *a, const struct small_answer *b)
{
    double largest = 0;
    assert_int_equal(a->vocab, b->vocab);
    for (uint32_t i = 0; i < a->vocab; i++)
        largest = fmax(largest, fabs((double)a->logits[i] - b->logits[i]));
    return largest;
}

/* The layer with attention once more as an MTP head, and a random projection in front. */
static inline void add_head(struct test_tensors *l)
{
    static const char layer[] = "language_model.model.layers.1.";
    struct rng at = {5, 0}, *rng = &at;
    size_t count = l->count;
    char name[192];
    for (size_t i = 0; i < count; i++) {
        struct tensor t = l->list[i].t;
        if (strncmp(l->list[i].name, layer, strlen(layer)) != 0)
            continue;
        snprintf(name, sizeof(name), "language_model.mtp.layers.0.%s", l->list[i].name + strlen(layer));
        memcpy(test_tensor_add(l, name, t.dtype, t.rank, t.shape), t.data, t.bytes);
    }
    static const char *const norms[] = {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"};
    for (size_t i = 0; i < COUNT_OF(norms); i++) {
        snprintf(name, sizeof(name), "language_model.mtp.%s.weight", norms[i]);
        RANDOM(2, 1, QUANT_HIDDEN);
    }
    snprintf(name, sizeof(name), "language_model.mtp.fc.weight");
    RANDOM(0.15f, 2, QUANT_HIDDEN, 2 * QUANT_HIDDEN);
}

static inline float draft_of(const char *dir, enum compute_mode mode, uint32_t *ret)
{
    struct model *m = NULL;
    struct model_opts o = small_opts(NULL);
    o.parts = (struct model_parts){.compute = mode, .mtp = true, .drafts_max = 1};
    assert_int_equal(model_load(dir, &o, &m, NULL), 0);
    if (!model_shape(m)->mtp)
        fail_msg("%s", model_shape(m)->mtp_absent);
    uint32_t tokens[] = {5, 90, 17, 3, 120, 44, 8}, table[2] = {1, 0};
    struct model_seq seq = {.tokens = tokens,
                            .token_count = COUNT_OF(tokens),
                            .pages = {table},
                            .state_in = NONE,
                            .logits_from = COUNT_OF(tokens)};
    float logit;
    struct model_draft_seq draft = {.token = 3,
                                    .position = COUNT_OF(tokens),
                                    .pages = {table},
                                    .count = 1,
                                    .drafts = ret,
                                    .logits = &logit};
    small_mtp_draft(m, &o, &seq, 1, &draft);
    model_free(m);
    return logit;
}

#endif
