/* Equal weights in every form a checkpoint may have: names, files, dtypes, layouts, quantisation. Where a
 * form only moves or widens numbers, the logits must have the same bits. A quantised model is compared
 * with one that holds the dequantised values in F32: same numbers, another order of operations, so within
 * a bound. */
#include "model_path.h"
#include "test_rng.h"
#include "test_floats.h"
#include "small_quantised.h"
#include "small_vision.h"

#include <errno.h>
#include <math.h>

/* ---- forms that only move numbers ---- */

static void same_bits(const char *config, const struct test_tensors *l, const struct small_answer *expected)
{
    struct small_answer got;
    small_ask(small_write(config, l), &got);
    assert_true(got.hash == expected->hash);
}

static char *config_of(const char *golden)
{
    return test_read_file(golden, "config.json", NULL);
}

TEST(bf16_and_f32_are_the_same_numbers)
{
    static const char *const goldens[] = {SMALL_GOLDEN("llama"), SMALL_GOLDEN("qwen3_5_moe")};
    for (size_t g = 0; g < COUNT_OF(goldens); g++) {
        struct small_answer expected;
        struct test_tensors *l = small_read(goldens[g]);
        char *config = config_of(goldens[g]);
        small_ask(goldens[g], &expected);
        /* Some in F32 only: parts of one projection then differ in form and cannot be packed as one. */
        for (size_t i = 0; i < l->count; i += 3)
            if (!strstr(l->list[i].name, ".experts."))
                small_to_f32(&l->list[i]);
        same_bits(config, l, &expected);
        for (size_t i = 0; i < l->count; i++)
            small_to_f32(&l->list[i]);
        same_bits(config, l, &expected);
        free(config);
        small_free(l);
    }
}

TEST(f16_and_f32_are_the_same_numbers)
{
    struct small_answer expected;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
    char *config = config_of(SMALL_GOLDEN("qwen3_5"));
    for (size_t i = 0; i < l->count; i++) {
        small_to_f32(&l->list[i]);
        small_to_half(&l->list[i], DTYPE_F16);
        small_to_f32(&l->list[i]);
    }
    small_ask(small_write(config, l), &expected);
    for (size_t i = 0; i < l->count; i++)
        small_to_half(&l->list[i], DTYPE_F16);
    same_bits(config, l, &expected);
    free(config);
    small_free(l);
}

static bool in_first(const char *tensor)
{
    return strstr(tensor, "layers.0.") || strstr(tensor, "layers.2.") || strstr(tensor, "embed");
}

static bool in_second(const char *tensor)
{
    return !in_first(tensor);
}

TEST(shards_and_unaligned_data_change_nothing)
{
    struct small_answer expected, got;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
    char *config = config_of(SMALL_GOLDEN("qwen3_5"));
    small_ask(SMALL_GOLDEN("qwen3_5"), &expected);
    for (size_t pad = 0; pad < 4; pad++) {
        const char *dir = test_dir();
        char index[65536] = "{\"weight_map\":{";
        test_write_text(dir, "config.json", config);
        test_write_tensors(l, dir, "model-00001-of-00002.safetensors", pad, in_first);
        test_write_tensors(l, dir, "model-00002-of-00002.safetensors", pad + 1, in_second);
        if (pad % 2) {
            for (size_t i = 0; i < l->count; i++)
                snprintf(index + strlen(index), sizeof(index) - strlen(index),
                         "%s\"%s\":\"model-0000%d-of-00002.safetensors\"", i ? "," : "", l->list[i].name,
                         in_first(l->list[i].name) ? 1 : 2);
            strcat(index, "}}");
            test_write_text(dir, "model.safetensors.index.json", index);
        }
        small_ask(dir, &got);
        assert_true(got.hash == expected.hash);
    }
    free(config);
    small_free(l);
}

static bool is_shifted_norm(const char *name)
{
    return strstr(name, "norm.weight") && !strstr(name, "linear_attn.norm");
}

