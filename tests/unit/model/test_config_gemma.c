/* config.json of gemma4: sizes of global layers in both spellings, shared K and V, defaults, refusals. */
#include "test_config_read.h"

#include "base/none.h"
#include "compute/layout.h"
#include "model/blocks/blocks.h"

#include <errno.h>
#include <math.h>

#define GEMMA4 GEMMA4_LAYERS("6")
#define GEMMA4_LAYERS(n)                                                                                     \
    "\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"num_hidden_layers\":" n                             \
    ",\"num_attention_heads\":4,"                                                                            \
    "\"num_key_value_heads\":2,\"head_dim\":16,\"intermediate_size\":160,\"vocab_size\":512"
#define TYPES                                                                                                \
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\",\"sliding_attention\"," \
    "\"sliding_attention\",\"full_attention\"]"

TEST(global_layers_have_sizes_of_their_own)
{
    struct config c = reads("{" GEMMA4 "," TYPES ",\"global_head_dim\":32}");
    assert_int_equal(c.layer[0].head_dim, 16);
    assert_int_equal(c.layer[1].head_dim, 32);
    assert_int_equal(c.layer[1].kv_heads, 2);
    assert_true(c.layer[0].window == 512 && c.layer[1].window == 0);
    /* KV heads of their own, and no values, only with attention_k_eq_v. */
    c = reads("{" GEMMA4 "," TYPES ",\"global_head_dim\":32,\"num_global_key_value_heads\":1}");
    assert_true(c.layer[1].kv_heads == 2 && !c.layer[1].v_is_k);
    c = reads("{" GEMMA4 "," TYPES
              ",\"global_head_dim\":32,\"num_global_key_value_heads\":1,\"attention_k_eq_v\":true}");
    assert_true(c.layer[1].kv_heads == 1 && c.layer[1].v_is_k);
    assert_true(c.layer[0].kv_heads == 2 && !c.layer[0].v_is_k);
}

/* A list of layers names all that differ. */
TEST(single_layers_may_have_numbers)
{
    struct config c = reads("{" GEMMA4 "," TYPES ",\"global_head_dim\":64,\"per_layer_config\":"
                            "{\"1\":{\"head_dim\":32,\"num_key_value_heads\":4},\"5\":{\"head_dim\":32}}}");
    assert_true(c.layer[1].head_dim == 32 && c.layer[1].kv_heads == 4);
    assert_true(c.layer[5].head_dim == 32 && c.layer[5].kv_heads == 2);
    assert_int_equal(c.ropes[0].rot, 32);
    assert_int_equal(c.ropes[1].rot, 16);
    c = reads("{" GEMMA4 "," TYPES ",\"global_head_dim\":64,\"per_layer_config\":{}}");
    assert_int_equal(c.layer[1].head_dim, 16);
#define SINGLE(value) "{" GEMMA4 "," TYPES ",\"per_layer_config\":" value "}"
    refuses(SINGLE("[1]"), -EINVAL, "per_layer_config must be an object");
    refuses(SINGLE("{\"1\":{\"rope_theta\":5}}"), -ENOTSUP, "layer 1: rope_theta is not supported");
    refuses(SINGLE("{\"1\":{\"head_dim\":0}}"), -EINVAL, "head_dim");
    refuses(SINGLE("{\"1\":{\"head_dim\":32}}"), -ENOTSUP, "rotate by one table");
    refuses(SINGLE("{\"1\":{\"num_key_value_heads\":3}}"), -EINVAL, "layer 1: 4 heads");
}

