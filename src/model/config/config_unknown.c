/* config_unknown.c - the table of keys that are ignored on purpose, in groups of one reason each.
 *
 * A key that only one family ignores stands with the family (CONFIG_IGNORED in config_key.h). A star
 * in a name is for any letters. */
#include "model/config/config_unknown.h"

#include "base/check.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define KEYS_MAX 40

static const struct ignored {
    enum config_object object;
    const char *why;
    const char *keys[KEYS_MAX];
} ignored[] = {
    {CONFIG_OF_MODEL,
     "read by other parts of the program",
     {"model_type", "architectures", "text_config", "llm_config", "vision_config", "audio_config",
      "sound_config", "*_token_id", "*_token_ids", "*_token_index", "quantization", "quantization_config",
      "id2label", "label2id", "num_labels", "problem_type"}},
    {CONFIG_OF_MODEL, "shown by the tensors", {"num_nextn_predict_layers", "num_mtp_*", "mtp_*", "use_mtp"}},
    {CONFIG_OF_MODEL,
     "how the file was written",
     {"transformers_version", "torch_dtype", "dtype", "auto_map", "_name_or_path", "name_or_path",
      "_commit_hash", "tokenizer_class", "processor_class", "model_name", "unsloth_*"}},
    {CONFIG_OF_MODEL,
     "how the model was trained",
     {"*initializer_range", "initializer_factor", "init_*", "*_dropout", "*_dropout_prob", "dropout",
      "*_pdrop", "*_loss_coef", "aux_loss_alpha", "seq_aux", "output_router_logits", "*_jitter_noise",
      "gradient_checkpointing", "pretraining_tp", "rescale_prenorm_residual"}},
    {CONFIG_OF_MODEL,
     "what transformers returns and keeps",
     {"use_cache", "output_attentions", "output_hidden_states", "return_dict", "torchscript", "use_bfloat16",
      "tf_legacy_loss", "chunk_size_feed_forward", "pruned_heads", "finetuning_task", "task_specific_params",
      "tie_encoder_decoder", "cross_attention_hidden_size", "is_decoder", "cache_implementation",
      "num_logits_to_keep", "residual_in_fp32"}},
    {CONFIG_OF_MODEL,
     "how another program computes the same",
     {"*attn_implementation*", "_experts_implementation*", "use_flash_attn*", "use_mamba_kernels",
      "mamba_chunk_size", "chunk_size", "ep_size", "mamba_ssm_*dtype", "max_model_len"}},
    {CONFIG_OF_MODEL,
     "defaults of sampling, which generation_config.json has",
     {"do_sample",
      "temperature",
      "top_k",
      "top_p",
      "typical_p",
      "min_length",
      "max_length",
      "max_new_tokens",
      "*_penalty",
      "*no_repeat_ngram_size",
      "num_beams",
      "num_beam_groups",
      "num_return_sequences",
      "early_stopping",
      "bad_words_ids",
      "prefix",
      "suppress_tokens",
      "begin_suppress_tokens",
      "remove_invalid_values",
      "return_dict_in_generate",
      "output_scores"}},
    {CONFIG_OF_MODEL,
     "encoders of images and sound beside the text",
     {"vision_*",
      "image_*",
      "video_*",
      "audio_*",
      "sound_*",
      "mm_*",
      "projector_*",
      "projection_*",
      "adapter_*",
      "alignment_*",
      "multimodal_projector_*",
      "spatial_merge_size",
      "scale_factor",
      "downsample_*",
      "*_dynamic_patch",
      "dynamic_image_size",
      "force_image_size",
      "pad2square",
      "ps_version",
      "select_layer",
      "use_thumbnail",
      "use_*_lora",
      "template"}},
    {CONFIG_OF_ROPE,
     "known, and not of the rotation's type",
     {"type", "rope_type", "rope_theta", "partial_rotary_factor", "factor", "attention_factor", "beta_fast",
      "beta_slow", "mscale", "mscale_all_dim", "low_freq_factor", "high_freq_factor", "alpha",
      "original_max_position_embeddings", "mrope_section", "mrope_interleaved"}},
    {CONFIG_OF_ROPE, "repeated from elsewhere", {"max_position_embeddings", "finetuned"}},
    {CONFIG_OF_QUANTIZATION,
     "shown by the tensors",
     {"quant_method",
      "bits",
      "group_size",
      "mode",
      "modules_to_not_convert",
      "ignored_layers",
      "ignore",
      "exclude_modules",
      "lm_head",
      "version",
      "quantization_status",
      "zero_point",
      "modules_to_fuse",
      "sym",
      "producer",
      "quant_algo",
      "pack_dtype",
      "quantization",
      "scale_fmt",
      "modules_in_block_to_quantize",
      "block_name_to_quantize",
      "module_name_preceding_first_block"}},
    {CONFIG_OF_QUANTIZATION,
     "of inputs and caches, which are not quantised here",
     {"kv_cache_scheme", "kv_cache_quant_algo", "activation_scheme", "activation_scale_ub"}},
    {CONFIG_OF_QUANTIZATION,
     "how the writer worked, or another program reads",
     {"global_compression_ratio",
      "backend",
      "do_fuse",
      "fuse_max_seq_len",
      "exllama_config",
      "damp_percent",
      "damp_auto_increment",
      "static_groups",
      "true_sequential",
      "model_name_or_path",
      "model_file_base_name",
      "meta",
      "dataset",
      "tokenizer",
      "*checkpoint_format",
      "use_cuda_fp16",
      "model_seqlen",
      "batch_size",
      "pad_token_id",
      "use_exllama",
      "max_input_length",
      "cache_block_outputs",
      "dequantize",
      "mse"}},
    {CONFIG_OF_VISION,
     "as in config.json",
     {"model_type", "initializer_range", "dtype", "torch_dtype", "transformers_version", "architectures",
      "*attn_implementation*", "attention_dropout", "use_cache"}},
    {CONFIG_OF_VISION,
     "follow from other keys or the preprocessor",
     {"head_dim", "image_size", "spatial_patch_size"}},
    {CONFIG_OF_VISION,
     "of videos, which such a model does not read here",
     {"tokens_per_second", "pos_emb_time", "init_pos_emb_time", "pos_emb_type", "merge_type",
      "video_attn_type"}},
    {CONFIG_OF_VISION,
     "repeated from elsewhere",
     {"mm_*", "projector_*", "text_hidden_size", "max_position_embeddings", "attention_bias"}},
};