/* HF's names and conventions to MLX's: prefix, convolution's axes, norms as 1 + w. */
static void to_mlx_names(struct test_tensors *l, const char *prefix)
{
    for (size_t i = 0; i < l->count; i++) {
        struct test_tensor *n = &l->list[i];
        char name[192];
        if (strstr(n->name, "conv1d")) {
            n->t.shape[1] = n->t.shape[2];
            n->t.shape[2] = 1;
        } else if (is_shifted_norm(n->name)) {
            small_to_f32(n);
            float *w = (float *)n->t.data;
            for (uint64_t j = 0; j < tensor_count(&n->t); j++)
                w[j] += 1;
        }
        snprintf(name, sizeof(name), "%s%s", prefix, n->name);
        snprintf(n->name, sizeof(n->name), "%s", name);
    }
}

TEST(mlx_names_and_conventions_are_the_same_model)
{
    static const char *const prefixes[] = {"language_model.", ""};
    for (size_t p = 0; p < COUNT_OF(prefixes); p++) {
        struct small_answer expected;
        struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
        char *config = config_of(SMALL_GOLDEN("qwen3_5"));
        small_ask(SMALL_GOLDEN("qwen3_5"), &expected);
        to_mlx_names(l, prefixes[p]);
        same_bits(config, l, &expected);
        free(config);
        small_free(l);
    }
}

TEST(a_multimodal_checkpoint_is_its_text_model)
{
    struct small_answer expected, got;
    struct model_shape shape;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5"));
    char *text = config_of(SMALL_GOLDEN("qwen3_5")), config[4096];
    small_ask(SMALL_GOLDEN("qwen3_5"), &expected);
    for (size_t i = 0; i < l->count; i++) {
        char name[192];
        if (strncmp(l->list[i].name, "model.", 6) != 0)
            continue;
        snprintf(name, sizeof(name), "model.language_model.%s", l->list[i].name + 6);
        snprintf(l->list[i].name, sizeof(name), "%s", name);
    }
    test_tensor_add(l, "model.visual.pos_embed.weight", DTYPE_BF16, 2, (const uint64_t[]){4, 8});
    test_tensor_add(l, "mtp.fc.weight", DTYPE_U32, 1, (const uint64_t[]){3});
    snprintf(config, sizeof(config), "{\"model_type\":\"qwen3_5\",\"hidden_size\":1,\"text_config\":%s}",
             text);
    const char *dir = small_write(config, l);
    small_ask(dir, &got);
    assert_true(got.hash == expected.hash);
    assert_int_equal(model_probe_at(dir, NULL, &shape, NULL), 0);
    assert_true(shape.has_vision && shape.has_mtp);
    free(text);
    small_free(l);
}

/* ---- experts ---- */

/* Joins per-expert matrices of layer `layer` into `to`, [E, rows of all names, in]; they leave the list. */
static void join_experts(struct test_tensors *l, int layer, const char *const *names, int count,
                         const char *to)
{
    enum { EXPERTS = 8 };
    char name[192];
    snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.0.%s.weight", layer, names[0]);
    struct tensor first = test_tensor_find(l, name)->t;
    const uint64_t shape[] = {EXPERTS, first.shape[0] * (uint64_t)count, first.shape[1]};
    snprintf(name, sizeof(name), "model.layers.%d.mlp.%s", layer, to);
    char *joined = test_tensor_add(l, name, first.dtype, 3, shape);
    for (int e = 0; e < EXPERTS; e++) {
        for (int i = 0; i < count; i++, joined += first.bytes) {
            snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.%s.weight", layer, e, names[i]);
            memcpy(joined, test_tensor_find(l, name)->t.data, first.bytes);
            test_tensor_remove(l, name);
        }
    }
}

