/* config.json and generation_config.json: aliases, defaults, bounds, and refusals with a message. */
#include "model_path.h"
#include "test_config_read.h"
#include "test_json_blocks.h"

#include "base/check.h"
#include "compute/layout.h"
#include "model/blocks/blocks.h"
#include "model/config/generation_config.h"
#include "model/family/family.h"

#include <errno.h>
#include <math.h>

#define LLAMA "\"model_type\":\"llama\"," LLAMA_NUMBERS
#define LLAMA_NUMBERS                                                                                        \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                                  \
    "\"intermediate_size\":160,\"vocab_size\":512,\"max_position_embeddings\":4096"
#define QWEN3_5 QWEN3_5_BUT_KEY_DIM ",\"linear_key_head_dim\":16"
#define QWEN3_5_BUT_KEY_DIM                                                                                  \
    "\"model_type\":\"qwen3_5_text\",\"hidden_size\":64,\"num_hidden_layers\":8,\"num_attention_heads\":4,"  \
    "\"num_key_value_heads\":2,\"head_dim\":16,\"intermediate_size\":160,\"vocab_size\":512,"                \
    "\"max_position_embeddings\":4096,\"linear_conv_kernel_dim\":4,\"linear_num_key_heads\":2,"              \
    "\"linear_num_value_heads\":4,\"linear_value_head_dim\":32"

TEST(a_llama_has_its_defaults)
{
    struct config c =
        reads("{" LLAMA ",\"num_key_value_heads\":null,\"head_dim\":null,\"unknown\":{\"a\":[1]}}");
    assert_string_equal(c.family_name, "llama");
    assert_ptr_equal(c.family, family_find("llama"));
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.ropes[0].rot, 16);
    assert_true(c.ropes[0].theta == 10000 && c.ropes[0].type == ROPE_DEFAULT);
    assert_true(c.eps == 1e-6f);
    assert_int_equal(c.kv_count, 2);
    assert_int_equal(c.recurrent_count, 0);
    assert_false(c.quantization.present);
}

TEST(text_config_goes_before_the_top_level)
{
    struct config c = reads("{\"model_type\":\"qwen3_5\",\"hidden_size\":999,\"tie_word_embeddings\":true,"
                            "\"text_config\":{" QWEN3_5 "},\"vision_config\":{\"hidden_size\":1}}");
    assert_string_equal(c.family_name, "qwen3_5");
    assert_int_equal(c.hidden, 64);
    assert_true(c.tied);
    /* A text_config without a type has its parent's; an unknown one is refused by name. */
#define INNER                                                                                                \
    "\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"intermediate_size\":16,"         \
    "\"vocab_size\":9,\"max_position_embeddings\":64}}"
    c = reads("{\"model_type\":\"qwen3\",\"text_config\":{" INNER);
    assert_string_equal(c.family_name, "qwen3");
    refuses("{\"model_type\":\"qwen3\",\"text_config\":{\"model_type\":\"inner\"," INNER, -ENOTSUP,
            "model_type 'inner' is not supported");
#undef INNER
}

TEST(layer_kinds_come_from_the_list_or_the_interval)
{
    struct config c = reads("{" QWEN3_5 "}");
    for (uint32_t i = 0; i < c.layers; i++)
        assert_ptr_equal(c.layer[i].mixer, (i + 1) % 4 == 0 ? &block_attention : &block_delta_net);
    assert_int_equal(c.recurrent_count, 6);
    c = reads("{" QWEN3_5 ",\"full_attention_interval\":2}");
    assert_int_equal(c.kv_count, 4);
    c = reads("{" QWEN3_5
              ",\"layer_types\":[\"full_attention\",\"attention\",\"linear_attention\",\"full_attention\","
              "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]}");
    assert_ptr_equal(c.layer[2].mixer, &block_delta_net);
    assert_int_equal(c.kv_count, 7);
    assert_int_equal(config_conv_channels(&c), 2 * 2 * 16 + 4 * 32);
    refuses("{" QWEN3_5 ",\"layer_types\":[\"full_attention\"]}", -EINVAL, "layer_types must be a list of");
    refuses("{" LLAMA ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", -ENOTSUP,
            "layer_types[1] is 'sliding_attention'");
    refuses("{" LLAMA ",\"layer_types\":[\"full_attention\",7]}", -ENOTSUP, "layer_types[1]");
    refuses("{" LLAMA ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}", -ENOTSUP,
            "layer_types[1] is 'linear_attention'; llama has full_attention");
    refuses("{" QWEN3_5_BUT_KEY_DIM ",\"linear_key_head_dim\":null}", -EINVAL,
            "linear_key_head_dim is missing");
    assert_int_equal(reads("{" QWEN3_5_BUT_KEY_DIM "}").key_dim, 128);
}

