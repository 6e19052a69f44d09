/* Families that differ from llama in few things: what their configurations say, in both spellings, and what
 * is refused. */
#include "test_config_read.h"

#include "base/check.h"
#include "model/family/family.h"

#include <errno.h>
#include <math.h>

#define NUMBERS                                                                                              \
    "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,"        \
    "\"intermediate_size\":160,\"vocab_size\":512,\"max_position_embeddings\":4096"
#define OF(type, rest) "{\"model_type\":\"" type "\"," NUMBERS rest "}"

/* A letter per layer: R rotates, N does not, W rotates and has a window, X has a window alone. */
static void has_layers(const struct config *c, const char *letters)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct layer_config *l = &c->layer[i];
        bool rotates = l->rope != ROPE_ABSENT;
        char is = l->window > 0 ? (rotates ? 'W' : 'X') : rotates ? 'R' : 'N';
        if (is != letters[i])
            print_message("layer %u is %c, not %c\n", i, is, letters[i]);
        assert_int_equal(is, letters[i]);
    }
}

TEST(smollm3_says_which_layers_rotate)
{
    struct config c = reads(OF("smollm3", ""));
    has_layers(&c, "RRRN");
    assert_true(c.ropes[0].theta == 2e6);
    c = reads(OF("smollm3", ",\"no_rope_layer_interval\":2"));
    has_layers(&c, "RNRN");
    c = reads(OF("smollm3", ",\"no_rope_layers\":[0,1,1,0],\"no_rope_layer_interval\":2"));
    has_layers(&c, "NRRN");
    c = reads(OF("smollm3", ",\"use_sliding_window\":true,\"sliding_window\":8"));
    has_layers(&c, "RRRX");
    c = reads(OF("smollm3",
                 ",\"use_sliding_window\":false,\"sliding_window\":8,\"layer_types\":["
                 "\"full_attention\",\"full_attention\",\"full_attention\",\"sliding_attention\"]"));
    has_layers(&c, "RRRN");
    refuses(OF("smollm3", ",\"no_rope_layers\":[1,1]"), -EINVAL, "no_rope_layers has 2 numbers for 4 layers");
    refuses(OF("smollm3", ",\"no_rope_layers\":[1,1,2,1]"), -EINVAL, "no_rope_layers");
}

TEST(cohere2_rotates_where_it_has_windows)
{
    struct config c = reads(OF("cohere2", ""));
    has_layers(&c, "WWWN");
    assert_true(c.layer_norm && c.logits_scale == 0.0625f && c.eps == 1e-5f && c.layer[0].window == 4096);
    c = reads(OF("cohere2", ",\"sliding_window_pattern\":2,\"sliding_window\":16,\"layer_norm_eps\":0.001,"
                            "\"logit_scale\":0.25,\"use_parallel_block\":true,\"rotary_pct\":1.0"));
    has_layers(&c, "WNWN");
    assert_true(c.logits_scale == 0.25f && c.eps == 0.001f && c.layer[0].window == 16);
    c = reads(OF("cohere2", ",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
                            "\"sliding_attention\"]"));
    has_layers(&c, "NWNW");
    refuses(OF("cohere2", ",\"use_qk_norm\":true"), -ENOTSUP, "use_qk_norm is true");
    refuses(OF("cohere2", ",\"use_parallel_block\":false"), -ENOTSUP, "use_parallel_block is false");
    refuses(OF("cohere2", ",\"rotary_pct\":0.5"), -ENOTSUP, "rotary_pct is 0.5");
}

TEST(exaone4_rotates_everywhere_without_windows)
{
    struct config c = reads(OF("exaone4", ",\"sliding_window\":16"));
    has_layers(&c, "WWWN");
    c = reads(OF("exaone4", ",\"sliding_window\":16,\"sliding_window_pattern\":\"LG\""));
    has_layers(&c, "WNWN");
    c = reads(OF("exaone4", ",\"sliding_window\":null,\"sliding_window_pattern\":\"odd\",\"layer_types\":["
                            "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]"));
    has_layers(&c, "RRRR");
    refuses(OF("exaone4", ",\"sliding_window\":16,\"sliding_window_pattern\":\"GL\""), -ENOTSUP,
            "sliding_window_pattern 'GL' is not supported");
}