TEST(experts_are_the_same_one_by_one_fused_or_stacked)
{
    static const char *const gate_up[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
    struct small_answer expected;
    char *config = config_of(SMALL_GOLDEN("qwen3_5_moe"));
    small_ask(SMALL_GOLDEN("qwen3_5_moe"), &expected);
    for (int stacked = 0; stacked < 2; stacked++) {
        struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3_5_moe"));
        for (int layer = 0; layer < 4; layer++) {
            if (stacked) {
                join_experts(l, layer, gate_up, 1, "switch_mlp.gate_proj.weight");
                join_experts(l, layer, gate_up + 1, 1, "switch_mlp.up_proj.weight");
                join_experts(l, layer, down, 1, "switch_mlp.down_proj.weight");
            } else {
                join_experts(l, layer, gate_up, 2, "experts.gate_up_proj");
                join_experts(l, layer, down, 1, "experts.down_proj");
            }
        }
        same_bits(config, l, &expected);
        /* One expert less in the file than in the configuration. */
        struct test_tensor *t = test_tensor_find(l, stacked ? "model.layers.1.mlp.switch_mlp.down_proj.weight"
                                                            : "model.layers.1.mlp.experts.down_proj");
        t->t.shape[0]--;
        t->t.bytes = tensor_count(&t->t) * dtype_bytes(t->t.dtype);
        small_refuses(small_write(config, l), -EINVAL,
                      "has shape [7, 32, 12], the configuration wants [8, 32, 12]");
        small_free(l);
    }
    free(config);
}

TEST(a_tied_head_is_the_embedding)
{
    struct small_answer expected;
    struct test_tensors *l = small_read(SMALL_GOLDEN("qwen3"));
    char *config = config_of(SMALL_GOLDEN("qwen3"));
    small_ask(SMALL_GOLDEN("qwen3"), &expected);
    assert_null(test_tensor_find(l, "lm_head.weight"));
    struct tensor t = test_tensor_find(l, "model.embed_tokens.weight")->t;
    memcpy(test_tensor_add(l, "lm_head.weight", t.dtype, t.rank, t.shape), t.data, t.bytes);
    same_bits(config, l, &expected);
    /* A head in the file is used, whatever the flag says. */
    struct small_answer other;
    memset((char *)test_tensor_find(l, "lm_head.weight")->t.data, 0, 64 * 2 * 17);
    small_ask(small_write(config, l), &other);
    assert_true(other.hash != expected.hash && other.logits[16] == 0);
    free(config);
    small_free(l);
}

/* ---- quantisation ---- */

static void quantised_equals_dequantised(uint32_t bits, uint32_t group, enum dtype dtype, bool tied)
{
    struct test_tensors *dense = random_model(bits * 1000 + group, tied);
    struct test_tensors *quantised = random_model(bits * 1000 + group, tied);
    struct small_answer expected, got;
    char config[8192];
    quantise_model(quantised, dense, bits, group, dtype);
    small_ask(small_write("{" QUANT_CONFIG "}", dense), &expected);
    quantised_config(config, sizeof(config), bits, group);
    small_ask(small_write(config, quantised), &got);
    double difference = largest_difference(&expected, &got);
    if (!(difference < 2e-4))
        print_message("bits %u group %u: %g\n", bits, group, difference);
    assert_true(difference < 2e-4);
    small_free(dense);
    small_free(quantised);
}

#define LATENT_CONFIG                                                                                        \
    "\"model_type\":\"deepseek_v3\",\"hidden_size\":64,\"num_hidden_layers\":1,\"intermediate_size\":64,"    \
    "\"num_attention_heads\":2,\"vocab_size\":200,\"max_position_embeddings\":512,\"q_lora_rank\":null,"     \
    "\"kv_lora_rank\":64,\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":8,\"v_head_dim\":16"

/* kv_b_proj, or its halves as MLX's stacks. */
static struct test_tensors *latent_model(bool stacks)
{
    struct test_tensors *l = small_tensors();
    struct rng at = {7, 0}, *rng = &at;
    char name[192];
    const int layer = 0;
    snprintf(name, sizeof(name), "language_model.model.embed_tokens.weight");
    RANDOM(0.3f, 2, 200, 64);
    snprintf(name, sizeof(name), "language_model.model.norm.weight");
    RANDOM(2, 1, 64);
    NAME("input_layernorm.weight"), RANDOM(2, 1, 64);
    NAME("post_attention_layernorm.weight"), RANDOM(2, 1, 64);
    NAME("self_attn.q_proj.weight"), RANDOM(0.15f, 2, 80, 64);
    NAME("self_attn.kv_a_proj_with_mqa.weight"), RANDOM(0.15f, 2, 72, 64);
    NAME("self_attn.kv_a_layernorm.weight"), RANDOM(2, 1, 64);
    if (stacks) {
        NAME("self_attn.embed_q.weight"), RANDOM(0.15f, 3, 2, 64, 32);
        NAME("self_attn.unembed_out.weight"), RANDOM(0.15f, 3, 2, 16, 64);
    } else {
        NAME("self_attn.kv_b_proj.weight"), RANDOM(0.15f, 2, 96, 64);
    }
    NAME("self_attn.o_proj.weight"), RANDOM(0.15f, 2, 64, 32);
    NAME("mlp.gate_proj.weight"), RANDOM(0.15f, 2, 64, 64);
    NAME("mlp.up_proj.weight"), RANDOM(0.15f, 2, 64, 64);
    NAME("mlp.down_proj.weight"), RANDOM(0.15f, 2, 64, 64);
    return l;
}

TEST(quantised_latent_attention_means_its_dequantised_weights)
{
    static const char config[] = "{" LATENT_CONFIG ",\"quantization\":{\"bits\":4,\"group_size\":32}}";
    for (int stacks = 0; stacks < 2; stacks++) {
        struct test_tensors *dense = latent_model(stacks), *quantised = latent_model(stacks);
        struct small_answer expected, got;
        quantise_model(quantised, dense, 4, 32, DTYPE_BF16);
        small_ask(small_write("{" LATENT_CONFIG "}", dense), &expected);
        small_ask(small_write(config, quantised), &got);
        assert_true(largest_difference(&expected, &got) < 2e-4);
        small_free(dense);
        small_free(quantised);
    }
}

TEST(a_quantised_head_drafts_as_its_dequantised_weights)
{
    struct test_tensors *dense = random_model(77, false), *quantised = random_model(77, false);
    char config[8192];
    uint32_t expected, got;
    add_head(dense);
    add_head(quantised);
    quantise_model(quantised, dense, 8, 64, DTYPE_F32);
    float logit = draft_of(small_write("{" QUANT_CONFIG "}", dense), COMPUTE_F32, &expected);
    quantised_config(config, sizeof(config), 8, 64);
    assert_true(fabsf(draft_of(small_write(config, quantised), COMPUTE_F32, &got) - logit) < 1e-3f);
    assert_int_equal(got, expected);
    small_free(dense);
    small_free(quantised);
}

TEST(every_width_and_group_means_its_dequantised_weights)
{
    static const uint32_t widths[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    for (size_t b = 0; b < COUNT_OF(widths); b++)
        for (size_t g = 0; g < COUNT_OF(groups); g++)
            quantised_equals_dequantised(widths[b], groups[g], dtypes[(b + g) % 3], g == 1);
}

/* A llama with so wide an MLP that even one token's activation is divided among workers. */
static struct test_tensors *wide_model(void)
{
    enum { WIDE = 4416 };
    struct test_tensors *l = small_tensors();
    struct rng at = {11, 0}, *rng = &at;
    char name[192];
#define PLAIN(text) snprintf(name, sizeof(name), "model." text)
    PLAIN("embed_tokens.weight"), RANDOM(0.3f, 2, 96, 64);
    PLAIN("norm.weight"), RANDOM(2, 1, 64);
    PLAIN("layers.0.input_layernorm.weight"), RANDOM(2, 1, 64);
    PLAIN("layers.0.post_attention_layernorm.weight"), RANDOM(2, 1, 64);
    PLAIN("layers.0.self_attn.q_proj.weight"), RANDOM(0.2f, 2, 64, 64);
    PLAIN("layers.0.self_attn.k_proj.weight"), RANDOM(0.2f, 2, 64, 64);
    PLAIN("layers.0.self_attn.v_proj.weight"), RANDOM(0.2f, 2, 64, 64);
    PLAIN("layers.0.self_attn.o_proj.weight"), RANDOM(0.2f, 2, 64, 64);
    PLAIN("layers.0.mlp.gate_proj.weight"), RANDOM(0.2f, 2, WIDE, 64);
    PLAIN("layers.0.mlp.up_proj.weight"), RANDOM(0.2f, 2, WIDE, 64);
    PLAIN("layers.0.mlp.down_proj.weight"), RANDOM(0.02f, 2, 64, WIDE);
    return l;
}

#define WIDE_CONFIG                                                                                          \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,"         \
    "\"intermediate_size\":4416,\"vocab_size\":96,\"max_position_embeddings\":512"

TEST(a_wide_activation_is_cut_without_a_trace)
{
    struct test_tensors *dense = wide_model(), *quantised = wide_model();
    struct small_answer expected, got;
    quantise_model(quantised, dense, 5, 64, DTYPE_BF16);
    small_ask(small_write("{" WIDE_CONFIG "}", dense), &expected);
    const char *dir =
        small_write("{" WIDE_CONFIG ",\"quantization\":{\"bits\":5,\"group_size\":64}}", quantised);
    uint64_t hash = 0;
    for (uint32_t workers = 1; workers <= 5; workers += 2) {
        struct model *m = NULL;
        struct model_opts o = small_opts(NULL);
        o.device = small_device(workers);
        assert_int_equal(model_load_at(dir, &o, &m, NULL), 0);
        small_run(m, &o, &got);
        model_free(m);
        assert_true(largest_difference(&expected, &got) < 2e-4);
        assert_true(workers == 1 || got.hash == hash);
        hash = got.hash;
    }
    small_free(dense);
    small_free(quantised);
}

/* ---- vision encoders ---- */

static float *features_of(const char *dir, size_t *count)
{
    struct model_opts o = small_opts(NULL);
    struct model *m = small_vision_load(dir, &o);
    struct small_image p = small_image_make(m, 160, 96);
    small_encode(m, &o, &p);
    room_free(&p.room);
    model_free(m);
    free(p.pixels);
    *count = p.floats;
    return p.features;
}

/* Returns the difference in shares of the largest value of `a`. */
static double features_difference(const char *a, const char *b)
{
    size_t count, other;
    float *x = features_of(a, &count), *y = features_of(b, &other);
    double largest = 0, size = 0;
    assert_int_equal(count, other);
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)x[i] - y[i]));
        size = fmax(size, fabs((double)x[i]));
    }
    free(x);
    free(y);
    return largest / size;
}