TEST(rope_reads_both_generations)
{
    struct config c =
        reads("{" LLAMA ",\"rope_theta\":500000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}");
    assert_true(c.ropes[0].theta == 500000 && c.ropes[0].type == ROPE_LINEAR && c.ropes[0].factor == 4);
    c = reads(
        "{" LLAMA
        ",\"rope_theta\":1,\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":500000,\"factor\":8,"
        "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":64},"
        "\"rope_scaling\":{}}");
    assert_true(c.ropes[0].theta == 500000 && c.ropes[0].type == ROPE_LLAMA3 && c.ropes[0].high_freq == 4);
    c = reads("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000},"
              "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}");
    assert_true(c.ropes[0].theta == 500000 && c.ropes[0].type == ROPE_LINEAR && c.ropes[0].factor == 4);
    c = reads("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}");
    assert_true(c.ropes[0].type == ROPE_YARN && c.ropes[0].original_max == 4096 &&
                c.ropes[0].beta_fast == 32);
    c = reads("{" LLAMA ",\"rope_scaling\":null}");
    assert_int_equal(c.ropes[0].type, ROPE_DEFAULT);
    /* rope_parameters has the last word on how much rotates. */
    c = reads("{" QWEN3_5
              ",\"partial_rotary_factor\":0.25,\"rope_parameters\":{\"partial_rotary_factor\":0.5}}");
    assert_int_equal(c.ropes[0].rot, 8);
    c = reads("{" QWEN3_5 "}");
    assert_int_equal(c.ropes[0].rot, 4);
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"other\",\"factor\":4}}", -ENOTSUP, "rope_type 'other'");
    refuses("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", -EINVAL, "factor is missing");
    refuses("{" LLAMA ",\"rope_scaling\":7}", -EINVAL, "rope_scaling must be an object");
    refuses("{" LLAMA ",\"partial_rotary_factor\":0.2,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
            -ENOTSUP, "leaves 3 rotating");
    /* Without scaling, llama's class turns whole heads. */
    refuses("{" LLAMA ",\"partial_rotary_factor\":0.5}", -ENOTSUP,
            "partial_rotary_factor 0.5 with rope_type 'default' is not supported for models of type llama");
    assert_int_equal(reads("{" LLAMA ",\"partial_rotary_factor\":1}").ropes[0].rot, 16);
    refuses("{" LLAMA ",\"rope_theta\":0}", -EINVAL, "rope_theta must be a number in 1..");
}

TEST(angles_follow_the_frequencies)
{
    struct rope_config rc = {.type = ROPE_DEFAULT, .rot = 8, .theta = 10000};
    struct rope r;
    float c[4], s[4];
    config_rope_init(&r, &rc);
    assert_int_equal(r.half, 4);
    assert_true(r.inv_freq[0] == 1 && fabsf(r.inv_freq[1] - 0.1f) < 1e-8f);
    rope_at(&r, rope_text(262143), c, s);
    for (int j = 0; j < 4; j++) {
        double angle = 262143.0 * r.inv_freq[j];
        assert_true(c[j] == (float)cos(angle) && s[j] == (float)sin(angle));
    }
    /* llama3: the longest wave is slowed by the factor, the shortest kept. */
    rc = (struct rope_config){.type = ROPE_LLAMA3,
                              .rot = 8,
                              .theta = 1e6,
                              .factor = 8,
                              .low_freq = 1,
                              .high_freq = 4,
                              .original_max = 64};
    config_rope_init(&r, &rc);
    assert_true(r.inv_freq[0] == 1);
    assert_true(fabs(r.inv_freq[3] - pow(1e6, -0.75) / 8) < 1e-9);
    /* linear: positions divided. */
    rc = (struct rope_config){.type = ROPE_LINEAR, .rot = 4, .theta = 100, .factor = 4};
    config_rope_init(&r, &rc);
    assert_true(r.inv_freq[0] == 0.25f && fabsf(r.inv_freq[1] - 0.025f) < 1e-9f);
    /* yarn, from its formula: dim(n) = rot ln(O / (2 pi n)) / (2 ln theta) is 8.04 at 32 turns and 20.9 at
     * one. */
    rc = (struct rope_config){.type = ROPE_YARN,
                              .rot = 64,
                              .theta = 10000,
                              .factor = 4,
                              .original_max = 2048,
                              .beta_fast = 32,
                              .beta_slow = 1};
    config_rope_init(&r, &rc);
    assert_true(fabs(r.magnitude - (0.1 * log(4) + 1)) < 1e-12);
    assert_true(r.inv_freq[8] == (float)pow(10000, -16.0 / 64));
    assert_true(fabs(r.inv_freq[21] * 4 / pow(10000, -42.0 / 64) - 1) < 1e-6);
    double ramp = (12.0 - 8) / (21 - 8), inv = pow(10000, -24.0 / 64);
    assert_true(fabs(r.inv_freq[12] / (inv / 4 * ramp + inv * (1 - ramp)) - 1) < 1e-6);
}

#define NUMBERS                                                                                              \
    "\"hidden_size\":64,\"num_hidden_layers\":6,\"intermediate_size\":160,\"vocab_size\":512,"               \
    "\"num_attention_heads\":4,\"max_position_embeddings\":4096"

TEST(windows_are_of_the_layers_that_have_one)
{
    struct config c = reads("{\"model_type\":\"mistral\"," NUMBERS ",\"sliding_window\":100}");
    assert_int_equal(c.layer[0].window, 100);
    assert_int_equal(c.layer[5].window, 100);
    c = reads("{\"model_type\":\"mistral\"," NUMBERS ",\"sliding_window\":null}");
    assert_int_equal(c.layer[0].window, 0);
    c = reads("{\"model_type\":\"qwen2\"," NUMBERS ",\"sliding_window\":100,\"max_window_layers\":4}");
    assert_int_equal(c.layer[5].window, 0);
    c = reads("{\"model_type\":\"qwen2\"," NUMBERS
              ",\"sliding_window\":100,\"max_window_layers\":4,\"use_sliding_window\":true}");
    assert_int_equal(c.layer[3].window, 0);
    assert_int_equal(c.layer[4].window, 100);
    c = reads("{\"model_type\":\"gemma3_text\"," NUMBERS ",\"sliding_window\":100}");
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(c.layer[i].window, i == 5 ? 0 : 100);
        assert_int_equal(c.layer[i].rope, i == 5 ? 0 : 1);
    }
    refuses("{\"model_type\":\"qwen3\"," NUMBERS
            ",\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\",\"full_attention\","
            "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]}",
            -EINVAL, "sliding_window is missing: layer 0 has one");
}

