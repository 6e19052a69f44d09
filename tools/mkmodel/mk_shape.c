/* mk_shape.c - the numbers are from the published configurations; the tiny ones are ours, for tests. */
#include "mkmodel/mk_shape.h"

#include <string.h>

const struct mk_shape mk_shapes[] = {
    {.name = "tiny-qwen3",
     .model_type = "qwen3",
     .layers = 4,
     .hidden = 128,
     .vocab = 512,
     .context_max = 4096,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .intermediate = 256,
     .tied = true,
     .rope_theta = 1e6},
    {.name = "tiny-qwen3.5",
     .model_type = "qwen3_5",
     .layers = 8,
     .hidden = 128,
     .vocab = 512,
     .context_max = 4096,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .intermediate = 256,
     .tied = true,
     .rope_theta = 1e7,
     .key_heads = 2,
     .value_heads = 4,
     .linear_dim = 32},
    {.name = "tiny-qwen3.5-moe",
     .model_type = "qwen3_5_moe",
     .layers = 8,
     .hidden = 128,
     .vocab = 512,
     .context_max = 4096,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .rope_theta = 1e7,
     .key_heads = 2,
     .value_heads = 4,
     .linear_dim = 32,
     .experts = 8,
     .top_k = 3,
     .expert_intermediate = 64,
     .shared_intermediate = 128},
    {.name = "tiny-qwen3.5-vl",
     .model_type = "qwen3_5",
     .layers = 4,
     .hidden = 128,
     .vocab = 512,
     .context_max = 4096,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .intermediate = 256,
     .tied = true,
     .rope_theta = 1e7,
     .key_heads = 2,
     .value_heads = 4,
     .linear_dim = 32,
     .vision = {.depth = 2, .hidden = 64, .heads = 2, .intermediate = 112, .grid = 6}},
    /* The vision encoder of the larger ones, before a minimal text model. */
    {.name = "qwen3.5-vision",
     .model_type = "qwen3_5",
     .layers = 4,
     .hidden = 2048,
     .vocab = 512,
     .context_max = 262144,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 256,
     .intermediate = 2048,
     .tied = true,
     .rope_theta = 1e7,
     .key_heads = 16,
     .value_heads = 16,
     .linear_dim = 128,
     .vision = {.depth = 27, .hidden = 1152, .heads = 16, .intermediate = 4304, .grid = 48}},
    /* The smallest model with a vocabulary of the usual size: what is done per token of it weighs most. */
    {.name = "wide-qwen3",
     .model_type = "qwen3",
     .layers = 4,
     .hidden = 256,
     .vocab = 151936,
     .context_max = 4096,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .intermediate = 512,
     .tied = true,
     .rope_theta = 1e6},
    {.name = "qwen3-0.6b",
     .model_type = "qwen3",
     .layers = 28,
     .hidden = 1024,
     .vocab = 151936,
     .context_max = 40960,
     .heads = 16,
     .kv_heads = 8,
     .head_dim = 128,
     .intermediate = 3072,
     .tied = true,
     .rope_theta = 1e6},
    {.name = "qwen3-8b",
     .model_type = "qwen3",
     .layers = 36,
     .hidden = 4096,
     .vocab = 151936,
     .context_max = 40960,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .intermediate = 12288,
     .rope_theta = 1e6},
    {.name = "qwen3.5-0.8b",
     .model_type = "qwen3_5",
     .layers = 24,
     .hidden = 1024,
     .vocab = 248320,
     .context_max = 262144,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 256,
     .intermediate = 3584,
     .tied = true,
     .rope_theta = 1e7,
     .key_heads = 16,
     .value_heads = 16,
     .linear_dim = 128},
    {.name = "qwen3.5-2b",
     .model_type = "qwen3_5",
     .layers = 24,
     .hidden = 2048,
     .vocab = 248320,
     .context_max = 262144,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 256,
     .intermediate = 6144,
     .tied = true,
     .rope_theta = 1e7,
     .key_heads = 16,
     .value_heads = 16,
     .linear_dim = 128},
    {.name = "qwen3.5-4b",
     .model_type = "qwen3_5",
     .layers = 32,
     .hidden = 2560,
     .vocab = 248320,
     .context_max = 262144,
     .heads = 16,
     .kv_heads = 4,
     .head_dim = 256,
     .intermediate = 9216,
     .tied = true,
     .rope_theta = 1e7,
     .key_heads = 16,
     .value_heads = 32,
     .linear_dim = 128},
    {.name = "qwen3.5-35b-a3b",
     .model_type = "qwen3_5_moe",
     .layers = 40,
     .hidden = 2048,
     .vocab = 248320,
     .context_max = 262144,
     .heads = 16,
     .kv_heads = 2,
     .head_dim = 256,
     .rope_theta = 1e7,
     .key_heads = 16,
     .value_heads = 32,
     .linear_dim = 128,
     .experts = 256,
     .top_k = 8,
     .expert_intermediate = 512,
     .shared_intermediate = 512},
    /* Experts without a shared one, and attention in every layer. */
    {.name = "qwen3-30b-a3b",
     .model_type = "qwen3_moe",
     .layers = 48,
     .hidden = 2048,
     .vocab = 151936,
     .context_max = 40960,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .rope_theta = 1e6,
     .experts = 128,
     .top_k = 8,
     .expert_intermediate = 768},
    {0},
};