static const struct small_vision made_tower = {64, 2, 2, 128, 6, 1, 2};

/* Hugging Face's vision encoder in MLX's names, the patches' filters with their channels last. */
static void to_mlx_tower(struct test_tensors *l)
{
    for (size_t i = 0; i < l->count; i++) {
        struct test_tensor *n = &l->list[i];
        char name[192];
        if (strncmp(n->name, "model.visual.", 13) != 0)
            continue;
        snprintf(name, sizeof(name), "vision_tower.%s", n->name + 13);
        snprintf(n->name, sizeof(n->name), "%s", name);
    }
    struct test_tensor *n = test_tensor_find(l, "vision_tower.patch_embed.proj.weight");
    struct tensor was = n->t;
    const uint64_t area = (uint64_t)SMALL_PATCH * SMALL_PATCH;
    float *values = malloc(was.bytes);
    const float *from = was.data;
    for (uint64_t o = 0; o < was.shape[0]; o++)
        for (uint64_t c = 0; c < 3; c++)
            for (uint64_t f = 0; f < 2; f++)
                for (uint64_t i = 0; i < area; i++)
                    values[((o * 2 + f) * area + i) * 3 + c] = from[((o * 3 + c) * 2 + f) * area + i];
    free((void *)was.data);
    n->t.data = values;
    const uint64_t shape[] = {was.shape[0], 2, SMALL_PATCH, SMALL_PATCH, 3};
    memcpy(n->t.shape, shape, sizeof(shape));
}