/* Older and newer files name two tables differently, and leave out others. */
TEST(layers_may_rotate_by_two_tables)
{
    struct config c = reads("{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\","
                            "\"hidden_size\":2560,\"intermediate_size\":10240,\"num_hidden_layers\":34,"
                            "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},"
                            "\"sliding_window\":1024}}");
    assert_string_equal(c.family_name, "gemma3");
    assert_int_equal(c.heads, 8);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 256);
    assert_int_equal(c.vocab, 262208);
    assert_int_equal(c.rope_count, 2);
    assert_true(c.ropes[0].theta == 1e6 && c.ropes[0].type == ROPE_LINEAR && c.ropes[0].factor == 8);
    assert_true(c.ropes[1].theta == 1e4 && c.ropes[1].type == ROPE_DEFAULT);
    assert_true(c.embedding_scale == sqrtf(2560) && c.score_scalar == 256);
    c = reads("{\"model_type\":\"olmo3\"," NUMBERS
              ",\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
              "\"original_max_position_embeddings\":512}}");
    assert_true(c.ropes[0].type == ROPE_YARN && c.ropes[1].type == ROPE_DEFAULT);
    assert_true(c.ropes[0].theta == 500000 && c.ropes[1].theta == 500000);
}

#define EXPERTS NUMBERS ",\"moe_intermediate_size\":16,\"num_experts_per_tok\":2"

#define LFM2                                                                                                 \
    "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":512,"               \
    "\"max_position_embeddings\":4096,\"conv_L_cache\":3"

TEST(short_convolutions_stand_where_the_file_says)
{
    struct config c =
        reads("{\"model_type\":\"lfm2\"," LFM2 ",\"layer_types\":null,\"full_attn_idxs\":[1,2]}");
    for (uint32_t i = 0; i < 4; i++)
        assert_ptr_equal(c.layer[i].mixer, i == 1 || i == 2 ? &block_attention : &block_short_conv);
    assert_int_equal(c.recurrent_count, 2);
    assert_int_equal(c.kv_count, 2);
    c = reads("{\"model_type\":\"lfm2\"," LFM2
              ",\"layer_types\":[\"conv\",\"full_attention\",\"conv\",\"conv\"]}");
    assert_ptr_equal(c.layer[1].mixer, &block_attention);
    assert_int_equal(c.recurrent_count, 3);
    refuses("{\"model_type\":\"lfm2\"," LFM2 ",\"conv_L_cache\":9,\"full_attn_idxs\":[1]}", -EINVAL,
            "conv_L_cache");
    refuses("{\"model_type\":\"lfm2\"," LFM2 ",\"full_attn_idxs\":[1,\"2\"]}", -EINVAL, "full_attn_idxs");
}

static uint32_t lfm2_width(const char *rest)
{
    char text[600];
    snprintf(text, sizeof(text), "{\"model_type\":\"lfm2\"," LFM2 "%s}", rest);
    return reads(text).intermediate;
}

TEST(an_mlp_may_be_as_wide_as_a_formula_says)
{
    assert_int_equal(lfm2_width(",\"intermediate_size\":160,\"block_multiple_of\":32"), 128);
    assert_int_equal(lfm2_width(",\"intermediate_size\":160,\"block_ff_dim\":100,\"block_multiple_of\":1"),
                     66);
    assert_int_equal(lfm2_width(",\"intermediate_size\":160,\"block_ffn_dim_multiplier\":1.5,"
                                "\"block_multiple_of\":8"),
                     160);
    assert_int_equal(lfm2_width(",\"intermediate_size\":160,\"block_auto_adjust_ff_dim\":false"), 160);
    refuses("{\"model_type\":\"lfm2\"," LFM2 ",\"intermediate_size\":1000000,"
            "\"block_ffn_dim_multiplier\":100}",
            -EINVAL, "makes an MLP of width");
}

TEST(some_layers_of_a_mixture_are_dense)
{
    struct config c = reads("{\"model_type\":\"qwen3_moe\"," EXPERTS
                            ",\"num_experts\":8,\"mlp_only_layers\":[1],\"decoder_sparse_step\":2}");
    for (uint32_t i = 0; i < 6; i++)
        assert_ptr_equal(c.layer[i].mlp, i == 3 || i == 5 ? &block_experts : &block_mlp);
    assert_false(c.normalise);
    c = reads("{\"model_type\":\"glm4_moe\"," EXPERTS
              ",\"n_routed_experts\":8,\"first_k_dense_replace\":2,\"n_shared_experts\":3}");
    assert_ptr_equal(c.layer[1].mlp, &block_mlp);
    assert_ptr_equal(c.layer[2].mlp, &block_experts);
    assert_int_equal(c.shared_intermediate, 48);
    refuses("{\"model_type\":\"glm4_moe\"," EXPERTS ",\"n_routed_experts\":8,\"n_group\":3}", -EINVAL,
            "n_group 3 does not divide 8 experts");
    refuses("{\"model_type\":\"glm4_moe\"," EXPERTS ",\"n_routed_experts\":8,\"n_group\":8,\"topk_group\":1}",
            -EINVAL, "is more than the experts of topk_group 1 groups");
    refuses("{\"model_type\":\"qwen3_moe\"," NUMBERS
            ",\"moe_intermediate_size\":16,\"num_experts_per_tok\":9,\"num_experts\":8}",
            -EINVAL, "num_experts_per_tok is 9, but there are 8 experts");
}

