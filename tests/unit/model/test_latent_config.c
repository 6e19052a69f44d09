/* Latent attention in config.json: what a page holds, routers, yarn's factors, and what is refused. */
#include "test_config_read.h"

#include "base/check.h"
#include "compute/backend.h"
#include "compute/layout.h"
#include "model/blocks/blocks.h"
#include "model/family/family.h"
#include "model/model.h"

#include <errno.h>
#include <math.h>

/* The shape of the released DeepSeek V3, in the spelling of its own config.json. */
#define V3_NUMBERS                                                                                           \
    "\"hidden_size\":7168,\"intermediate_size\":18432,\"moe_intermediate_size\":2048,"                       \
    "\"num_hidden_layers\":61,\"num_attention_heads\":128,\"num_key_value_heads\":128,"                      \
    "\"n_shared_experts\":1,\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"moe_layer_freq\":1,"        \
    "\"routed_scaling_factor\":2.5,\"q_lora_rank\":1536,\"kv_lora_rank\":512,\"qk_rope_head_dim\":64,"       \
    "\"v_head_dim\":128,\"qk_nope_head_dim\":128,\"topk_method\":\"noaux_tc\",\"n_group\":8,"                \
    "\"topk_group\":4,\"first_k_dense_replace\":3,\"norm_topk_prob\":true,\"scoring_func\":\"sigmoid\","     \
    "\"max_position_embeddings\":163840,\"vocab_size\":129280,\"num_nextn_predict_layers\":1,"               \
    "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"beta_fast\":32,"               \
    "\"beta_slow\":1,\"mscale\":1.0,\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096}"
#define V3 "\"model_type\":\"deepseek_v3\"," V3_NUMBERS

/* A small one whose numbers follow. */
#define SMALL(type)                                                                                          \
    "\"model_type\":\"" type "\",\"hidden_size\":60,\"num_hidden_layers\":3,\"num_attention_heads\":7,"      \
    "\"intermediate_size\":32,\"vocab_size\":64,\"max_position_embeddings\":512,\"moe_intermediate_size\":"  \
    "8,"                                                                                                     \
    "\"num_experts_per_tok\":2,\"n_routed_experts\":4,\"n_group\":2,\"topk_group\":1,\"kv_lora_rank\":24,"   \
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4"
#define V2 SMALL("deepseek_v2") ",\"v_head_dim\":10"

TEST(a_released_shape_keeps_576_numbers_of_a_token_in_each_layer)
{
    struct config c = reads("{" V3 "}");
    struct model_shape shape = {.kv_count = 0};
    struct arena *tables;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1 << 20}, &tables), 0);
    c.backend = &backend_cpu;
    assert_int_equal(config_lay_out(tables, &c), 0);
    config_fill_layouts(&c, &shape);
    assert_int_equal(c.kv_count, 61);
    assert_int_equal(c.shape.groups[0].page_bytes, 61u * 576 * 4 * PAGE_TOKENS);
    assert_int_equal(shape.page_bytes, c.shape.groups[0].page_bytes);
    assert_int_equal(shape.kv_count, 1);
    assert_int_equal(shape.kv[0].layers, 61);
    assert_int_equal(shape.kv[0].heads, 1);
    assert_int_equal(shape.kv[0].k_width, 576);
    assert_int_equal(shape.kv[0].v_width, 512);
    assert_true(shape.kv[0].v_in_k);
    assert_int_equal(c.ropes[0].rot, 64);
    for (uint32_t i = 0; i < c.layers; i++)
        assert_true(c.layer[i].mixer == &block_latent &&
                    c.layer[i].mlp == (i < 3 ? &block_mlp : &block_experts));
    assert_true(c.rope_interleave && c.topk_method == TOPK_CORRECTED && c.route_score == ROUTE_SIGMOID);
    assert_int_equal(c.shared_intermediate, 2048);
    arena_free(tables);
}

/* Parents with images: their text models. */
TEST(kimi_is_a_deepseek_v3)
{
    struct config c = reads("{\"model_type\":\"kimi_k2\"," V3_NUMBERS "}");
    assert_true(c.family == family_find("deepseek_v3"));
    c = reads("{\"model_type\":\"kimi_vl\",\"vision_config\":{},\"text_config\":{" V3 "}}");
    assert_string_equal(c.family_name, "deepseek_v3");
    assert_non_null(c.vision_family);
    c = reads("{\"model_type\":\"kimi_k25\",\"text_config\":{" V3_NUMBERS "}}");
    assert_true(c.family == family_find("deepseek_v3"));
}

static double score_factor_of(const char *type, const char *rope)
{
    char text[2048];
    snprintf(text, sizeof(text), "{" V2 ",\"rope_scaling\":{\"type\":\"%s\",\"factor\":40%s}}", type, rope);
    struct config c = reads(text);
    return config_score_factor(&c);
}

