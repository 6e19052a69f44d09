/* config.json of families with experts: spellings, defaults, and absurd numbers. */
#include "test_config_read.h"

#include "compute/ops.h"
#include "model/config/json_read.h"
#include "model/blocks/blocks.h"

#include <errno.h>

static void refuses_it(const char *text, const char *says)
{
    struct config c;
    struct err e = {{0}};
    int r = config_parse(config_arena(), slice_of(text), &c, &e);
    if (r >= 0 || !strstr(e.text, says))
        print_message("%s\ngave %d: %s\n", text, r, e.text);
    assert_true(r == -EINVAL || r == -ENOTSUP);
    assert_non_null(strstr(e.text, says));
}

#define BASE                                                                                                 \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":24,"         \
    "\"vocab_size\":512,\"max_position_embeddings\":4096"
#define GPT_OSS                                                                                              \
    "{\"model_type\":\"gpt_oss\"," BASE ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32,"           \
    "\"original_max_position_embeddings\":4096,\"truncate\":false}"

TEST(gpt_oss_is_read_as_it_was_published)
{
    struct config c =
        reads(GPT_OSS ",\"num_local_experts\":8,\"experts_per_token\":3,\"hidden_act\":\"silu\"}");
    assert_true(c.experts == 8 && c.top_k == 3 && c.expert_intermediate == 24 && c.head_dim == 64);
    assert_int_equal(c.activation, ACTIVATION_SWIGLU_CLIP);
    assert_true(c.glu_alpha == 1.702f && c.glu_limit == 7 && c.eps == 1e-5f);
    assert_int_equal(c.route_score, ROUTE_SOFTMAX_CHOSEN);
    assert_true(c.layer[0].window == 128 && c.layer[1].window == 0);
    assert_true(c.ropes[0].theta == 150000 && c.ropes[0].untruncated);
    assert_ptr_equal(c.layer[1].mlp, &block_experts);
    c = reads(GPT_OSS ",\"num_local_experts\":8,\"num_experts_per_tok\":3,\"swiglu_limit\":5,"
                      "\"swiglu_alpha\":1.5,\"sliding_window\":16}");
    assert_true(c.glu_limit == 5 && c.glu_alpha == 1.5f && c.layer[0].window == 16);
}

#define MINIMAX "{\"model_type\":\"minimax_m2\"," BASE ",\"num_local_experts\":8,\"num_experts_per_tok\":2"

TEST(minimax_says_how_much_of_a_head_rotates)
{
    struct config c = reads(MINIMAX ",\"rotary_dim\":6,\"head_dim\":12}");
    assert_int_equal(c.ropes[0].rot, 6);
    c = reads(MINIMAX
              ",\"head_dim\":12,\"rope_parameters\":{\"rope_theta\":5e3,\"partial_rotary_factor\":0.5}}");
    assert_int_equal(c.ropes[0].rot, 6);
    c = reads(MINIMAX ",\"scoring_func\":\"softmax\"}");
    assert_true(c.route_score == ROUTE_SOFTMAX && c.head_dim == 128);
    assert_int_equal(reads(MINIMAX "}").route_score, ROUTE_SIGMOID);
}

TEST(a_window_of_0_is_none)
{
    struct config c = reads("{\"model_type\":\"qwen2_moe\"," BASE
                            ",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,"
                            "\"shared_expert_intermediate_size\":16,\"sliding_window\":0}");
    assert_true(c.layer[0].window == 0 && c.shared_intermediate == 16 && !c.normalise);
}

#define MIXTRAL "{\"model_type\":\"mixtral\"," BASE
#define GRANITE "{\"model_type\":\"granitemoe\"," BASE