TEST(encoders_have_a_row_for_each_position)
{
    struct config c = reads("{\"model_type\":\"bert\"," NUMBERS "}");
    assert_true(c.both_ways && c.context_max == 4096 && c.position_rows == 4096 && c.position_first == 0);
    assert_true(c.activation == ACTIVATION_GELU_ERF && c.token_types == 2 && c.rope_count == 0);
    c = reads("{\"model_type\":\"xlm-roberta\"," NUMBERS ",\"pad_token_id\":3}");
    assert_true(c.context_max == 4092 && c.position_rows == 4096 && c.position_first == 4);
    refuses("{\"model_type\":\"roberta\"," NUMBERS ",\"pad_token_id\":4095}", -EINVAL,
            "max_position_embeddings 4096 leaves no position after pad_token_id 4095");
    refuses("{\"model_type\":\"bert\"," NUMBERS ",\"is_decoder\":true}", -ENOTSUP, "is_decoder is true");
    refuses("{\"model_type\":\"bert\"," NUMBERS ",\"position_embedding_type\":\"relative_key\"}", -ENOTSUP,
            "position_embedding_type 'relative_key' is not supported; supported: absolute");
    c = reads("{\"model_type\":\"gemma3_text\"," NUMBERS
              ",\"use_bidirectional_attention\":true,\"sliding_window\":512}");
    assert_true(c.both_ways && c.window == 257);
}

/* A window has sliding_window keys on either side, in words of transformers: distance <= sliding_window. */
TEST(a_decoder_may_see_all_of_its_text)
{
    struct config c = reads("{\"model_type\":\"qwen2\"," NUMBERS ",\"is_causal\":false}");
    assert_true(c.both_ways && c.window == 0);
    c = reads("{\"model_type\":\"mistral\"," NUMBERS ",\"is_causal\":false,\"sliding_window\":8}");
    assert_true(c.both_ways && c.window == 9);
    c = reads("{\"model_type\":\"qwen2\"," NUMBERS ",\"is_causal\":true}");
    assert_false(c.both_ways);
    refuses("{\"model_type\":\"qwen3_next\"," NUMBERS ",\"is_causal\":false}", -ENOTSUP,
            "is_causal is false, which is not supported for models of type qwen3_next");
    refuses("{\"model_type\":\"qwen3_vl\"," NUMBERS ",\"is_causal\":false}", -ENOTSUP,
            "is_causal is false, which is not supported for models of type qwen3_vl");
}

TEST(a_value_that_is_not_computed_is_refused_by_key_and_value)
{
    refuses("{\"model_type\":\"gemma2\"," NUMBERS ",\"use_bidirectional_attention\":true}", -ENOTSUP,
            "use_bidirectional_attention is true, which is not supported");
    refuses("{\"model_type\":\"gemma3_text\"," NUMBERS ",\"hidden_activation\":\"relu\"}", -ENOTSUP,
            "hidden_activation 'relu' is not supported; supported: gelu_pytorch_tanh, gelu");
}

TEST(gemmas_activation_is_exact_where_the_newer_key_says_gelu)
{
    static const char *const names[] = {"gemma2", "gemma3_text", "gemma4_text"};
    char text[512];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        snprintf(text, sizeof(text), "{\"model_type\":\"%s\"," NUMBERS ",\"hidden_activation\":\"gelu\"}",
                 names[i]);
        assert_int_equal(reads(text).activation, ACTIVATION_GELU_ERF);
        snprintf(text, sizeof(text), "{\"model_type\":\"%s\"," NUMBERS ",\"hidden_act\":\"gelu\"}", names[i]);
        assert_int_equal(reads(text).activation, ACTIVATION_GELU_TANH);
    }
}