static double score_factor(const char *rope)
{
    return score_factor_of("yarn", rope);
}

static double magnitude(const char *rope)
{
    char text[2048];
    struct rope r;
    snprintf(text, sizeof(text), "{" V2 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40%s}}", rope);
    struct config c = reads(text);
    config_rope_init(&r, &c.ropes[0]);
    return r.magnitude;
}

TEST(yarn_has_a_factor_of_scores_and_one_of_angles)
{
    double whole = 0.1 * log(40) + 1, half = 0.05 * log(40) + 1;
    assert_true(fabs(score_factor("") - 1) < 1e-12);
    assert_true(fabs(score_factor(",\"mscale\":1,\"mscale_all_dim\":0.5") - half * half) < 1e-12);
    assert_true(fabs(score_factor(",\"mscale_all_dim\":1") - whole * whole) < 1e-12);
    assert_true(fabs(score_factor(",\"mscale_all_dim\":0") - 1) < 1e-12);
    assert_true(fabs(magnitude("") - whole) < 1e-12);
    assert_true(fabs(magnitude(",\"mscale\":1,\"mscale_all_dim\":1") - 1) < 1e-12);
    assert_true(fabs(magnitude(",\"mscale\":1,\"mscale_all_dim\":0.5") - whole / half) < 1e-12);
    assert_true(fabs(score_factor_of("linear", ",\"mscale_all_dim\":1") - whole * whole) < 1e-12);
    assert_true(fabs(score_factor_of("dynamic", ",\"mscale_all_dim\":1") - whole * whole) < 1e-12);
    /* One alone says nothing. */
    assert_true(fabs(magnitude(",\"mscale\":0.5") - whole) < 1e-12);
    assert_true(fabs(magnitude(",\"mscale\":1,\"mscale_all_dim\":0.5,\"attention_factor\":3") - 3) < 1e-12);
}

TEST(routers_are_as_the_file_says)
{
    struct config c = reads("{" V2 ",\"q_lora_rank\":null}");
    assert_true(c.route_score == ROUTE_SOFTMAX && c.topk_method == TOPK_GREEDY && !c.normalise);
    assert_int_equal(c.q_rank, 0);
    refuses("{" V2 ",\"norm_topk_prob\":true}", -ENOTSUP, "norm_topk_prob is true, which is not supported");
    assert_int_equal(reads("{" V2 "}").q_rank, 1536);
    assert_true(c.layer[0].mlp == &block_experts);
    c = reads("{" V2 ",\"topk_method\":\"group_limited_greedy\",\"scoring_func\":\"sigmoid\"}");
    assert_true(c.topk_method == TOPK_GROUP_MAX && c.route_score == ROUTE_SIGMOID);
    c = reads("{" SMALL("glm4_moe_lite") ",\"v_head_dim\":10}");
    assert_true(c.topk_method == TOPK_CORRECTED && c.normalise && c.routed_scale == 1.8f);
    assert_true(c.layer[0].mlp == &block_mlp && c.layer[1].mlp == &block_experts);
    c = reads("{" SMALL("glm4_moe_lite") ",\"v_head_dim\":10,\"first_k_dense_replace\":3,"
                                         "\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\"]}");
    assert_true(c.layer[0].mlp == &block_experts && c.layer[1].mlp == &block_mlp &&
                c.layer[2].mlp == &block_experts);
}

TEST(experts_that_no_layer_has_do_not_count)
{
    struct config c = reads("{\"first_k_dense_replace\":3," V2 "}");
    assert_true(c.layer[2].mlp == &block_mlp && c.experts == 0);
    c = reads("{\"first_k_dense_replace\":2," V2 "}");
    assert_true(c.layer[2].mlp == &block_experts && c.experts > 0 && c.top_k == 2);
}

TEST(what_does_not_fit_is_refused)
{
    refuses("{" SMALL("deepseek_v3") ",\"v_head_dim\":null}", -EINVAL, "v_head_dim is missing");
    refuses("{" V2 ",\"topk_method\":\"best\"}", -ENOTSUP, "topk_method 'best' is not supported");
    refuses("{" V2 ",\"scoring_func\":\"tanh\"}", -ENOTSUP, "scoring_func 'tanh' is not supported");
    refuses("{" V2 ",\"moe_layer_freq\":2}", -ENOTSUP, "moe_layer_freq is 2");
    refuses("{" V2 ",\"mlp_layer_types\":[\"dense\"]}", -EINVAL, "mlp_layer_types must be a list");
    refuses("{" V2 ",\"mlp_layer_types\":[\"dense\",\"sparse\",\"odd\"]}", -ENOTSUP,
            "mlp_layer_types[2] is 'odd'");
    refuses("{\"qk_rope_head_dim\":130,\"kv_lora_rank\":512,\"text_config\":{\"qk_rope_head_dim\":null,"
            "\"kv_lora_rank\":null,\"model_type\":\"youtu_unknown\"}}",
            -ENOTSUP, "model_type 'youtu_unknown' is not supported");
    refuses("{\"text_config\":{\"kv_lora_rank\":638}," V2 "}", -ENOTSUP,
            "kv_lora_rank 638 and qk_rope_head_dim 4 are more than 640 together");
    refuses("{\"text_config\":{\"qk_rope_head_dim\":5}," V2 "}", -ENOTSUP, "head_dim is 5, but must be even");
}

