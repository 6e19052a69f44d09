"""golden_entries.py - the goldens that make_golden.py can make: configuration, seed and changes of each."""
import vision_inputs

# Shape of most entries: small, with heads of an odd size, more query than KV heads, no special tokens.
BASE = dict(vocab_size=80, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)


ENCODERS = ("bert", "xlm-roberta")
# Models that tests of engines ask with long prompts.
LONG = dict(max_position_embeddings=4096)
# Sizes of models that make vectors or scores.
TINY = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=40)


# Sizes of models with few differences from others. 16 columns are fewer than a group of --quant has.
NARROW = dict(hidden_size=16, intermediate_size=24)
SMALL = dict(NARROW, num_hidden_layers=2)
# Sizes of linear attention beside latent attention.
SMALL_LATENT = dict(NARROW, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2)


# Bounds that keep the size of the images.
SMALL_IMAGES = {"size": {"shortest_edge": 4096, "longest_edge": 1048576}}


class Entry:
    """One golden. `config`: the fields of the model_type's configuration class. `dtype`: how weights are
    saved, "bfloat16" or "float32". `gain`: of random matrices, 1 keeps the size of what they multiply.
    `prompt`: its tokens. `rewrite`: a function that changes the saved config.json, to spell it otherwise.
    `change`: one that changes the saved tensors by name. `vision`: the fields of a vision encoder.
    `text`: the text's model_type. `images`: what the model takes for an image (vision_inputs.py). `sees`: the
    golden has an image. `served`: tests of servers use it, with a generation_config.json.
    `pooling`: it makes vectors, "cls", "mean" or "last", of these `lengths` of texts. `dense`: with the
    widths of Dense modules behind it. `scores`: it makes scores by a classifier with one label. `weights`: a
    function that changes the random weights by name, before anything is computed from them.
    `made_by`: a class of transformers that its list of model types does not name. `mtp`: its last layer is an
    MTP head (mtp_head.py); "eagle": an EAGLE-3 head lies beside it (eagle_head.py). `preprocessor`: its
    preprocessor_config.json."""

    def __init__(self, model_type, seed=1, dtype="bfloat16", gain=1.6, prompt=70, rewrite=None, change=None,
                 vision=None, text=None, images=vision_inputs.Qwen(), sees=False, served=False, pooling=None,
                 lengths=(1, 2, 9, 33), dense=(), scores=False, weights=None, made_by=None,
                 mtp=False, preprocessor=None, **config):
        self.model_type, self.seed, self.dtype, self.gain = model_type, seed, dtype, gain
        self.prompt, self.rewrite, self.change, self.vision = prompt, rewrite, change, vision
        self.images, self.sees, self.served = images, sees, served
        self.pooling, self.lengths, self.dense, self.scores = pooling, lengths, dense, scores
        self.weights, self.made_by, self.mtp, self.preprocessor = weights, made_by, mtp, preprocessor
        self.config = {**BASE, **config}
        if scores:
            self.config["num_labels"] = 1
        if model_type in ENCODERS:
            self.config.pop("num_key_value_heads")
        if text:
            self.config["model_type"] = text
        if vision:
            self.first = self.config["vocab_size"] - 12 if sees else 4
            tied = config.get("tie_word_embeddings", not sees)
            self.config = {"text_config": self.config, "vision_config": vision, "tie_word_embeddings": tied,
                           **images.config(self.first)}


def calm(tensors):
    """Weights of delta nets with experts, in which rounding turns nothing. Each token asks for two experts,
    by large values in the dimensions of their numbers, where no block adds anything; the other dimensions
    choose their weights. Queries of delta nets are near their keys: a head that has forgotten gives q k v,
    and its norm would turn a small product's error into a sign."""
    import torch
    embedding = next(t for n, t in tensors.items() if n.endswith("embed_tokens.weight"))
    experts = next(t.shape[0] for n, t in tensors.items() if n.endswith("mlp.gate.weight"))
    keys = HYBRID["linear_num_key_heads"] * HYBRID["linear_key_head_dim"]
    ids = torch.arange(embedding.shape[0])
    first, step = ids % experts, 1 + ids // experts % (experts - 1)
    embedding[ids, first] += 8
    embedding[ids, (first + step) % experts] += 8
    for name, tensor in tensors.items():
        if name.endswith("mlp.gate.weight"):
            tensor *= 0.25
            tensor[:, :experts] += 2 * torch.eye(experts)
        elif name.endswith(("o_proj.weight", "out_proj.weight", "down_proj", "down_proj.weight")):
            tensor[..., :experts, :] = 0
        elif name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            tensor[:keys] = 0.5 * tensor[:keys] + 0.9 * tensor[keys:2 * keys]


def rotary_dim(config):
    """How many dimensions rotate, as published configurations of minimax_m2 say it."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope["rope_theta"]
    config["rotary_dim"] = round(config["head_dim"] * rope["partial_rotary_factor"])


def small_eps(tensors):
    """The constant of xIELU that is not trained."""
    for name, tensor in tensors.items():
        if name.endswith("act_fn.eps"):
            tensor.fill_(-1e-6)


def published_kimi(config):
    """The numbers of linear attention in an object, layers by number from 1."""
    kinds = config.pop("layer_types")
    config.pop("mlp_layer_types", None)
    config["first_k_dense_replace"] = 1
    config["linear_attn_config"] = {
        "full_attn_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "full_attention"],
        "kda_layers": [i + 1 for i, kind in enumerate(kinds) if kind != "full_attention"],
        "head_dim": config.pop("linear_head_dim"), "num_heads": config.pop("linear_num_heads"),
        "short_conv_kernel_size": config.pop("linear_conv_kernel_dim")}


def without_vision(tensors):
    """Leaves the tensors of the text model."""
    for name in list(tensors):
        if "vision" in name or "vit" in name or "projector" in name:
            del tensors[name]


def published_step(config):
    """The text's own file, as published: lists with the MTP layers, heads of windows in an object."""
    text = config["text_config"]
    for key in ("per_layer_config", "rope_parameters", "mtp_layer_types", "mtp_mlp_layer_types"):
        text.pop(key, None)
    text |= {"rope_theta": [5000.0, 100.0, 100.0, 100.0], "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0],
             "layer_types": text["layer_types"] + ["sliding_attention"], "moe_layers_enum": "1,2",
             "swiglu_limits": text["swiglu_limits"] + [0.0], "num_nextn_predict_layers": 1,
             "swiglu_limits_shared": text["swiglu_limits_shared"] + [0.0], "model_type": "step3p5",
             "attention_other_setting": {"attention_type": "sliding_attention", "head_dim": 8,
                                         "num_attention_heads": text.pop("num_sliding_attention_heads"),
                                         "num_attention_groups": text["num_key_value_heads"]},
             "num_attention_groups": text.pop("num_key_value_heads"), "moe_top_k": text.pop("num_experts_per_tok"),
             "moe_num_experts": text.pop("n_routed_experts")}
    del text["mlp_layer_types"]
    return text