TEST(every_number_has_bounds)
{
    static const struct {
        const char *key, *value, *says;
    } bad[] = {
        {"hidden_size", "65537", "hidden_size is 65537, but must be in 8..65536"},
        {"hidden_size", "0", "hidden_size is 0"},
        {"hidden_size", "64.5", "hidden_size must be an integer"},
        {"hidden_size", "\"64\"", "hidden_size must be an integer"},
        {"num_hidden_layers", "1025", "num_hidden_layers is 1025"},
        {"num_hidden_layers", "-1", "num_hidden_layers is -1"},
        {"num_attention_heads", "100000", "num_attention_heads is 100000"},
        {"vocab_size", "4194305", "vocab_size is 4194305"},
        {"vocab_size", "null", "vocab_size is missing"},
        {"max_position_embeddings", "1e300", "max_position_embeddings is 1"},
        {"intermediate_size", "1048577", "intermediate_size is 1048577"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char text[1024], good[64];
        snprintf(text, sizeof(text), "{%s}", LLAMA);
        snprintf(good, sizeof(good), "\"%s\":", bad[i].key);
        char *at = strstr(text, good);
        assert_non_null(at);
        at += strlen(good);
        char rest[1024];
        snprintf(rest, sizeof(rest), "%s%s", bad[i].value, at + strcspn(at, ",}"));
        snprintf(at, sizeof(text) - (size_t)(at - text), "%s", rest);
        refuses(text, -EINVAL, bad[i].says);
    }
    refuses("{" LLAMA ",\"head_dim\":642}", -EINVAL, "head_dim is 642, but must be in 2..640");
    refuses("{" LLAMA ",\"head_dim\":15}", -ENOTSUP, "head_dim is 15");
    refuses("{" LLAMA ",\"num_key_value_heads\":3}", -EINVAL, "is not a multiple of num_key_value_heads 3");
    refuses("{" LLAMA ",\"rms_norm_eps\":\"x\"}", -EINVAL, "rms_norm_eps must be a number");
}

#define MAMBA                                                                                                \
    "\"num_hidden_layers\":4,\"hidden_size\":64,\"num_attention_heads\":4,\"vocab_size\":512,"               \
    "\"max_position_embeddings\":4096,\"intermediate_size\":48"
#define GRANITE                                                                                              \
    "{\"model_type\":\"granitemoehybrid\"," MAMBA ",\"mamba_n_heads\":4,\"mamba_d_state\":16,"               \
    "\"layer_types\":[\"mamba\",\"attention\",\"linear_attention\",\"full_attention\"]"
#define NEMOTRON                                                                                             \
    "{\"model_type\":\"nemotron_h\"," MAMBA                                                                  \
    ",\"mamba_num_heads\":4,\"mamba_head_dim\":8,\"ssm_state_size\":16,\"n_groups\":1"

TEST(mamba_layers_have_states_and_no_position)
{
    struct config c = reads(GRANITE ",\"mamba_d_head\":\"auto\",\"time_step_limit\":[0.0,Infinity]}");
    assert_true(c.layer[0].mixer == &block_mamba && c.layer[1].mixer == &block_attention);
    assert_true(c.layer[2].mixer == &block_mamba && c.layer[2].recurrent == 1 && c.recurrent_count == 2);
    assert_int_equal(c.layer[3].index, 1);
    assert_int_equal(c.layer[3].rope, ROPE_ABSENT);
    assert_int_equal(c.ssm.head_dim, 32);
    assert_int_equal(c.ssm.conv_width, 4);
    assert_true(c.ssm_dt_limit[0] == 0 && c.ssm_dt_limit[1] > 1e29f && c.ssm_normed && !c.ssm_norm_first);
    c = reads(GRANITE ",\"position_embedding_type\":\"rope\","
                      "\"time_step_limit\":[0.01,{\"__float__\":\"Infinity\"}]}");
    assert_int_equal(c.layer[3].rope, 0);
    assert_true(c.ssm_dt_limit[0] == 0.01f);
    refuses(GRANITE ",\"time_step_limit\":[0.1]}", -EINVAL, "time_step_limit must be a list of 2 numbers");
    refuses(GRANITE ",\"time_step_limit\":[1,0.5]}", -EINVAL, "time_step_limit is empty");
    refuses(GRANITE ",\"time_step_limit\":[1,\"x\"]}", -EINVAL, "time_step_limit[1] must be a number");
    refuses(GRANITE ",\"mamba_n_groups\":3}", -EINVAL, "mamba_n_groups 3 does not divide mamba_n_heads 4");
    refuses(GRANITE ",\"mamba_d_head\":\"some\"}", -ENOTSUP, "mamba_d_head 'some'");
    refuses(GRANITE ",\"mamba_hidden_act\":\"gelu\"}", -ENOTSUP, "mamba_hidden_act 'gelu'");
}

TEST(a_layer_of_nemotron_is_one_branch)
{
    struct config c = reads(NEMOTRON ",\"hybrid_override_pattern\":\"M-*M\"}");
    const struct block *want[] = {&block_mamba, &block_mlp_plain, &block_attention, &block_mamba};
    for (uint32_t i = 0; i < 4; i++)
        assert_true(c.layer[i].mixer == want[i] && !c.layer[i].mlp);
    assert_int_equal(c.activation, ACTIVATION_RELU_SQUARE);
    assert_int_equal(c.layer[2].rope, ROPE_ABSENT);
    refuses(NEMOTRON ",\"hybrid_override_pattern\":\"M-*\"}", -EINVAL, "num_hidden_layers = 4");
    refuses(NEMOTRON ",\"hybrid_override_pattern\":\"M-*X\"}", -ENOTSUP, "layer_types[3] is 'X'");
    refuses(NEMOTRON ",\"layers_block_type\":[\"moe\",\"mlp\",\"mlp\",\"mlp\"],\"num_experts_per_tok\":2,"
                     "\"moe_intermediate_size\":8,\"n_routed_experts\":null}",
            -EINVAL, "n_routed_experts is missing");
    refuses(NEMOTRON ",\"hybrid_override_pattern\":\"ME*M\",\"moe_latent_size\":128}", -ENOTSUP,
            "moe_latent_size 128 above hidden_size 64");
}

TEST(mixers_side_by_side_have_both_states)
{
    struct config c =
        reads("{\"model_type\":\"falcon_h1\"," MAMBA ",\"mamba_n_heads\":4,\"mamba_d_state\":16,"
              "\"mamba_d_ssm\":32,\"attention_in_multiplier\":2,\"attention_out_multiplier\":3,"
              "\"ssm_multipliers\":[1,2,3,4,5]}");
    assert_true(c.layer[3].mixer == &block_attention && c.layer[3].beside == &block_mamba);
    assert_int_equal(c.kv_count, 4);
    assert_int_equal(c.recurrent_count, 4);
    assert_true(c.layer[3].index == 3 && c.layer[3].recurrent == 3);
    assert_int_equal(c.ssm.head_dim, 8);
    assert_true(c.ssm_multipliers[4] == 5 && c.attention_out_scale == 6 && !c.ssm_normed);
}

TEST(an_activation_has_the_name_of_its_function)
{
    assert_int_equal(reads("{" LLAMA "}").activation, ACTIVATION_SILU);
    assert_int_equal(reads("{" LLAMA ",\"hidden_act\":\"gelu\"}").activation, ACTIVATION_GELU_ERF);
    assert_int_equal(reads("{" LLAMA ",\"hidden_act\":\"gelu_new\"}").activation, ACTIVATION_GELU_TANH);
    assert_int_equal(reads("{" LLAMA ",\"hidden_act\":\"relu2\"}").activation, ACTIVATION_RELU_SQUARE);
}

TEST(what_we_do_not_compute_is_refused)
{
    refuses("{\"model_type\":\"mamba\"}", -ENOTSUP,
            "model_type 'mamba' is not supported; docs/models.md lists those that are");
    refuses("{}", -ENOTSUP, "model_type ''");
    refuses("{" LLAMA ",\"hidden_act\":\"relu\"}", -ENOTSUP, "hidden_act 'relu'");
    refuses("{" LLAMA ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":8}", -ENOTSUP,
            "num_experts is 4, but llama with experts is not supported");
    refuses("{" QWEN3_5 ",\"output_gate_type\":\"sigmoid\"}", -ENOTSUP, "output_gate_type 'sigmoid'");
    refuses("{\"text_config\":3}", -EINVAL, "text_config must be an object");
    refuses("{\"llm_config\":[]}", -EINVAL, "llm_config must be an object");
    refuses("{\"linear_key_head_dim\":24,\"text_config\":{\"linear_key_head_dim\":null," QWEN3_5_BUT_KEY_DIM
            "}}",
            -ENOTSUP, "linear head dimensions 24 and 32 must be multiples of 16");
    refuses("{\"model_type\":\"qwen3_5_moe\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_"
            "heads\":4,"
            "\"vocab_size\":9,\"max_position_embeddings\":64,\"num_experts\":null}",
            -EINVAL, "num_experts is missing");
}

/* transformers' own, and null is not absence. */
TEST(switches_of_families_that_have_one_setting_are_refused)
{
    refuses("{\"model_type\":\"cohere\",\"use_qk_norm\":true," LLAMA_NUMBERS "}", -ENOTSUP,
            "use_qk_norm is true");
    refuses("{\"model_type\":\"olmoe\",\"clip_qkv\":8.0," LLAMA_NUMBERS "}", -ENOTSUP, "clip_qkv is 8.0");
    refuses("{\"model_type\":\"solar_open\",\"first_k_dense_replace\":1," LLAMA_NUMBERS "}", -ENOTSUP,
            "first_k_dense_replace is 1");
    struct config c = reads("{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\"," LLAMA_NUMBERS "}");
    assert_int_equal(c.activation, ACTIVATION_GELU_TANH);
}

TEST(an_activation_of_recurrent_layers_is_refused)
{
    refuses("{" QWEN3_5 ",\"hidden_act\":\"gelu\"}", -ENOTSUP, "hidden_act 'gelu' is not supported");
    refuses(GRANITE ",\"hidden_act\":\"gelu\"}", -ENOTSUP, "hidden_act 'gelu' is not supported");
    assert_int_equal(reads("{" LLAMA ",\"hidden_act\":\"gelu\"}").activation, ACTIVATION_GELU_ERF);
}

TEST(what_a_file_leaves_out_is_the_familys_default)
{
    struct config c = reads("{\"model_type\":\"gemma2\"," LLAMA_NUMBERS "}");
    assert_true(c.score_cap == 50 && c.logits_cap == 30 && c.head_dim == 256 && c.eps == 1e-6f);
    c = reads("{\"model_type\":\"gemma2\"," LLAMA_NUMBERS ",\"attn_logit_softcapping\":null}");
    assert_true(c.score_cap == 0 && c.logits_cap == 30);
    assert_int_equal(reads("{\"model_type\":\"mistral\"," LLAMA_NUMBERS "}").window, 4096);
    assert_int_equal(reads("{\"model_type\":\"mistral\"," LLAMA_NUMBERS ",\"sliding_window\":null}").window,
                     0);
    c = reads("{\"model_type\":\"gpt_oss\"," LLAMA_NUMBERS "}");
    assert_true(c.ropes[0].type == ROPE_YARN && c.ropes[0].untruncated && c.experts == 128 && c.top_k == 4);
    c = reads("{\"model_type\":\"gpt_oss\"," LLAMA_NUMBERS ",\"rope_scaling\":null,\"num_experts\":8}");
    assert_true(c.ropes[0].type == ROPE_DEFAULT && c.experts == 8);
    assert_true(reads("{\"model_type\":\"glm4\"," LLAMA_NUMBERS "}").eps == 1.5625e-7f);
    /* A number of KV heads that cannot be is not meant. */
    assert_int_equal(reads("{\"model_type\":\"mixtral\"," LLAMA_NUMBERS "}").kv_heads, 4);
    refuses("{\"model_type\":\"mixtral\"," LLAMA_NUMBERS ",\"num_key_value_heads\":8}", -EINVAL,
            "not a multiple of num_key_value_heads 8");
}

TEST(known_families_that_are_not_computed_say_why)
{
    static const char *const names[] = {
        "deepseek_v32", "deepseek_v4", "glm_moe_dsa",      "glm5_next",  "kimi_k3", "minimax_m3",
        "qwen4_exp",    "gemma3n",     "llama4",           "jamba",      "rwkv",    "rwkv7",
        "gemma3n_text", "paligemma",   "gemma4_assistant", "muse_spark",
    };
    char text[512], says[128];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        snprintf(says, sizeof(says), "models of type %s are not computed: ", names[i]);
        snprintf(text, sizeof(text), "{" LLAMA_NUMBERS ",\"model_type\":\"%s\"}", names[i]);
        refuses(text, -ENOTSUP, says);
        /* The text of a parent, and a parent of known text. */
        snprintf(text, sizeof(text),
                 "{\"model_type\":\"x\",\"text_config\":{" LLAMA_NUMBERS ",\"model_type\":\"%s\"}}",
                 names[i]);
        refuses(text, -ENOTSUP, says);
        snprintf(text, sizeof(text), "{\"model_type\":\"%s\",\"text_config\":{" LLAMA "}}", names[i]);
        refuses(text, -ENOTSUP, says);
    }
}

