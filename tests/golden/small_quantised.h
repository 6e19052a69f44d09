/* small_quantised.h - a made-up model of every kind of quantised matrix, in MLX's names and layouts, and the
 * model that its weights mean. */
#ifndef PLATEAU_TESTS_SMALL_QUANTISED_H
#define PLATEAU_TESTS_SMALL_QUANTISED_H

#include "base/none.h"
#include "model_path.h"
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

/* Defined in small_quantised.c, which is compiled with optimisation. */
void add_random(struct test_tensors *l, struct rng *rng, float size, const char *name, uint32_t rank,
                const uint64_t *shape);
#define RANDOM(size, rank, ...) add_random(l, rng, (size), name, (rank), (const uint64_t[]){__VA_ARGS__})
#define NAME(text)              snprintf(name, sizeof(name), "language_model.model.layers.%d." text, layer)

/* A random model in MLX's names and layouts, all of it F32. */
struct test_tensors *random_model(uint64_t seed, bool tied);
void put_code(uint8_t *row, uint64_t column, uint32_t bits, uint32_t code);
bool is_matrix(const struct test_tensor *n);
/* mlx-lm keeps these two at 8 bits, group 64. */
bool is_router(const char *name);
/* Replaces P.weight in `quantised` by P.weight, P.scales, P.biases, and its values in `dense` by what those
 * mean. */
void quantise(struct test_tensors *quantised, struct test_tensors *dense, const char *weight, uint32_t bits,
              uint32_t group, enum dtype dtype);
/* All matrices. */
void quantise_model(struct test_tensors *quantised, struct test_tensors *dense, uint32_t bits, uint32_t group,
                    enum dtype dtype);

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
    assert_int_equal(model_load_at(dir, &o, &m, NULL), 0);
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