TEST(absurd_numbers_are_named)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {MIXTRAL ",\"num_local_experts\":null}", "num_local_experts is missing"},
        {MIXTRAL ",\"num_local_experts\":0,\"num_experts_per_tok\":1}", "num_local_experts is 0"},
        {MIXTRAL ",\"num_local_experts\":-8,\"num_experts_per_tok\":1}", "num_local_experts is -8"},
        {MIXTRAL ",\"num_local_experts\":1000000000,\"num_experts_per_tok\":1}",
         "num_local_experts is 1000000000"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":null}", "num_experts_per_tok is missing"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":0}", "num_experts_per_tok is 0"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":9}", "num_experts_per_tok is 9"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":1000000000}", "num_experts_per_tok"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"sliding_window\":-1}",
         "sliding_window"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"rms_norm_eps\":-1}", "rms_norm_eps"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"rms_norm_eps\":NaN}", "config.json"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"rms_norm_eps\":1e400}", "config.json"},
        {MIXTRAL ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"hidden_act\":\"tanh\"}", "hidden_act"},
        {MINIMAX ",\"rotary_dim\":0}", "rotary_dim"},
        {MINIMAX ",\"rotary_dim\":1000000000}", "rotary_dim"},
        {MINIMAX ",\"rotary_dim\":64,\"head_dim\":32}", "rotary_dim 64 is more than head_dim 32"},
        {MINIMAX ",\"rotary_dim\":5,\"head_dim\":32}", "rotating dimensions"},
        {MINIMAX ",\"scoring_func\":\"max\"}", "scoring_func 'max'"},
        {MINIMAX ",\"use_qk_norm\":false}", "use_qk_norm is false"},
        {MINIMAX ",\"shared_intermediate_size\":64}", "shared_intermediate_size is 64"},
        {GPT_OSS ",\"num_local_experts\":8,\"num_experts_per_tok\":null}", "num_experts_per_tok is missing"},
        {GPT_OSS ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"swiglu_limit\":0}", "swiglu_limit"},
        {GPT_OSS ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"swiglu_limit\":-7}", "swiglu_limit"},
        {GPT_OSS ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"sliding_window\":0}",
         "sliding_window"},
        {GPT_OSS ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"quantization_config\":"
                 "{\"quant_method\":\"bitsandbytes\"}}",
         "quant_method 'bitsandbytes' is not supported"},
        {GRANITE ",\"num_local_experts\":8,\"num_experts_per_tok\":65}", "num_experts_per_tok"},
        {GRANITE ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"shared_intermediate_size\":-1}",
         "shared_intermediate_size"},
        {GRANITE ",\"num_local_experts\":8,\"num_experts_per_tok\":2,\"residual_multiplier\":0}",
         "residual_multiplier"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        refuses_it(cases[i].text, cases[i].says);
}

TEST(numbers_of_layers_may_be_lists_of_one_number)
{
    struct config c = reads("{\"model_type\":\"hunyuan_v1_moe\"," BASE
                            ",\"num_experts\":[8,8],\"moe_topk\":[2,2],\"num_shared_expert\":[1,1]}");
    assert_true(c.experts == 8 && c.top_k == 2 && c.expert_intermediate == 24 && c.shared_intermediate == 24);
    refuses("{\"model_type\":\"hunyuan_v1_moe\"," BASE ",\"num_experts\":8,\"moe_topk\":[2,3]}", -ENOTSUP,
            "moe_topk[1] is 3, and moe_topk[0] is 2");
    refuses("{\"model_type\":\"hunyuan_v1_moe\"," BASE ",\"num_experts\":8,\"moe_topk\":[2,\"3\"]}", -EINVAL,
            "moe_topk[1] must be an integer in 1..64");
    refuses("{\"model_type\":\"hunyuan_v1_moe\"," BASE ",\"num_experts\":8,\"num_shared_expert\":[1,2]}",
            -ENOTSUP, "num_shared_expert is");
}

TEST(ernie_has_experts_between_two_layers)
{
    const char *const with = "{\"model_type\":\"ernie4_5_moe\",\"hidden_size\":64,\"num_hidden_layers\":4,"
                             "\"num_attention_heads\":4,\"intermediate_size\":160,\"vocab_size\":512%s}";
    char text[512];
    snprintf(text, sizeof(text), with, ",\"moe_layer_start_index\":1,\"moe_layer_end_index\":2");
    struct config c = reads(text);
    for (uint32_t i = 0; i < 4; i++)
        assert_ptr_equal(c.layer[i].mlp, i == 1 || i == 2 ? &block_experts : &block_mlp);
    snprintf(text, sizeof(text), with, "");
    c = reads(text);
    assert_true(c.layer[3].mlp == &block_experts && c.experts == 64 && c.top_k == 6);
}

