/* small_quantised.c - makes models up and quantises them: most of the time of the tests that do so. */
#include "small_quantised.h"

void add_random(struct test_tensors *l, struct rng *rng, float size, const char *name, uint32_t rank,
                const uint64_t *shape)
{
    float *w = test_tensor_add(l, name, DTYPE_F32, rank, shape);
    for (uint64_t i = 0; i < tensor_count(&l->list[l->count - 1].t); i++)
        w[i] = bf16_to_f32(f32_to_bf16(size * ((float)rng_uniform(rng) * 2 - 1)));
}

static void add_mixer(struct test_tensors *l, struct rng *rng, int layer)
{
    char name[192];
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

struct test_tensors *random_model(uint64_t seed, bool tied)
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
static void quantise_group(const float *w, uint32_t n, uint32_t bits, uint8_t *q, float *scale, float *bias)
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

void put_code(uint8_t *row, uint64_t column, uint32_t bits, uint32_t code)
{
    for (uint32_t b = 0; b < bits; b++)
        row[(column * bits + b) / 8] |= (uint8_t)((code >> b & 1) << (column * bits + b) % 8);
}

void quantise(struct test_tensors *quantised, struct test_tensors *dense, const char *weight, uint32_t bits,
              uint32_t group, enum dtype dtype)
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

bool is_matrix(const struct test_tensor *n)
{
    return n->t.rank >= 2 && !strstr(n->name, "conv1d");
}

bool is_router(const char *name)
{
    return strstr(name, "mlp.gate.") || strstr(name, "shared_expert_gate.");
}

void quantise_model(struct test_tensors *quantised, struct test_tensors *dense, uint32_t bits, uint32_t group,
                    enum dtype dtype)
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