/* The last layers read the last layer of their kind before them; their K and V are in no page. */
TEST(last_layers_share_keys_and_values)
{
    struct arena *memory = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1 << 20}, &memory), 0);
    struct config c = reads("{" GEMMA4 "," TYPES ",\"global_head_dim\":32,\"num_kv_shared_layers\":2,"
                            "\"use_double_wide_mlp\":true}");
    assert_true(c.layer[3].kv_from == NONE && c.layer[4].kv_from == 3 && c.layer[5].kv_from == 1);
    assert_int_equal(c.kv_count, 4);
    assert_true(c.layer[4].index == c.layer[3].index && c.layer[5].index == c.layer[1].index);
    assert_true(c.layer[3].intermediate == 160 && c.layer[4].intermediate == 320);
    assert_int_equal(config_lay_out(memory, &c), 0);
    assert_int_equal(c.shape.kv_count, 4);
    assert_int_equal(c.shape.groups[0].page_bytes, 2u * 2 * 32 * PAGE_TOKENS * sizeof(float));
    assert_int_equal(c.shape.groups[1].page_bytes, 2u * 2 * 3 * 16 * PAGE_TOKENS * sizeof(float));
    refuses("{" GEMMA4 "," TYPES ",\"global_head_dim\":32,\"num_kv_shared_layers\":5}", -EINVAL,
            "num_kv_shared_layers is 5: layer 1 has no layer of its kind before");
    refuses("{" GEMMA4 "," TYPES ",\"global_head_dim\":32,\"num_kv_shared_layers\":6}", -EINVAL,
            "layer 0 has no layer of its kind before");
    arena_free(memory);
}

TEST(kinds_follow_the_pattern_where_none_are_listed)
{
    struct config c = reads("{" GEMMA4 ",\"global_head_dim\":32}");
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(c.layer[i].window, i == 5 ? 0 : 512);
    /* The last layer is always global. */
    c = reads("{" GEMMA4_LAYERS("7") ",\"global_head_dim\":32}");
    assert_true(c.layer[4].window == 512 && c.layer[5].window == 0 && c.layer[6].window == 0);
}

TEST(a_proportional_rotation_has_the_exponent_of_the_whole_head)
{
    struct rope r;
    struct config c = reads("{" GEMMA4 "," TYPES ",\"global_head_dim\":32}");
    assert_true(c.ropes[0].type == ROPE_PROPORTIONAL && c.ropes[0].theta == 1e6);
    assert_true(c.ropes[1].type == ROPE_DEFAULT && c.ropes[1].theta == 1e4);
    config_rope_init(&r, &c.ropes[0]);
    assert_int_equal(r.half, 16);
    for (uint32_t j = 0; j < 16; j++)
        assert_true(r.inv_freq[j] == (j < 4 ? (float)pow(1e6, -2.0 * j / 32) : 0));
    c = reads(
        "{" GEMMA4 "," TYPES ",\"global_head_dim\":32,\"rope_parameters\":{\"full_attention\":"
        "{\"rope_type\":\"proportional\",\"rope_theta\":100.0,\"partial_rotary_factor\":0.3,\"factor\":2}"
        "}}");
    config_rope_init(&r, &c.ropes[0]);
    for (uint32_t j = 0; j < 16; j++)
        assert_true(r.inv_freq[j] == (j < 4 ? (float)(pow(100, -2.0 * j / 32) / 2) : 0));
}

TEST(inputs_and_experts_are_there_where_the_keys_say_so)
{
    struct config c = reads("{" GEMMA4 ",\"global_head_dim\":32}");
    assert_true(c.layer_input == 256 && c.layer_input_vocab == 262144);
    assert_true(c.layer[0].extra == &block_layer_input && c.layer[0].mlp == &block_mlp);
    assert_true(c.score_scale == 1 && c.embedding_scale == 8);
    c = reads("{" GEMMA4 ",\"global_head_dim\":32,\"hidden_size_per_layer_input\":0,\"num_experts\":4}");
    assert_true(!c.layer[0].extra && c.layer[0].mlp == &block_mlp && c.experts == 0);
#define BESIDE "{" GEMMA4 ",\"global_head_dim\":32,\"enable_moe_block\":true,\"num_experts\":4,"
    c = reads(BESIDE "\"top_k_experts\":2,\"moe_intermediate_size\":24}");
    assert_true(c.layer[0].mlp == &block_experts_beside && c.top_k == 2 && c.expert_intermediate == 24);
    refuses(BESIDE "\"top_k_experts\":5,\"moe_intermediate_size\":24}", -EINVAL, "top_k_experts is 5");
    refuses(BESIDE "\"moe_intermediate_size\":24}", -EINVAL, "top_k_experts is missing");
    refuses("{" GEMMA4 ",\"global_head_dim\":32,\"vocab_size_per_layer_input\":500}", -EINVAL,
            "vocab_size_per_layer_input 500 is less than vocab_size 512");
    refuses("{" GEMMA4 ",\"global_head_dim\":32,\"use_bidirectional_attention\":\"all\"}", -ENOTSUP,
            "use_bidirectional_attention 'all' is not supported");
    reads("{" GEMMA4 ",\"global_head_dim\":32,\"use_bidirectional_attention\":\"vision\"}");
}