TEST(mistral4_gives_the_rotating_part_of_a_whole_head)
{
    const char *const with =
        "{\"model_type\":\"mistral4\"," BASE ",\"qk_nope_head_dim\":12,\"qk_rope_head_dim\":4,"
        "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2,\"llama_4_scaling_beta\":0.1,"
        "\"partial_rotary_factor\":%s}}";
    char text[512];
    snprintf(text, sizeof(text), with, "0.25");
    struct config c = reads(text);
    assert_true(c.ropes[0].rot == 4 && c.ropes[0].growth == 0.1);
    snprintf(text, sizeof(text), with, "0.5");
    refuses(text, -ENOTSUP, "partial_rotary_factor 0.5 of 16 values is not qk_rope_head_dim 4");
}

#define COHERE "{\"model_type\":\"cohere2_moe\"," BASE ",\"num_shared_experts\":2"

TEST(cohere2_moe_averages_its_shared_experts)
{
    struct config c = reads(COHERE "}");
    assert_true(c.moe_scale == 0.5f && c.expert_intermediate == 24 && c.shared_intermediate == 48);
    assert_true(c.route_score == ROUTE_SOFTMAX_CHOSEN && c.layer_norm && c.intermediate == 24);
    c = reads(COHERE ",\"shared_expert_combination_strategy\":\"sum\",\"rms_norm_eps\":1e-3,"
                     "\"expert_selection_fn\":\"sigmoid\",\"prefix_dense_intermediate_size\":40}");
    assert_true(c.moe_scale == 0 && !c.layer_norm && c.eps == 1e-3f && c.intermediate == 40);
    assert_true(c.route_score == ROUTE_SIGMOID && c.expert_intermediate == 24);
    assert_true(reads("{\"model_type\":\"cohere2_moe\"," BASE "}").moe_scale == 0);
    refuses(COHERE ",\"shared_expert_combination_strategy\":\"twist\"}", -ENOTSUP, "supported: average, sum");
    refuses(COHERE ",\"first_k_dense_replace\":1}", -EINVAL,
            "layer_types is missing, beside first_k_dense_replace 1");
}

/* Dense layers rotate whatever their kind, unless they have kinds of their own. */
TEST(dense_layers_of_cohere2_moe_rotate)
{
#define TWO ",\"first_k_dense_replace\":1,\"layer_types\":[\"full_attention\",\"full_attention\"]"
    struct config c = reads(COHERE TWO "}");
    assert_true(c.layer[0].rope == 0 && c.layer[1].rope == ROPE_ABSENT);
    assert_true(c.layer[0].mlp == &block_mlp && c.layer[1].mlp == &block_experts);
    c = reads(COHERE TWO ",\"prefix_dense_sliding_window_pattern\":2}");
    assert_true(c.layer[0].rope == ROPE_ABSENT && c.layer[1].rope == ROPE_ABSENT);
#undef TWO
}

TEST(apertus_has_an_mlp_of_xielu)
{
    const struct config c = reads("{\"model_type\":\"apertus\"," BASE "}");
    assert_true(c.activation == ACTIVATION_XIELU && c.layer[0].mlp == &block_mlp_plain && c.eps == 1e-5f);
    assert_true(c.ropes[0].type == ROPE_LLAMA3 && c.ropes[0].theta == 12000000);
    refuses("{\"model_type\":\"apertus\"," BASE ",\"hidden_act\":\"silu\"}", -ENOTSUP, "supported: xielu");
}

#define STEP "{\"model_type\":\"step3p5\"," BASE ",\"sliding_window\":8"
#define STEP_LISTS                                                                                           \
    ",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\"],"                     \
    "\"num_nextn_predict_layers\":1,\"moe_num_experts\":4,\"moe_top_k\":2,\"num_attention_groups\":2"