/* The shape of the released Kimi Linear, in the spelling of its own config.json. */
#define KIMI                                                                                                 \
    "\"model_type\":\"kimi_linear\",\"hidden_size\":2304,\"intermediate_size\":9216,\"head_dim\":72,"        \
    "\"moe_intermediate_size\":1024,\"num_hidden_layers\":5,\"num_attention_heads\":32,"                     \
    "\"num_key_value_heads\":32,\"num_experts\":256,\"num_experts_per_token\":8,\"num_shared_experts\":1,"   \
    "\"kv_lora_rank\":512,\"q_lora_rank\":null,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,"            \
    "\"v_head_dim\":128,\"first_k_dense_replace\":1,\"moe_renormalize\":true,\"vocab_size\":163840,"         \
    "\"moe_router_activation_func\":\"sigmoid\",\"mla_use_nope\":true,\"model_max_length\":1048576"
#define KIMI_LINEAR(list, more)                                                                              \
    "{" KIMI ",\"linear_attn_config\":{" list "\"head_dim\":128,\"num_heads\":32,"                           \
    "\"short_conv_kernel_size\":4" more "}}"
#define KIMI_LISTS "\"full_attn_layers\":[4],\"kda_layers\":[1,2,3,5],"

TEST(kimi_linear_has_its_numbers_in_an_object_and_counts_layers_from_one)
{
    const struct config c = reads(KIMI_LINEAR(KIMI_LISTS, ""));
    for (uint32_t i = 0; i < 5; i++)
        assert_true(c.layer[i].mixer == (i == 3 ? &block_latent : &block_kda));
    assert_true(c.layer[3].rope == ROPE_ABSENT);
    assert_true(c.key_heads == 32 && c.value_heads == 32 && c.key_dim == 128 && c.value_dim == 128);
    assert_true(c.conv_width == 4 && c.decay_channels && c.decay_bound == 0);
    assert_true(c.context_max == 1048576 && c.top_k == 8 && c.shared_intermediate == 1024 && c.normalise);
    assert_string_equal(c.unknown_keys, "");
    assert_string_equal(reads(KIMI_LINEAR(KIMI_LISTS, ",\"twist\":2")).unknown_keys,
                        "'linear_attn_config.twist'");
    refuses(KIMI_LINEAR("", ""), -EINVAL, "linear_attn_config.full_attn_layers is missing");
    refuses("{" KIMI ",\"linear_attn_config\":{" KIMI_LISTS "\"head_dim\":24}}", -ENOTSUP,
            "linear head dimension 24 must be a multiple of 16");
    refuses("{" KIMI ",\"linear_attn_config\":{" KIMI_LISTS "\"num_heads\":0}}", -EINVAL,
            "linear_attn_config.num_heads is 0");
}

/* A pending token holds a decay for each channel. */
TEST(states_of_kimi_linear_hold_a_decay_for_each_channel)
{
    struct config c = reads(KIMI_LINEAR(KIMI_LISTS, ""));
    struct arena *tables;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1 << 20}, &tables), 0);
    c.backend = &backend_cpu;
    c.drafts_max = 2;
    assert_int_equal(config_lay_out(tables, &c), 0);
    const struct delta_pending_token p = delta_pending_token(&c.shape);
    assert_int_equal(p.beta - p.alpha, 32u * 128);
    assert_int_equal(p.floats, (3 + 1 + 1 + 1) * 32u * 128 + 32);
    assert_int_equal(c.shape.recurrent[0].bytes, 3u * 3 * 32 * 128 * 4 + 32u * 128 * 128 * 4);
    arena_free(tables);
}

TEST(bailing_hybrid_bounds_its_decays)
{
#define BAILING SMALL("bailing_hybrid") ",\"v_head_dim\":10,\"head_dim\":16,\"layer_group_size\":3"
    struct config c = reads("{" BAILING "}");
    assert_true(c.decay_bound == -5 && c.key_heads == 7 && c.key_dim == 16 && c.conv_width == 4);
    assert_true(c.layer[0].mixer == &block_kda && c.layer[2].mixer == &block_latent && c.layer[2].rope == 0);
    assert_true(reads("{" BAILING ",\"kda_safe_gate\":false}").decay_bound == 0);
    refuses("{" BAILING ",\"kda_lower_bound\":1}", -EINVAL, "kda_lower_bound");
#undef BAILING
}

TEST_MAIN()