TEST(granite_has_four_factors)
{
    struct config c = reads(OF("granite", ",\"embedding_multiplier\":12,\"residual_multiplier\":0.22,"
                                          "\"attention_multiplier\":0.0078125,\"logits_scaling\":8"));
    assert_true(c.embedding_scale == 12 && c.residual_scale == 0.22f && c.score_scale == 0.0078125f &&
                c.logits_divisor == 8);
    c = reads(OF("granite", ""));
    assert_true(c.embedding_scale == 1 && c.residual_scale == 1 && c.score_scale == 1 &&
                c.logits_divisor == 1);
    refuses(OF("granite", ",\"attention_multiplier\":0"), -EINVAL, "attention_multiplier");
}

TEST(ministral3_has_queries_that_grow)
{
#define GROWTH                                                                                               \
    "{\"rope_type\":\"yarn\",\"rope_theta\":1000000.0,\"factor\":16.0,\"mscale\":1.0,\"mscale_all_dim\":1."  \
    "0,"                                                                                                     \
    "\"original_max_position_embeddings\":256,\"llama_4_scaling_beta\":0.1}"
    struct config c = reads(OF("ministral3", ",\"rope_parameters\":" GROWTH));
    assert_true(c.ropes[0].growth == 0.1 && c.ropes[0].original_max == 256);
    has_layers(&c, "RRRR");
    /* Only where the family computes it. */
    c = reads(OF("llama", ",\"rope_parameters\":" GROWTH));
    assert_true(c.ropes[0].growth == 0);
    /* Below a parent with a vision encoder. */
    c = reads(
        "{\"model_type\":\"mistral3\",\"vision_config\":{\"model_type\":\"pixtral\"},\"text_config\":" OF(
            "ministral3", ",\"rope_parameters\":" GROWTH) "}");
    assert_string_equal(c.family_name, "ministral3");
    assert_true(c.ropes[0].growth == 0.1 && c.vision_family);
}

TEST(phi3_has_windows_everywhere_or_nowhere)
{
    struct config c = reads(OF("phi3", ",\"sliding_window\":2047"));
    has_layers(&c, "WWWW");
    c = reads(OF("phi3", ",\"sliding_window\":null,\"partial_rotary_factor\":0.75"));
    has_layers(&c, "RRRR");
    assert_int_equal(c.ropes[0].rot, 12);
}

TEST(norms_and_rotations_stand_where_families_have_them)
{
    assert_int_equal(reads(OF("hunyuan_v1_dense", "")).family->qk_norm, QK_NORM_ROTATED);
    assert_int_equal(reads(OF("exaone4", "")).family->norm_position, NORM_POST);
    struct config c = reads(OF("glm4", ",\"head_dim\":16"));
    assert_int_equal(c.family->norm_position, NORM_SANDWICH);
    assert_true(c.family->rope_adjacent && c.ropes[0].rot == 8);
    /* Its class has heads of 128 where the file says nothing. */
    assert_int_equal(reads(OF("glm4", "")).ropes[0].rot, 64);
    c = reads(OF("ernie4_5", ",\"use_bias\":true"));
    assert_true(c.family->rope_adjacent && c.ropes[0].theta == 5e5);
}

/* The names in the first column of the first table of docs/models.md are those of the table of families. */
TEST(the_page_of_models_lists_the_families)
{
    char line[2048], listed[2048] = ", ", known[2048] = ", ", name[64];
    FILE *f = fopen(PLATEAU_SOURCE_DIR "/docs/models.md", "r");
    bool inside = false;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) && (!inside || line[0] == '|')) {
        if (inside && line[1] == ' ')
            sprintf(listed + strlen(listed), "%.*s, ", (int)(strstr(line, " |") - line - 2), line + 2);
        inside |= strncmp(line, "| `model_type` |", 16) == 0;
    }
    fclose(f);
    sprintf(known + 2, "%s, ", family_list(line, sizeof(line)));
    for (const char *at = listed + 2; sscanf(at, "%63[^,], ", name) == 1; at += strlen(name) + 2) {
        if (!family_find(name))
            print_message("docs/models.md lists %s\n", name);
        assert_non_null(family_find(name));
    }
    for (const char *at = known + 2; sscanf(at, "%63[^,], ", name) == 1; at += strlen(name) + 2) {
        char wanted[80];
        snprintf(wanted, sizeof(wanted), ", %s, ", name);
        if (!strstr(listed, wanted))
            print_message("docs/models.md has no row of %s\n", name);
        assert_non_null(strstr(listed, wanted));
    }
}

TEST_MAIN()