TEST(step_lists_layers_with_those_of_its_mtp_head)
{
    const struct config c = reads(STEP STEP_LISTS ",\"rope_theta\":[5000,100,100],"
                                                  "\"partial_rotary_factors\":[0.5,1,1],"
                                                  "\"moe_layers_enum\":\"1,2\","
                                                  "\"attention_other_setting\":{\"num_attention_heads\":6},"
                                                  "\"swiglu_limits\":[0,7,0],"
                                                  "\"swiglu_limits_shared\":[null,16,0]}");
    assert_true(c.layers == 2 && c.layer[0].heads == 4 && c.layer[1].heads == 6 && c.kv_heads == 2);
    assert_true(c.ropes[0].theta == 5000 && c.ropes[1].theta == 100);
    assert_true(c.ropes[0].rot == 8 && c.ropes[1].rot == 16);
    assert_true(c.layer[0].mlp == &block_mlp && c.layer[1].mlp == &block_experts);
    assert_true(c.layer[1].expert_limit == 7 && c.layer[1].mlp_limit == 16 && c.layer[0].mlp_limit == 0);
    assert_true(c.experts == 4 && c.top_k == 2 && c.layer[0].window == 0 && c.layer[1].window == 8);
    assert_string_equal(c.unknown_keys, "");
    refuses(STEP STEP_LISTS ",\"swiglu_limits\":[0]}", -EINVAL, "swiglu_limits must be a list");
    refuses(STEP STEP_LISTS ",\"swiglu_limits\":[0,-7]}", -EINVAL, "swiglu_limits[1] must be a number in 0");
    refuses(STEP STEP_LISTS ",\"moe_layers_enum\":\"1;2\"}", -EINVAL, "moe_layers_enum must be a text");
    refuses(STEP STEP_LISTS ",\"moe_layers_enum\":\"99999\"}", -EINVAL, "moe_layers_enum must be a text");
    refuses(STEP STEP_LISTS ",\"rope_theta\":[5000]}", -EINVAL, "rope_theta must be a list");
    refuses(STEP STEP_LISTS ",\"rope_theta\":[0,100,1]}", -EINVAL, "rope_theta must be in 1..1e+12");
    refuses(STEP STEP_LISTS ",\"partial_rotary_factors\":[2,1,1]}", -EINVAL,
            "partial_rotary_factors must be in 0..1");
    refuses(STEP STEP_LISTS ",\"partial_rotary_factors\":[0.5,-1,1]}", -EINVAL,
            "partial_rotary_factors must be in 0..1");
    refuses(STEP ",\"rope_theta\":[100,90],\"layer_types\":[\"full_attention\",\"full_attention\"]}",
            -ENOTSUP, "rope_theta[1] is 90, and that of a layer of its kind 100");
    refuses(STEP ",\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\"]}", -EINVAL,
            "layer_types must be a list of num_hidden_layers = 2 names");
}

#define STEP_SCALED                                                                                          \
    STEP STEP_LISTS                                                                                          \
        ",\"rope_theta\":[5000,100,100],\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2.0,"          \
        "\"low_freq_factor\":1.0,\"high_freq_factor\":32.0,\"original_max_position_embeddings\":64}"

TEST(step_scales_layers_without_a_window_alone)
{
    const struct config c = reads(STEP_SCALED ",\"yarn_only_types\":[\"full_attention\"]}");
    assert_true(c.ropes[0].type == ROPE_LLAMA3 && c.ropes[1].type == ROPE_DEFAULT);
    assert_string_equal(c.unknown_keys, "");
    refuses(STEP_SCALED ",\"yarn_only_types\":[\"full_attention\",\"sliding_attention\"]}", -ENOTSUP,
            "yarn_only_types is not supported; [\"full_attention\"] is");
    refuses(STEP_SCALED ",\"yarn_only_types\":[]}", -ENOTSUP, "yarn_only_types is not supported");
}

TEST(bounds_without_a_value_between_them_are_said)
{
    struct err e = {{0}};
    json_t *object = json_pack("{s:i}", "count", 4);
    struct json_read r = {.object = object, .where = "config.json", .e = &e};
    assert_int_equal(json_read_u32_or(&r, "count", 5, 3, 9), 5);
    assert_int_equal(r.error, -EINVAL);
    assert_string_equal(e.text, "config.json: count can have no value beside the numbers of other keys");
    r.error = 0;
    assert_true(json_read_f64_or(&r, "count", 5, 3, 9) == 5 && r.error == -EINVAL);
    assert_int_equal(json_read_u32_or(&r, "absent", 5, 3, 9), 9);
    json_decref(object);
}

TEST_MAIN()