TEST(a_parent_is_known_by_its_text_or_by_its_name)
{
    struct config c =
        reads("{\"model_type\":\"llava_onevision\",\"text_config\":{" LLAMA "},\"vision_config\":{}}");
    assert_string_equal(c.family_name, "llama");
    assert_true(c.text_alone);
    c = reads("{\"model_type\":\"x\",\"llm_config\":{" LLAMA "},\"sound_config\":{}}");
    assert_string_equal(c.family_name, "llama");
    assert_true(c.text_alone);
    c = reads("{\"model_type\":\"mistral3\",\"text_config\":{" LLAMA_NUMBERS "},\"vision_config\":{}}");
    assert_string_equal(c.family_name, "mistral");
    assert_true(c.vision_family && !c.text_alone);
    c = reads("{\"model_type\":\"qwen3_5\",\"text_config\":{" QWEN3_5 "},\"vision_config\":{\"a\":1}}");
    assert_false(c.text_alone);
    refuses("{\"model_type\":\"x\",\"text_config\":{" LLAMA_NUMBERS "}}", -ENOTSUP, "model_type 'x'");
}

TEST(what_is_not_a_configuration_is_refused)
{
    refuses("", -EINVAL, "not valid JSON");
    refuses("[1]", -EINVAL, "not a JSON object");
    refuses("{\"a\":1,}", -EINVAL, "not valid JSON");
    refuses("{\"a\":1,\"a\":2}", -EINVAL, "not valid JSON");
    refuses("{\"a\":\"\\ud800\"}", -EINVAL, "not valid JSON");
    char *deep = calloc(1, 200001);
    memset(deep, '[', 100000);
    memset(deep + 100000, ']', 100000);
    refuses(deep, -EINVAL, "nested deeper than 32");
    free(deep);
    char *large = malloc((5u << 20) + 1);
    memset(large, ' ', 5u << 20);
    large[5u << 20] = 0;
    refuses(large, -EINVAL, "more than the limit");
    free(large);
}