const struct mk_form mk_forms[] = {{"bf16", 0}, {"fp8", 0, true}, {"8bit", 8}, {"4bit", 4}, {0}};

const struct mk_shape *mk_shape_find(const char *name)
{
    for (const struct mk_shape *s = mk_shapes; s->name; s++) {
        if (strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

const struct mk_form *mk_form_find(const char *name)
{
    for (const struct mk_form *f = mk_forms; f->name; f++) {
        if (strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

const char *mk_shape_prefix(const struct mk_shape *s, const struct mk_form *f)
{
    if (!mk_shape_is_hybrid(s))
        return "model.";
    return f->bits ? "language_model.model." : "model.language_model.";
}

static void write_quantization(FILE *out, const struct mk_shape *s, const struct mk_form *f, uint32_t layers)
{
    static const char *const gates[] = {"mlp.gate", "mlp.shared_expert_gate"};
    fprintf(out, "  \"quantization\": {\n    \"group_size\": %u, \"bits\": %u, \"mode\": \"affine\"",
            MK_GROUP, f->bits);
    for (uint32_t i = 0; s->experts && i < layers; i++) {
        for (int g = 0; g < (s->shared_intermediate ? 2 : 1); g++)
            fprintf(out, ",\n    \"%slayers.%u.%s\": {\"group_size\": %u, \"bits\": %u}",
                    mk_shape_prefix(s, f), i, gates[g], MK_GROUP, mk_form_gate_bits(f));
    }
    fputs("\n  },\n", out);
}

static void write_hybrid(FILE *out, const struct mk_shape *s, uint32_t layers)
{
    fprintf(
        out,
        "    \"linear_conv_kernel_dim\": %u,\n    \"linear_num_key_heads\": %u,\n"
        "    \"linear_num_value_heads\": %u,\n    \"linear_key_head_dim\": %u,\n"
        "    \"linear_value_head_dim\": %u,\n    \"full_attention_interval\": %u,\n    \"layer_types\": [",
        MK_TAPS, s->key_heads, s->value_heads, s->linear_dim, s->linear_dim, MK_FULL_INTERVAL);
    for (uint32_t i = 0; i < layers; i++)
        fprintf(out, "%s\"%s\"", i ? ", " : "",
                mk_shape_is_full(s, i) ? "full_attention" : "linear_attention");
    fputs("],\n", out);
}

static void write_experts(FILE *out, const struct mk_shape *s)
{
    fprintf(
        out,
        "    \"num_experts\": %u,\n    \"num_experts_per_tok\": %u,\n    \"moe_intermediate_size\": %u,\n",
        s->experts, s->top_k, s->expert_intermediate);
    if (s->shared_intermediate)
        fprintf(out, "    \"shared_expert_intermediate_size\": %u,\n", s->shared_intermediate);
    else
        fputs("    \"norm_topk_prob\": true,\n", out);
}

static void write_vision(FILE *out, const struct mk_shape *s)
{
    const struct mk_vision *t = &s->vision;
    fprintf(out,
            "  \"image_token_id\": %u,\n  \"video_token_id\": %u,\n  \"vision_start_token_id\": %u,\n"
            "  \"vision_end_token_id\": %u,\n",
            s->vocab - 4, s->vocab - 3, s->vocab - 2, s->vocab - 1);
    fprintf(out,
            "  \"vision_config\": {\n    \"depth\": %u,\n    \"hidden_size\": %u,\n    \"num_heads\": %u,\n"
            "    \"intermediate_size\": %u,\n    \"num_position_embeddings\": %u,\n"
            "    \"out_hidden_size\": %u,\n    \"patch_size\": %u,\n    \"spatial_merge_size\": %u,\n"
            "    \"temporal_patch_size\": 2,\n    \"in_channels\": 3,\n"
            "    \"hidden_act\": \"gelu_pytorch_tanh\"\n  },\n",
            t->depth, t->hidden, t->heads, t->intermediate, t->grid * t->grid, s->hidden, MK_PATCH, MK_MERGE);
}

/* Frequencies of time, rows and columns. */
static void write_sections(FILE *out, const struct mk_shape *s)
{
    uint32_t half = s->head_dim / 8; /* a quarter of the head rotates */
    fprintf(out, ", \"mrope_interleaved\": true, \"mrope_section\": [%u, %u, %u]", (half + 2) / 3,
            (half + 1) / 3, half / 3);
}

/* Writes the text model; the last of its members ends without a comma. */
static void write_text(FILE *out, const struct mk_shape *s, uint32_t layers)
{
    fprintf(out,
            "    \"num_hidden_layers\": %u,\n    \"hidden_size\": %u,\n    \"vocab_size\": %u,\n"
            "    \"max_position_embeddings\": %u,\n    \"num_attention_heads\": %u,\n"
            "    \"num_key_value_heads\": %u,\n    \"head_dim\": %u,\n",
            layers, s->hidden, s->vocab, s->context_max, s->heads, s->kv_heads, s->head_dim);
    if (s->intermediate)
        fprintf(out, "    \"intermediate_size\": %u,\n", s->intermediate);
    if (mk_shape_is_hybrid(s))
        write_hybrid(out, s, layers);
    if (s->experts)
        write_experts(out, s);
    fprintf(out,
            "    \"hidden_act\": \"silu\",\n    \"rms_norm_eps\": 1e-06,\n    \"attention_bias\": false,\n"
            "    \"tie_word_embeddings\": %s,\n"
            "    \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.0f, "
            "\"partial_rotary_factor\": %s",
            s->tied ? "true" : "false", s->rope_theta, mk_shape_is_hybrid(s) ? "0.25" : "1.0");
    if (s->vision.depth)
        write_sections(out, s);
    fputs("}\n", out);
}

void mk_shape_config(FILE *out, const struct mk_shape *s, const struct mk_form *f, uint32_t layers)
{
    fprintf(out, "{\n  \"model_type\": \"%s\",\n  \"dtype\": \"bfloat16\",\n", s->model_type);
    if (f->bits)
        write_quantization(out, s, f, layers);
    if (f->floats)
        fprintf(out,
                "  \"quantization_config\": {\n    \"quant_method\": \"fp8\", \"fmt\": \"e4m3\",\n"
                "    \"activation_scheme\": \"dynamic\", \"weight_block_size\": [%u, %u]\n  },\n",
                MK_BLOCK, MK_BLOCK);
    if (s->vision.depth)
        write_vision(out, s);
    if (mk_shape_is_hybrid(s)) {
        fprintf(out, "  \"text_config\": {\n    \"model_type\": \"%s_text\",\n", s->model_type);
        write_text(out, s, layers);
        fputs("  }\n}\n", out);
    } else {
        write_text(out, s, layers);
        fputs("}\n", out);
    }
}