static bool is_ignored(enum config_object object, const char *key)
{
    for (size_t i = 0; i < COUNT_OF(ignored); i++) {
        for (size_t n = 0; ignored[i].object == object && n < KEYS_MAX && ignored[i].keys[n]; n++) {
            if (fnmatch(ignored[i].keys[n], key, 0) == 0)
                return true;
        }
    }
    return false;
}

/* A kind of layer has an object of its own with parameters of rotation, a module an object or a flag. */
static bool is_nested(enum config_object object, const json_t *value)
{
    return (object == CONFIG_OF_ROPE && json_is_object(value)) ||
           (object == CONFIG_OF_QUANTIZATION && (json_is_object(value) || json_is_boolean(value)));
}

static void append(const char *prefix, const char *key, char *ret, size_t bytes_max)
{
    static const char more[] = ", ...";
    size_t at = strlen(ret);
    int n = snprintf(ret + at, bytes_max - at, "%s'%s%.60s'", at ? ", " : "", prefix, key);
    if ((size_t)n + sizeof(more) <= bytes_max - at)
        return;
    ret[at] = 0;
    if (at >= sizeof(more) && strcmp(ret + at - strlen(more), more) != 0)
        snprintf(ret + at, bytes_max - at, "%s", more);
}

/* Whether a member of object `name` was looked up, by "name.member". */
static bool asks_members(const json_t *asked, const char *name)
{
    const char *key;
    json_t *value;
    const size_t n = strlen(name);
    json_object_foreach((json_t *)asked, key, value) {
        if (strncmp(key, name, n) == 0 && key[n] == '.')
            return true;
    }
    return false;
}

static void add_members(const char *name, const json_t *object, const json_t *asked, const char *prefix,
                        char *ret, size_t bytes_max)
{
    char path[128];
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        snprintf(path, sizeof(path), "%.60s.%.60s", name, key);
        if (!json_is_null(value) && !json_object_get(asked, path))
            append(prefix, path, ret, bytes_max);
    }
}

void config_unknown_add(const json_t *object, const json_t *asked, enum config_object kind,
                        const char *prefix, char *ret, size_t bytes_max)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        bool known = json_is_null(value) || is_nested(kind, value) || json_object_get(asked, key);
        if (!known && json_is_object(value) && asks_members(asked, key))
            add_members(key, value, asked, prefix, ret, bytes_max);
        else if (!known && !is_ignored(kind, key))
            append(prefix, key, ret, bytes_max);
    }
}