/* ---- generation_config.json ---- */

static int load_generation(const char *config, const char *generation, struct generation_defaults *g,
                           struct err *e)
{
    const char *dir = test_dir();
    test_write_text(dir, "config.json", config);
    if (generation)
        test_write_text(dir, "generation_config.json", generation);
    return generation_config_load_at(dir, g, e);
}

TEST(generation_defaults_stand_where_the_file_is_silent)
{
    struct generation_defaults g;
    struct err e = {{0}};
    assert_int_equal(
        load_generation("{\"text_config\":{\"eos_token_id\":7},\"eos_token_id\":9}", NULL, &g, &e), 0);
    assert_string_equal(e.text, "");
    assert_int_equal(g.eos_count, 1);
    assert_int_equal(g.eos_ids[0], 7);
    assert_true(g.temperature == 1 && g.top_p == 1 && g.top_k == 0 && g.min_p == 0 &&
                g.repetition_penalty == 1);
    assert_false(g.has_temperature || g.do_sample || g.has_max_new_tokens);
    assert_int_equal(load_generation("{}", "{\"eos_token_id\":null}", &g, &e), 0);
    assert_int_equal(g.eos_count, 0);
}

TEST(generation_config_overrides_the_end_tokens)
{
    struct generation_defaults g;
    struct err e;
    assert_int_equal(
        load_generation("{\"eos_token_id\":[1,2,3]}",
                        "{\"eos_token_id\":[248046,248044],\"do_sample\":true,\"temperature\":0.7,"
                        "\"top_k\":20,\"top_p\":0.95,\"min_p\":0.1,\"repetition_penalty\":1.05,"
                        "\"max_new_tokens\":2048,\"transformers_version\":\"5\"}",
                        &g, &e),
        0);
    assert_int_equal(g.eos_count, 2);
    assert_int_equal(g.eos_ids[0], 248046);
    assert_true(g.temperature == 0.7 && g.top_p == 0.95 && g.min_p == 0.1 && g.repetition_penalty == 1.05);
    assert_int_equal(g.top_k, 20);
    assert_int_equal(g.max_new_tokens, 2048);
    assert_true(g.do_sample && g.has_temperature && g.has_top_k && g.has_top_p && g.has_min_p &&
                g.has_repetition_penalty && g.has_max_new_tokens);
}

TEST(generation_values_out_of_bounds_are_refused)
{
    struct generation_defaults g = {.top_k = 77};
    struct err e = {{0}};
    static const char *const bad[] = {
        "{\"temperature\":-1}",
        "{\"top_p\":1.5}",
        "{\"top_k\":-1}",
        "{\"eos_token_id\":-1}",
        "{\"eos_token_id\":\"a\"}",
        "{\"eos_token_id\":[1.5]}",
        "{\"do_sample\":\"yes\"}",
        "{\"min_p\":[]}",
        "{\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
        "[]",
        "{",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        e.text[0] = 0;
        assert_int_equal(load_generation("{}", bad[i], &g, &e), -EINVAL);
        assert_non_null(strstr(e.text, "generation_config.json"));
    }
    assert_int_equal(g.top_k, 77);
    assert_int_equal(generation_config_load_at("/nonexistent", &g, &e), -ENOENT);
}

/* As `reads()`, but the memory of the one before stays: config_lay_out takes some of its own. */
static struct config laid_out(const char *text, uint32_t mtp, uint32_t drafts_max)
{
    struct config c = reads(text);
    static struct arena *tables;
    if (!tables)
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &tables), 0);
    arena_reset(tables);
    c.mtp_count = mtp;
    c.drafts_max = drafts_max;
    assert_int_equal(config_lay_out(tables, &c), 0);
    return c;
}