def transposed_stacks(tensors):
    """Stacks of experts as [experts, in, out]."""
    for name in [n for n in tensors if ".mlp.experts." in n]:
        tensors[name] = tensors[name].transpose(1, 2).contiguous()


def lettered(config):
    """Spells the layers of nemotron_h as published checkpoints do."""
    letters = {"linear_attention": "M", "mlp": "-", "full_attention": "*", "moe": "E"}
    names = config.pop("layers_block_type", None) or config.pop("layer_types")
    config.pop("layer_types", None)
    config["num_hidden_layers"] = len(names)
    config["hybrid_override_pattern"] = "".join(letters[name] for name in names)
def older_rope(config):
    """rope_theta and rope_scaling, as transformers 4 wrote them."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = None if rope["type"] == "default" else rope


def older_pattern(config):
    """sliding_window_pattern instead of the list of layers; rope_theta."""
    config["sliding_window_pattern"] = config.pop("layer_types").index("full_attention") + 1
    older_rope(config)


def published_gemma4(config):
    """The sizes of global layers as the published files spell them."""
    single = config.pop("per_layer_config")
    config["global_head_dim"] = single["1"]["head_dim"]
    config["num_global_key_value_heads"] = single["1"]["num_key_value_heads"]



def published_moon(tensors):
    """Names of published files, some of which transformers does not restore when it saves."""
    for name in list(tensors):
        new = name.replace("vision_tower.encoder.patch_embed", "vision_tower.patch_embed")
        new = new.replace("model.mm_projector", "mm_projector")
        new = new.replace("language_model.model.blocks", "language_model.model.layers")
        tensors[new] = tensors.pop(name)


def quiet(tensors):
    """Tokens of images are never the likeliest."""
    tensors["lm_head.weight"][BASE["vocab_size"] - 12:] = 0


def bounds(tensors):
    """Bounds of products that cut some values off."""
    quiet(tensors)
    for name, tensor in tensors.items():
        if name.endswith(("put_min", "put_max")):
            tensor.fill_((-1 if name.endswith("min") else 1) * (1.5 if "input" in name else 2))


def mtp_layer(tensors):
    """Tensors of an MTP layer, which is not read."""
    import torch
    tensors["model.layers.3.eh_proj.weight"] = torch.ones(24, 48, dtype=torch.bfloat16)
    tensors["model.layers.3.self_attn.q_a_proj.weight"] = torch.ones(10, 24, dtype=torch.bfloat16)


def older_bert(tensors):
    """The names of norms in files of the first converters, and a prefix."""
    for name in list(tensors):
        new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors["bert." + new] = tensors.pop(name)


def small_corrections(tensors):
    """Corrections of one row, about as large as the differences of scores."""
    for name, tensor in tensors.items():
        if name.endswith("e_score_correction_bias"):
            tensor *= 0.1


def listed_experts(config):
    """A number for each layer, as published files of hunyuan have it."""
    layers = config["num_hidden_layers"]
    config |= {key: [config[key]] * layers for key in ("num_experts", "moe_topk")}
    config |= {"num_shared_expert": [1] * layers, "moe_intermediate_size": [config["intermediate_size"]] * layers}


# Models of the tests of engines, registries and servers: any of 500 ids, long prompts, two query heads per KV
# head, and pages and states that are multiples of 64 bytes.
SERVED = dict(vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=4, head_dim=16,
              pad_token_id=None, served=True, **LONG)
HYBRID = dict(layer_types=["linear_attention"] * 3 + ["full_attention"], linear_conv_kernel_dim=4,
              linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
              bos_token_id=None, eos_token_id=None,
              rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                               "mrope_interleaved": True, "mrope_section": [2, 1, 1]})
VISION = dict(depth=3, hidden_size=16, num_heads=2, intermediate_size=32, out_hidden_size=32, patch_size=16,
              spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=64, in_channels=3)

ENTRIES = {
    # An own matrix for the logits; llama3's rotation.
    "llama": Entry("llama", tie_word_embeddings=False,
                   rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                    "original_max_position_embeddings": 64}, **SERVED),
    # Norms of queries and keys; logits by the embedding's matrix.
    "qwen3": Entry("qwen3", tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
                   rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **SERVED),
    # Three delta nets, two value heads per key head; gated attention of which half a head rotates.
    "qwen3_5": Entry("qwen3_5_text", seed=8, tie_word_embeddings=False, **HYBRID, **SERVED),
    # Delta nets with experts and a gated shared one; no choice or norm near a tie.
    "qwen3_5_moe": Entry("qwen3_5_moe_text", seed=3, weights=calm, tie_word_embeddings=False,
                         num_experts=8, num_experts_per_tok=2, moe_intermediate_size=12,
                         shared_expert_intermediate_size=20,
                         **HYBRID, **SERVED),
    # An MLP of relu squared, without a gate; yarn.
    "arcee": Entry("arcee", **NARROW, head_dim=10,
                   rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                    "original_max_position_embeddings": 32}),
    # Mixer and MLP side by side, a LayerNorm, adjacent pairs rotate in every layer.
    "cohere": Entry("cohere", **NARROW, logit_scale=0.4, tie_word_embeddings=False,
                    rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Norms that hold w - 1, an embedding times sqrt(hidden); "gelu" means the approximation.
    "gemma": Entry("gemma", **NARROW, head_dim=10, seed=2, tie_word_embeddings=False,
                   rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
                   rewrite=lambda c: c | {"hidden_act": "gelu"}),
    # Norms over whole rows of queries and keys; experts whose weights are not normalised.
    "olmoe": Entry("olmoe", hidden_size=16, intermediate_size=12, num_experts=5, num_experts_per_tok=3,
                   rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # A sigmoid and a correction choose experts in every layer.
    "solar_open": Entry("solar_open", **SMALL, head_dim=10, n_routed_experts=6,
                        num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=12, n_group=2, topk_group=1,
                        routed_scaling_factor=1.5,
                        rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Norms of queries and keys, a dense layer, windows in the last layers, experts that are not normalised.
    "dots1": Entry("dots1", **NARROW, head_dim=10, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=2,
                   moe_intermediate_size=8, first_k_dense_replace=1, routed_scaling_factor=1.5, sliding_window=16,
                   max_window_layers=2, layer_types=["full_attention"] * 2 + ["sliding_attention"],
                   rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Latent attention whose queries grow, a softmax router with groups by their two best.
    "mistral4": Entry("mistral4", made_by="Mistral4ForCausalLM", **{**SMALL, "num_key_value_heads": 4}, q_lora_rank=10, kv_lora_rank=12,
                      qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, n_routed_experts=6,
                      num_experts_per_tok=2, n_group=3, topk_group=2, routed_scaling_factor=1.5,
                      moe_intermediate_size=8, first_k_dense_replace=1,
                      rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 0.7,
                                       "mscale_all_dim": 1.2, "beta_fast": 32, "beta_slow": 1,
                                       "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.3}),
    # Experts in the middle layers, a correction of one row, biases.
    "ernie4_5_moe": Entry("ernie4_5_moe", **{**SMALL, "num_hidden_layers": 4}, weights=small_corrections,
                          moe_num_experts=5, moe_k=2, moe_intermediate_size=8, moe_num_shared_experts=2,
                          moe_layer_start_index=1, moe_layer_end_index=2, use_bias=True, head_dim=6,
                          tie_word_embeddings=True,
                          rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # A shared MLP beside the experts, norms after the rotation; numbers as lists.
    "hunyuan_v1_moe": Entry("hunyuan_v1_moe", **SMALL, num_experts=4, moe_topk=2, head_dim=6,
                            rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "alpha": 50.0, "factor": 1.0},
                            rewrite=listed_experts),
    # A sigmoid and a correction by names of its own, a dense layer, a shared expert.
    "hy_v3": Entry("hy_v3", **SMALL, head_dim=6, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=8,
                   router_scaling_factor=1.7, mlp_layer_types=["dense", "sparse"],
                   rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Norms in front of the blocks, experts in groups, full layers without rotation.
    "exaone_moe": Entry("exaone_moe", **{**SMALL, "num_hidden_layers": 3}, head_dim=6, sliding_window=12,
                        sliding_window_pattern="LG", num_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
                        moe_intermediate_size=8, num_shared_experts=2, first_k_dense_replace=1,
                        routed_scaling_factor=1.5,
                        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                        rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # A gate for each value by a sigmoid, sandwich norms around experts, full layers without rotation.
    "afmoe": Entry("afmoe", **{**SMALL, "num_hidden_layers": 4}, head_dim=6, sliding_window=12, num_experts=4,
                   num_experts_per_tok=2, moe_intermediate_size=8, num_shared_experts=1, num_dense_layers=1,
                   route_scale=1.5, mup_enabled=True, global_attn_every_n_layers=2,
                   rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # A gate for each head by softplus, heads by layer, two rotations of which one is of half a head.
    "laguna": Entry("laguna", **{**SMALL, "num_hidden_layers": 3}, head_dim=8, sliding_window=12, num_experts=4,
                    num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=10,
                    num_attention_heads_per_layer=[4, 6, 2], moe_routed_scaling_factor=1.5,
                    layer_types=["full_attention", "sliding_attention", "full_attention"],
                    rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0,
                                                        "original_max_position_embeddings": 16,
                                                        "partial_rotary_factor": 0.5},
                                     "sliding_attention": {"rope_type": "default", "rope_theta": 100.0,
                                                           "partial_rotary_factor": 1.0}}),
    # A gate for each value by softplus.
    "laguna_values": Entry("laguna", **TINY, gating="per-element", num_experts=3, num_experts_per_tok=2,
                           moe_intermediate_size=8, shared_expert_intermediate_size=6, prompt=33, head_dim=6,
                           sliding_window=12,
                           rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 5000.0}}),
    # Keys wider than values, sinks and twice as many KV heads in layers with a window, a factor of values.
    "mimo_v2_flash": Entry("mimo_v2_flash", **{**SMALL, "num_hidden_layers": 3}, head_dim=12, v_head_dim=6,
                           sliding_window=12, n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
                           moe_intermediate_size=8, attention_value_scale=0.6,
                           layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                           rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 5000.0,
                                                               "partial_rotary_factor": 0.334},
                                            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0,
                                                                  "partial_rotary_factor": 0.334}}),
    # Sinks, windows, and a theta of each layer, of which one is none.
    "granite_swa": Entry("granite_swa", tie_word_embeddings=False, **{**SMALL, "num_hidden_layers": 4}, sliding_window=12, embedding_multiplier=6.0,
                         residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=0.5,
                         layer_rope_theta=[0, 5000.0, 100.0, 5000.0],
                         rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "granitemoe_swa": Entry("granitemoe_swa", tie_word_embeddings=False, **{**SMALL, "intermediate_size": 8}, sliding_window=12,
                            num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=10,
                            residual_multiplier=0.6, attention_multiplier=0.2,
                            rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Experts between two projections of a narrower space.
    "nemotron_h_latent": Entry("nemotron_h", vocab_size=64, hidden_size=24, layers_block_type=["linear_attention",
                               "moe", "full_attention", "moe"], head_dim=10, mamba_num_heads=4, mamba_head_dim=6,
                               n_groups=2, ssm_state_size=8, conv_kernel=4, time_step_min=1e-12, intermediate_size=24,
                               n_routed_experts=4, num_experts_per_tok=2, moe_latent_size=12,
                               moe_intermediate_size=8, moe_shared_expert_intermediate_size=12, n_shared_experts=1,
                               routed_scaling_factor=1.7, rewrite=lettered),
    # Delta rules with a decay per channel, convolutions of queries, keys and values apart, latent attention
    # without rotation, a dense layer.
    "kimi_linear": Entry("kimi_linear", vocab_size=64, **SMALL_LATENT, linear_head_dim=16, linear_num_heads=2,
                         prompt=50, layer_types=["linear_attention", "full_attention", "linear_attention"],
                         num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, kv_lora_rank=12,
                         qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=8, n_group=2, topk_group=1,
                         mlp_layer_types=["dense", "sparse", "sparse"], rewrite=published_kimi),
    # Decays between two bounds, a gate of each head of latent attention.
    "bailing_hybrid": Entry("bailing_hybrid", vocab_size=64, **SMALL_LATENT, head_dim=16, layer_group_size=3,
                            prompt=50, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                            kv_lora_rank=12, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=8, n_group=2,
                            topk_group=1, first_k_dense_replace=1),
    # xIELU, norms of query and key heads.
    "apertus": Entry("apertus", **SMALL, num_attention_heads=4, weights=small_eps, rope_parameters={
                     "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
    # LayerNorm in front of mixer and experts side by side, the mean of shared and chosen experts, a dense
    # layer that rotates.
    "cohere2_moe": Entry("cohere2_moe", **{**SMALL, "num_hidden_layers": 3, "intermediate_size": 8}, head_dim=6,
                         num_experts=5, num_experts_per_tok=2, num_shared_experts=2, sliding_window=12, prompt=40,
                         prefix_dense_intermediate_size=20, logit_scale=0.9, tie_word_embeddings=False,
                         layer_types=["full_attention", "sliding_attention", "full_attention"],
                         mlp_layer_types=["dense", "sparse", "sparse"]),
    # RMSNorms, a sigmoid router, the sum of shared and chosen experts.
    "cohere2_moe_sum": Entry("cohere2_moe", **{**TINY, "intermediate_size": 8}, head_dim=6, num_experts=4,
                             num_experts_per_tok=2, num_shared_experts=1, sliding_window=12, prompt=33,
                             rms_norm_eps=1e-5, expert_selection_fn="sigmoid", logit_scale=0.9,
                             shared_expert_combination_strategy="sum", tie_word_embeddings=False,
                             layer_types=["sliding_attention", "full_attention"]),
    # Activations between bounds of each layer, more heads of queries and another rotation in layers with a
    # window, gates of heads. The text of step3p7 is step3p5.
    "step3p5": Entry("step3p7", prompt=50, text="step3p5", change=without_vision, rewrite=published_step,
                     vision=dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=28,
                                 max_position_embeddings=4),
                     **{**SMALL, "num_hidden_layers": 3}, head_dim=8, num_sliding_attention_heads=6,
                     sliding_window=12, n_routed_experts=5, moe_intermediate_size=8, num_experts_per_tok=2,
                     share_expert_dim=10, moe_router_scaling_factor=1.5, swiglu_limits=[0.0, 0.5, 0.0],
                     swiglu_limits_shared=[0.4, 0.6, 0.0],
                     layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                     mlp_layer_types=["dense", "sparse", "sparse"], rope_theta=[5000.0, 100.0, 100.0],
                     partial_rotary_factors=[0.5, 1.0, 1.0]),
    # Norms without weights of the embedding, queries and keys; gates of values; a layer without rotation.
    # The seed draws no token of images.
    "muse_glimmer": Entry("muse_glimmer", seed=9, prompt=50, text="muse_glimmer_text", change=without_vision,
                          vision=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                      num_attention_heads=1),
                          **{**SMALL, "num_hidden_layers": 3}, num_attention_heads=4, num_key_value_heads=2,
                          head_dim=6, sliding_window=12, post_norm_eps=0.05, output_multiplier=0.9,
                          final_logit_softcapping=5.0,
                          layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                          rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # LayerNorms with biases, experts by a softmax with a threshold, a bias of the logits, longrope's factors.
    "phimoe": Entry("phimoe", **SMALL, num_local_experts=5, num_experts_per_tok=2, router_jitter_noise=0.4,
                    attention_bias=True, lm_head_bias=True, sliding_window=24,
                    rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "factor": 1.0,
                                     "original_max_position_embeddings": 256, "short_mscale": 1.3, "long_mscale": 1.5,
                                     "short_factor": [1.0, 1.3], "long_factor": [1.0, 2.5]}),
    # Images: features of two deepstack layers, an interpolated table of positions.
    "qwen3_vl": Entry("qwen3_vl", seed=3, sees=True, bos_token_id=None, eos_token_id=None,
                      tie_word_embeddings=True,
                      vision=dict(VISION, hidden_size=8, intermediate_size=24, patch_size=8,
                                  deepstack_visual_indexes=[0, 1]),
                      rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_interleaved": True,
                                       "mrope_section": [4, 2, 2]}, **SERVED),
    # Images in front of delta nets.
    "qwen3_5_vl": Entry("qwen3_5", seed=5, sees=True, vision=VISION, **HYBRID, **SERVED),
    # SigLIP: squares, means of patches; an image's tokens see each other, in windows too.
    "gemma3_vl": Entry("gemma3", sees=True, images=vision_inputs.Gemma3(), text="gemma3_text", hidden_size=16,
                       intermediate_size=24, head_dim=10, sliding_window=24, query_pre_attn_scalar=7,
                       layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                       vision=dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=24,
                                   num_hidden_layers=2, num_attention_heads=2, patch_size=4, image_size=64,
                                   vision_use_head=False)),
    # Windows of nine tokens and smaller ones, RMSNorms, gates; sections of the rotation one after the other.
    "qwen2_5_vl": Entry("qwen2_5_vl", sees=True, images=vision_inputs.Qwen25(), text="qwen2_5_vl_text",
                        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
                        vision=dict(depth=2, hidden_size=16, num_heads=2, intermediate_size=20, out_hidden_size=16,
                                    patch_size=8, spatial_merge_size=2, temporal_patch_size=2, in_channels=3,
                                    window_size=48, fullatt_block_indexes=[1], hidden_act="silu")),
    # Pixtral: whole images, gates, no biases, tokens that end rows.
    "mistral3": Entry("mistral3", sees=True, images=vision_inputs.Pixtral(), text="mistral",
                      hidden_size=16, intermediate_size=24, head_dim=8, sliding_window=None, num_hidden_layers=1,
                      vision=dict(model_type="pixtral", hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                                  num_attention_heads=2, patch_size=16, image_size=128, hidden_act="silu")),
    # A bicubic table of positions, a convolution as the merger's first product, then a gated MLP.
    "glm4v_vl": Entry("glm4v", sees=True, images=vision_inputs.Glm(), preprocessor=SMALL_IMAGES,
                      text="glm4v_text", hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=1,
                      rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0,
                                       "mrope_section": [1, 2, 1]},
                      vision=dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=20, out_hidden_size=16,
                                  patch_size=8, spatial_merge_size=2, temporal_patch_size=2, in_channels=3,
                                  image_size=48, hidden_act="silu")),
    # MoonViT: a bicubic table, pairs that columns and rows turn in turn, two norms before the merger.
    "kimi_k25_vl": Entry("kimi_k25", sees=True, images=vision_inputs.Kimi(), text="deepseek_v3", hidden_size=16,
                         weights=quiet, change=published_moon, num_attention_heads=2, num_key_value_heads=2,
                         num_hidden_layers=1, q_lora_rank=8, kv_lora_rank=12, qk_nope_head_dim=6,
                         qk_rope_head_dim=4, v_head_dim=6, intermediate_size=24, n_routed_experts=4, num_experts_per_tok=2, n_group=1,
                         topk_group=1, moe_intermediate_size=8, first_k_dense_replace=1,
                         vision=dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, patch_size=8,
                                     intermediate_size=20, pos_emb_height=6, pos_emb_width=6, pos_emb_time=1,
                                     merge_kernel_size=[2, 2])),
    # Norms of heads and biases instead of positions.
    "glm_ocr_vl": Entry("glm_ocr", sees=True, images=vision_inputs.Glm(), preprocessor=SMALL_IMAGES,
                        text="glm_ocr_text", hidden_size=16, intermediate_size=24, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=1,
                        rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                         "partial_rotary_factor": 1.0, "mrope_section": [1, 2, 1]},
                        vision=dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=20, out_hidden_size=16,
                                    patch_size=8, spatial_merge_size=2, temporal_patch_size=2, in_channels=3,
                                    image_size=48, hidden_act="silu")),
    # Positions and rotations of columns and rows, norms of heads and of results, matrices with bounds,
    # standardised means; an image's tokens see each other in windows, and have one row of inputs per layer.
    "gemma4_vl": Entry("gemma4", sees=True, images=vision_inputs.Gemma4(), text="gemma4_text", hidden_size=16,
                       intermediate_size=16, head_dim=6, sliding_window=12, global_head_dim=12,
                       num_global_key_value_heads=1, hidden_size_per_layer_input=4, vocab_size_per_layer_input=80,
                       layer_types=["sliding_attention", "full_attention"], num_hidden_layers=2,
                       use_bidirectional_attention="vision", weights=bounds, preprocessor={"max_soft_tokens": 70},
                       vision=dict(model_type="gemma4_vision", hidden_size=16, intermediate_size=20, head_dim=8,
                                   num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, patch_size=4,
                                   pooling_kernel_size=2, position_embedding_size=140, use_clipped_linears=True,
                                   standardize=True)),
    # One product of patches as large as a token, between LayerNorms.
    "gemma4_unified_vl": Entry("gemma4_unified", sees=True, images=vision_inputs.Gemma4Unified(),
                               preprocessor={"max_soft_tokens": 70}, weights=quiet,
                               text="gemma4_unified_text", hidden_size=16, head_dim=6, intermediate_size=12,
                               sliding_window=12, attention_k_eq_v=True, global_head_dim=12,
                               num_global_key_value_heads=1,
                               layer_types=["sliding_attention", "full_attention"], num_hidden_layers=2,
                               vision=dict(model_type="gemma4_unified_vision", patch_size=4, pooling_kernel_size=2,
                                           mm_embed_dim=16, output_proj_dims=16, mm_posemb_size=70)),
    # InternViT: a class row beside the patches, factors of each block's results.
    "internvl": Entry("internvl", sees=True, images=vision_inputs.InternVL(), text="qwen2", **SMALL,
                      num_attention_heads=2, num_key_value_heads=1,
                      vision=dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                                  patch_size=8, image_size=64, attention_bias=True)),
    # SigLIP's blocks, and one product over 16 patches.
    "smolvlm": Entry("smolvlm", sees=True, images=vision_inputs.Idefics3(), text="llama", **SMALL,
                     num_attention_heads=2, num_key_value_heads=1,
                     preprocessor={"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 64}},
                     vision=dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                                 patch_size=4, image_size=64)),
    # SigLIP 2: positions resized to each image, a norm of patches, then one of tokens.
    "lfm2_vl": Entry("lfm2_vl", sees=True, images=vision_inputs.Lfm2(), text="lfm2", **{**SMALL, "intermediate_size": 32},
                     num_attention_heads=2, num_key_value_heads=1, block_auto_adjust_ff_dim=False,
                     layer_types=["conv", "full_attention"], preprocessor=vision_inputs.Lfm2.files,
                     vision=dict(model_type="siglip2_vision_model", hidden_size=16, intermediate_size=24,
                                 num_hidden_layers=2, num_attention_heads=2, patch_size=8, num_patches=100,
                                 vision_use_head=False)),
    # Cross-encoders: a pooled first row, tanh, a score; token types of pairs.
    "bert_reranker": Entry("bert", scores=True, seed=2, type_vocab_size=2, **TINY),
    "xlm_roberta_reranker": Entry("xlm-roberta", scores=True, seed=2, type_vocab_size=1, layer_norm_eps=1e-5,
                                  **{**TINY, "pad_token_id": 1}),
    # A decoder's last row gives the score.
    "qwen3_reranker": Entry("qwen3", scores=True, head_dim=8, seed=2, **TINY),
    # Attention both ways in windows too, two Dense modules, the widest between them.
    "embeddinggemma": Entry("gemma3_text", pooling="mean", dense=(24, 12), head_dim=8, sliding_window=12,
                            use_bidirectional_attention=True, query_pre_attn_scalar=8, gain=1.2,
                            layer_types=["sliding_attention", "full_attention"], **TINY),
    # A decoder's last row is the vector. Tests of engines and servers use it, too, with any of 500 ids.
    "qwen3_embedding": Entry("qwen3", pooling="last", lengths=(1, 2, 9, 33, 64, 100), vocab_size=512,
                             intermediate_size=32, num_hidden_layers=2, head_dim=8, max_position_embeddings=4096),
    # A decoder whose tokens see all of the text, in a window too, which has that many keys on either side.
    "qwen2_bidirectional": Entry("qwen2", pooling="last", is_causal=False, use_sliding_window=True,
                                 sliding_window=5, max_window_layers=1, **TINY),
    # Learned positions, token types, LayerNorms of the stream, attention both ways.
    "bert": Entry("bert", pooling="mean", change=older_bert, **TINY),
    # Positions after the pad token's id.
    "xlm_roberta": Entry("xlm-roberta", pooling="cls", type_vocab_size=1, layer_norm_eps=1e-5,
                         **{**TINY, "pad_token_id": 3}),
    # Short convolutions with biases; attention where the older key says; an MLP as wide as a formula says.
    "lfm2": Entry("lfm2", hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
                  intermediate_size=60, block_multiple_of=8, conv_L_cache=4, conv_bias=True, full_attn_idxs=[1],
                  rewrite=lambda c: {k: v for k, v in c.items() if k != "layer_types"}),
    # A dense layer, then experts that a sigmoid and a correction choose.
    "lfm2_moe": Entry("lfm2_moe", hidden_size=16, intermediate_size=24, moe_intermediate_size=12, num_dense_layers=1,
                      num_experts=5, num_experts_per_tok=2, routed_scaling_factor=1.5,
                      layer_types=["conv", "full_attention", "conv"]),
    # Biases of o_proj only.
    "seed_oss": Entry("seed_oss", head_dim=8, attention_bias=False, attention_out_bias=True, prompt=33, **TINY),
    # Fused projections, half of a head rotates, long factors, a window in every layer.
    "phi3": Entry("phi3", hidden_size=36, num_attention_heads=3, num_key_value_heads=1,
                  partial_rotary_factor=0.5, sliding_window=24, original_max_position_embeddings=32,
                  rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                                   "original_max_position_embeddings": 32, "factor": 8.0,
                                   "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.0, 2.5, 7.0]}),
    # Norms behind the blocks and over whole rows of queries and keys; a window in every second layer. Tests
    # of engines use it, too, which have prompts of any of 500 ids.
    "olmo3": Entry("olmo3", num_hidden_layers=4, hidden_size=24, intermediate_size=24, sliding_window=16,
                   vocab_size=512, max_position_embeddings=4096, tie_word_embeddings=True,
                   layer_types=["sliding_attention", "full_attention"] * 2),
    # yarn in layers without a window, whose attention_factor GGUF files have whole.
    "olmo3_yarn": Entry("olmo3", sliding_window=12, prompt=33, layer_types=["sliding_attention", "full_attention"],
                        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                                         "full_attention": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 8.0,
                                                            "original_max_position_embeddings": 16}}, **TINY),
    # Every second layer does not rotate.
    "smollm3": Entry("smollm3", head_dim=10, no_rope_layer_interval=2, num_hidden_layers=4,
                     **NARROW, tie_word_embeddings=True,
                     rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Mamba-2 beside attention without positions; groups; stacks of experts, a fused shared one; factors.
    # Tests of engines use it, too, which have prompts of any of 500 ids.
    "granitemoehybrid": Entry("granitemoehybrid", vocab_size=512, hidden_size=24, num_hidden_layers=2,
                              max_position_embeddings=4096,
                              layer_types=["linear_attention", "full_attention"],
                              mamba_n_heads=3, mamba_d_head=16, mamba_n_groups=3, mamba_d_state=8,
                              mamba_expand=2, shared_intermediate_size=20, intermediate_size=8,
                              num_local_experts=3, num_experts_per_tok=2, position_embedding_type="nope",
                              attention_multiplier=0.3, embedding_multiplier=1.5, residual_multiplier=0.7,
                              logits_scaling=1.4, tie_word_embeddings=True),
    # One branch a layer, MLPs and experts of relu squared; the pattern as letters. The reference bounds steps
    # of time by time_step_min.
    "nemotron_h": Entry("nemotron_h", vocab_size=64, layers_block_type=["linear_attention", "moe",
                        "full_attention", "linear_attention", "mlp"], head_dim=10, mamba_num_heads=6,
                        mamba_head_dim=7, n_groups=3, ssm_state_size=9, conv_kernel=4, time_step_min=1e-12,
                        intermediate_size=40, n_routed_experts=4, num_experts_per_tok=2, n_group=2,
                        topk_group=1,
                        moe_intermediate_size=12, moe_shared_expert_intermediate_size=20, n_shared_experts=1,
                        routed_scaling_factor=1.7, rewrite=lettered),
    # Attention and Mamba-2 side by side, with a norm in front of the gate; factors everywhere.
    "falcon_h1": Entry("falcon_h1", vocab_size=64, num_hidden_layers=2, mamba_d_ssm=40, mamba_n_heads=5,
                       mamba_d_head="auto",
                       mamba_n_groups=1, mamba_d_state=20, mamba_rms_norm=True, mamba_norm_before_gate=True,
                       head_dim=10, embedding_multiplier=2.5, lm_head_multiplier=0.6, key_multiplier=0.7,
                       attention_in_multiplier=1.2, attention_out_multiplier=0.8, ssm_in_multiplier=1.3,
                       ssm_out_multiplier=0.6, ssm_multipliers=[0.7, 1.2, 0.9, 1.1, 0.8],
                       mlp_multipliers=[0.8, 1.25], time_step_limit=[0.05, 2.0],
                       rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    # Experts one by one, a window in every layer.
    "mixtral": Entry("mixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_local_experts=5,
                     num_experts_per_tok=2, sliding_window=16, head_dim=10,
                     rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Norms of all heads together, part of a head rotates, experts that a sigmoid and a correction choose.
    "minimax_m2": Entry("minimax_m2", hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_local_experts=5,
                        num_experts_per_tok=3, head_dim=12, rewrite=rotary_dim,
                        rope_parameters={"rope_type": "default", "rope_theta": 5000.0,
                                         "partial_rotary_factor": 0.5}),
    # Stacks of experts, a softmax of the chosen, factors.
    "granitemoe": Entry("granitemoe", hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_local_experts=5,
                        num_experts_per_tok=3, embedding_multiplier=6.0, residual_multiplier=0.6,
                        attention_multiplier=0.2, logits_scaling=0.5, tie_word_embeddings=False,
                        rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # A shared expert beside those, in stacks; biases.
    "granitemoeshared": Entry("granitemoeshared", hidden_size=24, intermediate_size=12, num_hidden_layers=2,
                              num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=17,
                              num_key_value_heads=1, attention_bias=True, residual_multiplier=0.6,
                              attention_multiplier=0.2, tie_word_embeddings=True,
                              rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # A clipped SwiGLU with a low limit and its own gain, biases, sinks, windows.
    "gpt_oss": Entry("gpt_oss", gain=3.0, intermediate_size=20, num_hidden_layers=2, num_local_experts=4,
                     num_experts_per_tok=2, head_dim=10, sliding_window=16, swiglu_limit=1.5, swiglu_alpha=1.2,
                     rope_parameters={"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0,
                                      "beta_fast": 4.0, "beta_slow": 0.5, "truncate": False,
                                      "original_max_position_embeddings": 32}),
    # Stacks [experts, in, out]; a vision encoder is beside them.
    "qwen3_vl_moe": Entry("qwen3_vl_moe", num_hidden_layers=2, num_experts=4, num_experts_per_tok=2, head_dim=12,
                          intermediate_size=24, moe_intermediate_size=12, mlp_only_layers=[0],
                          tie_word_embeddings=True,
                          rope_parameters={"rope_type": "default", "rope_theta": 5000.0,
                                           "mrope_interleaved": True, "mrope_section": [2, 2, 2]},
                          vision=dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4,
                                      temporal_patch_size=2, spatial_merge_size=2, out_hidden_size=32,
                                      num_position_embeddings=16, deepstack_visual_indexes=[]),
                          change=transposed_stacks),
    # Mixer and MLP side by side, LayerNorm, adjacent pairs, full layers without rotation, logit_scale.
    "cohere2": Entry("cohere2", hidden_size=16, rewrite=older_pattern, num_hidden_layers=4, num_attention_heads=4,
                     num_key_value_heads=2, intermediate_size=32, sliding_window=16, logit_scale=0.5,
                     layer_types=["sliding_attention", "full_attention"] * 2,
                     rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Post norms with norms of each head, full layers without rotation.
    "exaone4": Entry("exaone4", head_dim=10, sliding_window=16, sliding_window_pattern="LG",
                     layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                     rope_parameters={"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0,
                                      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 64}),
    # Queries that grow, yarn with both mscales.
    "ministral3": Entry("ministral3", head_dim=10, hidden_size=16, intermediate_size=24,
                        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
                                         "original_max_position_embeddings": 16, "beta_fast": 4.0,
                                         "beta_slow": 0.5, "mscale": 1.0, "mscale_all_dim": 0.5,
                                         "llama_4_scaling_beta": 0.3}),
    # Norms after the rotation, alpha.
    "hunyuan_v1_dense": Entry("hunyuan_v1_dense", rewrite=older_rope, head_dim=10, hidden_size=16, intermediate_size=24,
                              rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "alpha": 50.0,
                                               "factor": 1.0}),
    # Factors of the embedding, of scores, of what blocks add, and of the logits.
    "granite": Entry("granite", rewrite=older_rope, tie_word_embeddings=False, embedding_multiplier=6.0,
                     residual_multiplier=0.3, attention_multiplier=0.2, logits_scaling=0.5,
                     rope_parameters={"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0}),
    # Sandwich norms by other names, half of a head rotates in adjacent pairs, biases.
    "glm4": Entry("glm4", head_dim=12, num_attention_heads=3, num_key_value_heads=1, attention_bias=True,
                  rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}),
    # Caps of scores and logits, windows in turn.
    "gemma2": Entry("gemma2", **NARROW, head_dim=10, tie_word_embeddings=False, sliding_window=16, query_pre_attn_scalar=7,
                    attn_logit_softcapping=3.0, final_logit_softcapping=4.0,
                    hidden_activation="gelu_pytorch_tanh",
                    rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Windows in the last layers.
    "qwen2": Entry("qwen2", num_hidden_layers=2, use_sliding_window=True, sliding_window=16,
                   max_window_layers=1, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    # Windows in all layers, norms of queries and keys.
    "gemma3": Entry("gemma3_text", vocab_size=512, hidden_size=16, head_dim=10, tie_word_embeddings=False,
                    sliding_window=16, query_pre_attn_scalar=7, layer_types=["sliding_attention"] * 3, **LONG),
    # Inputs per layer, shared K and V, keys that are values, experts beside the MLP, global layers with other
    # heads, a proportional rotation.
    "gemma4": Entry("gemma4_text", hidden_size=16, head_dim=6, num_hidden_layers=5, intermediate_size=12,
                    num_kv_shared_layers=2, use_double_wide_mlp=True, sliding_window=12, attention_k_eq_v=True,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                                 "full_attention"],
                    global_head_dim=12, num_global_key_value_heads=1, hidden_size_per_layer_input=6,
                    vocab_size_per_layer_input=84, enable_moe_block=True, num_experts=4, top_k_experts=2,
                    moe_intermediate_size=8, final_logit_softcapping=20.0, rewrite=published_gemma4),
    # A Gemma without inputs per layer and experts, whose keys its files do not have.
    "gemma4_unified": Entry("gemma4_unified_text", hidden_size=16, head_dim=6, num_hidden_layers=3,
                            intermediate_size=12, sliding_window=12, attention_k_eq_v=True,
                            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                            global_head_dim=12, num_global_key_value_heads=1, final_logit_softcapping=20.0),
    # Latent attention with a plain q_proj, a softmax router, groups by their best expert, yarn with two
    # different factors.
    "deepseek_v2": Entry("deepseek_v2", num_hidden_layers=2, num_key_value_heads=4, q_lora_rank=None,
                         kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5,
                         n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
                         topk_method="group_limited_greedy", routed_scaling_factor=1.5,
                         moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1,
                         rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                          "mscale": 0.7, "mscale_all_dim": 1.2, "beta_fast": 32,
                                          "beta_slow": 1, "original_max_position_embeddings": 32}),
    # Latent attention with rotated halves, a list of dense and sparse layers, biases, an MTP layer.
    "glm4_moe_lite": Entry("glm4_moe_lite", hidden_size=24, num_attention_heads=5, num_key_value_heads=5,
                           q_lora_rank=10, kv_lora_rank=18, qk_nope_head_dim=7, qk_rope_head_dim=6,
                           v_head_dim=9, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                           n_shared_experts=1, mlp_layer_types=["sparse", "dense", "sparse"],
                           rope_interleave=False, attention_bias=True, intermediate_size=24,
                           change=mtp_layer,
                           rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    # MTP heads as a layer after the model's: with latent attention, and with biases.
    "deepseek_v3_mtp": Entry("deepseek_v3", mtp=True, num_hidden_layers=3, num_key_value_heads=4, q_lora_rank=8,
                             kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, hidden_size=16,
                             n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1,
                             weights=small_corrections, moe_intermediate_size=12, n_shared_experts=1,
                             first_k_dense_replace=1),
    "glm4_moe_mtp": Entry("glm4_moe", mtp=True, num_hidden_layers=3, hidden_size=16, head_dim=8, n_routed_experts=4,
                          num_experts_per_tok=2, moe_intermediate_size=12, n_shared_experts=1, attention_bias=True,
                          weights=small_corrections, first_k_dense_replace=1, partial_rotary_factor=0.5),
    # MTP heads under names of their own: a dense block, and two layers of one branch each.
    "ernie4_5_moe_mtp": Entry("ernie4_5_moe", mtp=True, **{**SMALL, "num_hidden_layers": 3}, weights=small_corrections,
                              moe_num_experts=4, moe_k=2, moe_intermediate_size=8, moe_num_shared_experts=1,
                              moe_layer_start_index=1, moe_layer_end_index=1, head_dim=6,
                              rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "nemotron_h_mtp": Entry("nemotron_h", mtp=True, vocab_size=64, hidden_size=24, layers_block_type=[
                            "linear_attention", "moe", "full_attention", "full_attention", "moe"], head_dim=10,
                            mamba_num_heads=4, mamba_head_dim=6, n_groups=2, ssm_state_size=8, conv_kernel=4,
                            time_step_min=1e-12, intermediate_size=24, n_routed_experts=4, num_experts_per_tok=2,
                            moe_latent_size=12, moe_intermediate_size=8, moe_shared_expert_intermediate_size=12,
                            n_shared_experts=1, routed_scaling_factor=1.7, rewrite=lettered),
    # EAGLE-3 heads: in pages of a dense model, and in states of a recurrent one.
    "qwen3_eagle": Entry("qwen3", mtp="eagle", **{**SMALL, "num_hidden_layers": 4}, head_dim=6,
                         tie_word_embeddings=True),
    "lfm2_eagle": Entry("lfm2", mtp="eagle", **{**SMALL, "num_hidden_layers": 4}, conv_L_cache=4,
                        block_auto_adjust_ff_dim=False,
                        layer_types=["conv", "full_attention", "conv", "full_attention"]),
}