TEST(an_mlx_tower_is_the_same_tower)
{
    struct test_tensors *l = small_vision_tensors(&made_tower, 3);
    char *config = small_vision_config(&made_tower);
    const char *plain = small_write(config, l);
    to_mlx_tower(l);
    /* The order of a patch's values differs, so the roundings of one sum. */
    assert_true(features_difference(plain, small_write(config, l)) < 1e-5);
    free(config);
    small_free(l);
}

TEST(a_quantised_tower_means_its_dequantised_weights)
{
    struct test_tensors *dense = small_vision_tensors(&made_tower, 4),
                        *quantised = small_vision_tensors(&made_tower, 4);
    char *config = small_vision_config(&made_tower), text[8192];
    for (size_t i = 0; i < dense->count; i++) {
        const struct test_tensor *n = &dense->list[i];
        if (strncmp(n->name, "model.visual.", 13) == 0 && n->t.rank == 2)
            quantise(quantised, dense, n->name, 8, 64, DTYPE_BF16);
    }
    snprintf(text, sizeof(text),
             "%.*s,\"quantization\":{\"bits\":4,\"group_size\":32,"
             "\"vision_tower.pos_embed\":{\"bits\":8,\"group_size\":64}",
             (int)strlen(config) - 1, config);
    for (size_t i = 0; i < dense->count; i++) {
        const struct test_tensor *n = &dense->list[i];
        if (strncmp(n->name, "model.visual.", 13) == 0 && n->t.rank == 2 && !strstr(n->name, "pos_embed"))
            snprintf(text + strlen(text), sizeof(text) - strlen(text),
                     ",\"%.*s\":{\"bits\":8,\"group_size\":64}", (int)(strlen(n->name) - strlen(".weight")),
                     n->name);
    }
    strcat(text, "}}");
    assert_true(features_difference(small_write(config, dense), small_write(text, quantised)) < 1e-5);
    free(config);
    small_free(dense);
    small_free(quantised);
}