/* The shape of a published parent, as its file spells it. */
TEST(a_published_file_is_read)
{
    struct config c = reads(
        "{\"model_type\":\"gemma4\",\"audio_config\":null,\"vision_config\":{\"model_type\":\"gemma4_"
        "vision\"},"
        "\"text_config\":{\"model_type\":\"gemma4_text\",\"attention_k_eq_v\":true,\"enable_moe_block\":true,"
        "\"final_logit_softcapping\":30.0,\"global_head_dim\":512,\"head_dim\":256,\"hidden_activation\":"
        "\"gelu_pytorch_tanh\",\"hidden_size\":2816,\"hidden_size_per_layer_input\":0,\"intermediate_size\":"
        "2112,"
        "\"max_position_embeddings\":262144,\"moe_intermediate_size\":704,\"num_attention_heads\":16,"
        "\"num_experts\":128,\"num_global_key_value_heads\":2,\"num_hidden_layers\":30,"
        "\"num_key_value_heads\":8,\"num_kv_shared_layers\":0,\"rope_parameters\":{\"full_attention\":"
        "{\"partial_rotary_factor\":0.25,\"rope_theta\":1000000.0,\"rope_type\":\"proportional\"},"
        "\"sliding_attention\":{\"rope_theta\":10000.0,\"rope_type\":\"default\"}},\"sliding_window\":1024,"
        "\"tie_word_embeddings\":true,\"top_k_experts\":8,\"use_bidirectional_attention\":\"vision\","
        "\"use_double_wide_mlp\":false,\"vocab_size\":262144,\"vocab_size_per_layer_input\":262144}}");
    assert_true(!c.text_alone && c.tied && c.logits_cap == 30);
    assert_true(c.layer[5].head_dim == 512 && c.layer[5].kv_heads == 2 && c.layer[5].window == 0);
    assert_true(c.layer[4].head_dim == 256 && c.layer[4].kv_heads == 8 && c.layer[4].window == 1024);
    assert_true(c.layer[29].mlp == &block_experts_beside && !c.layer[29].extra && c.kv_count == 30);
    assert_true(c.ropes[0].rot == 512 && c.ropes[1].rot == 256);
}

TEST(muse_glimmer_has_factors_of_scores_and_logits)
{
#define MUSE                                                                                                 \
    "{\"model_type\":\"muse_glimmer\",\"text_config\":{\"model_type\":\"muse_glimmer_text\",\"hidden_"       \
    "size\":64,"                                                                                             \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"intermediate_size\":160,\"vocab_size\":512"
    struct config c = reads(MUSE "}}");
    assert_true(c.key_scale == 3.87f && c.logits_cap == 20 && c.eps == 1e-5f && c.eps_after == 1e-8f);
    assert_true(c.layer[2].window == 2048 && c.layer[2].rope == 0);
    assert_true(c.layer[3].window == 0 && c.layer[3].rope == ROPE_ABSENT);
    c = reads(MUSE ",\"layer_rope_theta\":[0,100,100,100],\"qk_scale_factor\":2}}");
    assert_true(c.layer[0].rope == ROPE_ABSENT && c.layer[3].rope == 0 && c.ropes[0].theta == 100);
    assert_true(c.key_scale == 2);
#undef MUSE
}

TEST_MAIN()