/* Every K and V of every layer has its place in its group, each next to the one before. */
static void expect_pages(const struct compute_shape *c, uint32_t layers)
{
    size_t at[PAGE_GROUPS_MAX] = {0};
    assert_int_equal(c->kv_count, layers);
    for (uint32_t layer = 0; layer < layers; layer++) {
        const struct kv_layer *l = &c->kv[layer];
        assert_true(l->group < c->group_count);
        for (uint32_t head = 0; head < l->heads; head++) {
            assert_int_equal(page_k_offset(l, head), at[l->group]);
            at[l->group] += (l->k_width + (l->v_in_k ? 0 : l->v_width)) * PAGE_TOKENS * sizeof(float);
        }
    }
    for (uint32_t g = 0; g < c->group_count; g++)
        assert_int_equal(c->groups[g].page_bytes, at[g] ? at[g] : PAGE_BYTES_LEAST);
}

/* Two inputs of 64 channels a layer, and one for each of four pending tokens. */
TEST(a_short_convolution_keeps_its_last_inputs)
{
    struct config c = laid_out("{\"model_type\":\"lfm2\"," LFM2 ",\"full_attn_idxs\":[0]}", 0, 0);
    assert_int_equal(c.shape.state_bytes, 3 * 2 * 64 * sizeof(float));
    c = laid_out("{\"model_type\":\"lfm2\"," LFM2 ",\"full_attn_idxs\":[0]}", 0, 3);
    assert_int_equal(c.shape.state_bytes, 3 * (2 * 64 + 4 * 64) * sizeof(float));
}

TEST(pages_have_room_for_mtp_where_it_is_computed)
{
    struct config c = laid_out("{" QWEN3_5 "}", 0, 0);
    expect_pages(&c.shape, c.kv_count);
    assert_int_equal(c.shape.groups[0].page_bytes, 2u * 2 * 2 * 16 * PAGE_TOKENS * sizeof(float));
    c = laid_out("{" QWEN3_5 "}", 1, 1);
    assert_int_equal(c.mtp_layer.index, c.kv_count);
    expect_pages(&c.shape, c.kv_count + 1);
}

/* A page is the sum over layers of different sizes. */
TEST(each_layer_has_its_own_heads_in_a_page)
{
    struct kv_layer kv[] = {{.heads = 2, .k_width = 16, .v_width = 16},
                            {.heads = 1, .k_width = 64, .v_width = 40},
                            {.heads = 1, .k_width = 24, .v_width = 16, .v_in_k = true},
                            {.heads = 4, .k_width = 8, .v_width = 8}};
    struct compute_shape c = {.kv = kv, .kv_count = COUNT_OF(kv), .group_count = 1};
    page_lay_out(kv, COUNT_OF(kv), c.groups, c.group_count);
    expect_pages(&c, COUNT_OF(kv));
    assert_int_equal(c.groups[0].page_bytes, (2u * 32 + 104 + 24 + 4 * 16) * PAGE_TOKENS * sizeof(float));
}

TEST(each_group_is_the_sum_over_its_layers)
{
    struct kv_layer kv[] = {{.heads = 2, .k_width = 16, .v_width = 16, .group = 1},
                            {.heads = 1, .k_width = 64, .v_width = 64, .group = 2},
                            {.heads = 4, .k_width = 8, .v_width = 8, .group = 1}};
    struct compute_shape c = {.kv = kv, .kv_count = COUNT_OF(kv), .group_count = 3};
    page_lay_out(kv, COUNT_OF(kv), c.groups, c.group_count);
    expect_pages(&c, COUNT_OF(kv));
    assert_int_equal(kv[2].offset, 2 * 16 * 2 * PAGE_TOKENS * sizeof(float));
    assert_int_equal(c.groups[0].page_bytes, PAGE_BYTES_LEAST);
}

/* States first, at the same offsets as without drafts; then pending values; then hidden states. */
TEST(states_have_room_for_what_is_held_where_tokens_are_drafted)
{
    size_t states = laid_out("{" QWEN3_5 "}", 0, 0).shape.state_bytes;
    for (uint32_t mtp = 0; mtp < 2; mtp++) {
        for (uint32_t drafts_max = 1; drafts_max <= 8; drafts_max++) {
            const struct config config = laid_out("{" QWEN3_5 "}", mtp, drafts_max);
            const struct compute_shape *c = &config.shape;
            struct delta_pending_token row = delta_pending_token(c);
            size_t layer = row.floats * sizeof(float) * (1 + drafts_max), at = 0;
            assert_true(row.u + shape_conv_channels(c) <= row.k && row.k < row.v && row.v < row.alpha);
            assert_true(row.alpha + c->value_heads <= row.beta && row.beta + c->value_heads <= row.floats);
            for (uint32_t i = 0; i < c->recurrent_count; i++) {
                assert_int_equal(c->recurrent[i].offset, at);
                assert_int_equal(c->recurrent[i].pending_offset, states + i * layer);
                at += c->recurrent[i].bytes;
            }
            assert_int_equal(at, states);
            assert_int_equal(state_hidden_offset(c, 0), states + layer * c->recurrent_count);
            assert_true(state_hidden_offset(c, 1) >= state_hidden_offset(c, 0) + c->hidden * sizeof(float));
            assert_int_equal(c->state_bytes, state_hidden_offset(c, mtp ? 1 + drafts_max : 0));
            assert_int_equal(c->state_bytes % 64, 0);
        }
    }
}

TEST_MAIN()