/* ---- quantised files that are wrong ---- */

static void quantised_refuses(void (*change)(struct test_tensors *l), uint32_t bits, const char *says)
{
    struct test_tensors *dense = random_model(1, false), *quantised = random_model(1, false);
    char config[8192];
    quantise_model(quantised, dense, 4, 64, DTYPE_BF16);
    quantised_config(config, sizeof(config), bits, 64);
    change(quantised);
    small_refuses(small_write(config, quantised), -EINVAL, says);
    small_free(dense);
    small_free(quantised);
}

#define Z_PROJ "language_model.model.layers.0.linear_attn.in_proj_z"

static void nothing(struct test_tensors *l)
{
    (void)l;
}

static void infinite_scale(struct test_tensors *l)
{
    const uint16_t inf = 0x7f80;
    memcpy((char *)test_tensor_find(l, Z_PROJ ".scales")->t.data + 6, &inf, 2);
}

static void nan_bias(struct test_tensors *l)
{
    const uint16_t nan = 0xffc1;
    memcpy(
        (char *)test_tensor_find(l, "language_model.model.layers.2.mlp.switch_mlp.up_proj.biases")->t.data +
            8,
        &nan, 2);
}

static void no_biases(struct test_tensors *l)
{
    test_tensor_remove(l, Z_PROJ ".biases");
}

static void few_scales(struct test_tensors *l)
{
    test_tensor_remove(l, Z_PROJ ".scales");
    test_tensor_add(l, Z_PROJ ".scales", DTYPE_BF16, 2, (const uint64_t[]){128, 1});
}

static void signed_weight(struct test_tensors *l)
{
    test_tensor_find(l, Z_PROJ ".weight")->t.dtype = DTYPE_I32;
}

TEST(a_wrong_quantised_tensor_is_named)
{
    quantised_refuses(infinite_scale, 4, "infinite or not a number");
    quantised_refuses(nan_bias, 4, "infinite or not a number");
    quantised_refuses(no_biases, 4, "no tensor " Z_PROJ ".biases");
    quantised_refuses(few_scales, 4, Z_PROJ ".scales has shape [128, 1], the configuration wants [128, 2]");
    quantised_refuses(signed_weight, 4, "dtype I32 instead of U32");
    quantised_refuses(nothing, 6, "has shape [200, 16], the configuration wants [200, 24]");
}

TEST_MAIN()
