"""GGUF twins of checkpoints: names, keys and values in llama.cpp's order."""
import array
import json
import math
import re
import struct

NAMES = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
LATENT_NAMES = {
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
}
LFM_NAMES = {
    "embedding_norm": "token_embd_norm", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp", "feed_forward.expert_bias": "exp_probs_b.bias", "feed_forward.experts.w1": "ffn_gate_exps",
    "feed_forward.experts.w3": "ffn_up_exps", "feed_forward.experts.w2": "ffn_down_exps",
}
GEMMA4_NAMES = {
    "embed_tokens_per_layer": "per_layer_token_embd", "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm", "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2", "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "layer_scalar": "layer_output_scale.weight",
    "router.proj": "ffn_gate_inp", "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
}
MAMBA_NAMES = {
    "mamba.in_proj": "ssm_in", "mamba.conv1d": "ssm_conv1d", "mamba.A_log": "ssm_a", "mamba.D": "ssm_d", "mamba.dt_bias": "ssm_dt.bias",
    "mamba.norm": "ssm_norm", "mamba.out_proj": "ssm_out",
}
FALCON_NAMES = {
    **MAMBA_NAMES, "final_layernorm": "output_norm", "pre_ff_layernorm.weight": "ffn_norm", "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down",
}
GRANITE_NAMES = {
    **MAMBA_NAMES, "block_sparse_moe.router.layer": "ffn_gate_inp", "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps", "shared_mlp.input_linear": "shared_in", "shared_mlp.output_linear": "shared_out",
}
NEMOTRON_NAMES = {
    "embeddings": "token_embd", "norm_f": "output_norm", "norm": "attn_norm", **{f"mixer.{k[6:]}": v for k, v in MAMBA_NAMES.items()},
    **{f"mixer.{n}_proj": f"attn_{n if n != 'o' else 'output'}" for n in "qkvo"}, "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down",
    "mixer.gate": "ffn_gate_inp", "mixer.gate.e_score_correction_bias": "exp_probs_b.bias", "mixer.experts.up_proj": "ffn_up_exps",
    "mixer.experts.down_proj": "ffn_down_exps", "mixer.shared_experts.up_proj": "ffn_up_shexp", "mixer.shared_experts.down_proj": "ffn_down_shexp",
}
NEXT_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkvz": "qkvz", "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out", "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
GEMMA_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}
HUNYUAN_NAMES = {
    "self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm", "mlp.gate.wg": "ffn_gate_inp",
    **{f"mlp.shared_mlp.{n}_proj": f"ffn_{n}_shexp" for n in ("gate", "up", "down")},
}
MINIMAX_NAMES = {
    "block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
    "block_sparse_moe.experts.w1": "ffn_gate_exps", "block_sparse_moe.experts.w3": "ffn_up_exps", "block_sparse_moe.experts.w2": "ffn_down_exps",
}


AFMOE_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "pre_mlp_layernorm": "ffn_norm", "post_mlp_layernorm": "post_ffw_norm",
    "mlp.router.gate": "ffn_gate_inp", "mlp.expert_bias": "exp_probs_b.bias", "self_attn.gate_proj": "attn_gate",
}
HY_NAMES = {"mlp.router.gate": "ffn_gate_inp", "mlp.expert_bias": "exp_probs_b",
            **{f"mlp.shared_mlp.{n}_proj": f"ffn_{n}_shexp" for n in ("gate", "up", "down")}}
APERTUS_NAMES = {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"}
STACKED_NAMES = {"mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight", "mlp.experts.down_proj": "ffn_down_exps.weight"}
KIMI_NAMES = {
    **LATENT_NAMES, **{f"self_attn.{n}_conv1d": f"ssm_conv1d_{n}" for n in "qkv"}, **{f"self_attn.{n}_proj": f"ssm_{n}" for n in ("f_a", "f_b", "g_a", "g_b")},
    "self_attn.b_proj": "ssm_beta", "self_attn.A_log": "ssm_a", "self_attn.dt_bias": "ssm_dt.bias", "self_attn.o_norm": "ssm_norm",
    "block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
    "block_sparse_moe.experts.w1": "ffn_gate_exps", "block_sparse_moe.experts.w3": "ffn_up_exps", "block_sparse_moe.experts.w2": "ffn_down_exps",
    **{f"block_sparse_moe.shared_experts.{n}_proj": f"ffn_{n}_shexp" for n in ("gate", "up", "down")},
    **{f"block_sparse_moe.{n}_proj": f"ffn_{n}" for n in ("gate", "up", "down")},
}


class Values:
    """A tensor in float32: its shape, the outermost dimension first, and its numbers."""

    def __init__(self, shape, numbers):
        self.shape, self.numbers = list(shape), numbers
        assert math.prod(self.shape) == len(numbers)

    def rows(self):
        width = len(self.numbers) // self.shape[0]
        return [self.numbers[i * width:(i + 1) * width] for i in range(self.shape[0])]

    def take(self, order):
        """The rows of these indices."""
        rows = self.rows()
        return Values([len(order), *self.shape[1:]], array.array("f", b"".join(rows[i].tobytes() for i in order)))

    def shaped(self, *shape):
        return Values(shape, self.numbers)

    def mapped(self, change):
        return Values(self.shape, array.array("f", map(change, self.numbers)))


def stacked(parts):
    return Values([len(parts), *parts[0].shape], array.array("f", b"".join(p.numbers.tobytes() for p in parts)))


def paired(values, heads):
    """Rows of each head that rotate together side by side."""
    half = values.shape[0] // heads // 2
    return values.take([h * 2 * half + s * half + i for h in range(heads) for i in range(half) for s in range(2)])


def read(folder):
    """The configuration, and values by name."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        raw = data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
        elif t["dtype"] == "F16":
            raw = array.array("f", struct.unpack(f"<{len(raw) // 2}e", raw)).tobytes()
        found[name] = Values(t["shape"], array.array("f", raw))
    return json.loads((folder / "config.json").read_text()), found


# ---- families ----

def common(c):
    return {"block_count": c["num_hidden_layers"], "context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
            "feed_forward_length": c["intermediate_size"], "attention.head_count": c["num_attention_heads"],
            "attention.head_count_kv": c["num_key_value_heads"], "rope.freq_base": float(c.get("rope_theta") or c["rope_parameters"]["rope_theta"]),
            **({"attention.key_length": c["head_dim"]} if "head_dim" in c else {}),
            **({"attention.layer_norm_rms_epsilon": c["rms_norm_eps"]} if "rms_norm_eps" in c else {})}


def experts(c, count, width):
    return {"expert_count": c[count], "expert_used_count": c["num_experts_per_tok"], "expert_feed_forward_length": c[width]}


def yarn(c):
    r = c["rope_parameters"]
    return {"rope.scaling.type": "yarn", "rope.scaling.factor": r["factor"], "rope.scaling.original_context_length": r["original_max_position_embeddings"],
            "rope.scaling.yarn_beta_fast": float(r.get("beta_fast", 32)), "rope.scaling.yarn_beta_slow": float(r.get("beta_slow", 1))}


def cohere(c):
    return {**common(c), "attention.layer_norm_epsilon": c["layer_norm_eps"], "logit_scale": c["logit_scale"], "rope.scaling.type": "none"}


def cohere2(c):
    # llama.cpp takes 4 for the interval, which no key says.
    return {**cohere(c), "attention.sliding_window": c["sliding_window"], "attention.sliding_window_pattern": c["sliding_window_pattern"],
            "rope.dimension_count": c["head_dim"]}


def cohere2_moe(c):
    return {**common(c), **experts(c, "num_experts", "intermediate_size"), "logit_scale": c["logit_scale"], "feed_forward_length": 24,
            "attention.sliding_window": c["sliding_window"], "attention.sliding_window_pattern": [k == "sliding_attention" for k in c["layer_types"]],
            "leading_dense_block_count": c["mlp_layer_types"].index("sparse"), "expert_weights_norm": c["norm_topk_prob"], "expert_gating_func": 2,
            "expert_shared_count": c["num_shared_experts"], "expert_shared_feed_forward_length": c["num_shared_experts"] * c["intermediate_size"],
            "rope.dimension_count": c["head_dim"], "rope.scaling.type": "none"}


def deepseek(c):
    rope, scaling = c["qk_rope_head_dim"], c.get("rope_parameters") or {}
    more = {**common(c), "attention.head_count_kv": 1, "attention.key_length": c["kv_lora_rank"] + rope, "attention.value_length": c["kv_lora_rank"],
            "attention.key_length_mla": c["qk_nope_head_dim"] + rope, "attention.value_length_mla": c["v_head_dim"],
            "attention.kv_lora_rank": c["kv_lora_rank"], **({"attention.q_lora_rank": c["q_lora_rank"]} if c["q_lora_rank"] else {}),
            **experts(c, "n_routed_experts", "moe_intermediate_size"), "expert_shared_count": c["n_shared_experts"],
            "leading_dense_block_count": c["first_k_dense_replace"], "expert_weights_scale": c["routed_scaling_factor"], "rope.dimension_count": rope}
    if c.get("n_group"):
        more.update({"expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"]})
    if c.get("norm_topk_prob"):
        more["expert_weights_norm"] = True
    if scaling.get("rope_type") == "yarn":
        more.update(yarn(c))
        more["rope.scaling.yarn_log_multiplier"] = 0.1 * scaling["mscale_all_dim"]
    return more


def deepseek_whole(c):
    """The keys of old files, from before latent keys and values became one row."""
    more = {k: v for k, v in deepseek(c).items() if not k.endswith("_mla")}
    return {**more, "attention.head_count_kv": c["num_attention_heads"], "attention.key_length": c["qk_nope_head_dim"] + c["qk_rope_head_dim"],
            "attention.value_length": c["v_head_dim"]}


def mamba(conv, state, groups, heads, inner):
    return {"ssm.conv_kernel": conv, "ssm.state_size": state, "ssm.group_count": groups, "ssm.time_step_rank": heads, "ssm.inner_size": inner}


def dots1(c):
    return {**common(c), **experts(c, "n_routed_experts", "moe_intermediate_size"), "expert_shared_count": c["n_shared_experts"], "expert_gating_func": 2,
            "leading_dense_block_count": c["first_k_dense_replace"], "expert_weights_scale": c["routed_scaling_factor"],
            "expert_weights_norm": c["norm_topk_prob"]}


def gemma_embedding(c):
    rope = c["rope_parameters"]["full_attention"]["rope_theta"]
    return {**common({**c, "rope_theta": rope}), "attention.sliding_window": c["sliding_window"], "pooling_type": 1}


def olmoe(c):
    """The width of experts is feed_forward_length."""
    return {**common(c), "expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_tok"]}


def arcee(c):
    return {**common(c), **yarn(c)}


def ernie_moe(c):
    return {**common(c), **experts({**c, "num_experts_per_tok": c["moe_k"]}, "moe_num_experts", "moe_intermediate_size"),
            "expert_shared_count": c["moe_num_shared_experts"], "interleave_moe_layer_step": c["moe_layer_interval"],
            "leading_dense_block_count": c["moe_layer_start_index"]}


def hunyuan_moe(c):
    return {**common(c), "expert_count": c["num_experts"][0], "expert_used_count": c["moe_topk"][0], "expert_shared_count": 1,
            "expert_feed_forward_length": c["intermediate_size"], "expert_shared_feed_forward_length": c["intermediate_size"]}


def falcon_h1(c):
    return {**common(c), **mamba(*(c["mamba_" + k] for k in ["d_conv", "d_state", "n_groups", "n_heads", "d_ssm"]))}


def granite_hybrid(c):
    inner = c["mamba_n_heads"] * c["mamba_d_head"]
    more = {"attention.head_count_kv": [c["num_key_value_heads"] if k == "attention" else 0 for k in c["layer_types"]],
            "attention.scale": c["attention_multiplier"], "embedding_scale": c["embedding_multiplier"], "residual_scale": c["residual_multiplier"],
            "logit_scale": c["logits_scaling"], "expert_shared_feed_forward_length": c["shared_intermediate_size"],
            "rope.dimension_count": c["hidden_size"] // c["num_attention_heads"], "rope.scaling.finetuned": c["position_embedding_type"] == "rope",
            "expert_count": c["num_local_experts"], "expert_used_count": c["num_experts_per_tok"] if c["num_local_experts"] else 0}
    return {**common(c), **more, **mamba(c["mamba_d_conv"], c["mamba_d_state"], c["mamba_n_groups"], c["mamba_n_heads"], inner)}


def nemotron_h(c):
    pattern, wide = c["hybrid_override_pattern"], c["intermediate_size"]
    more = {"attention.head_count_kv": [c["num_key_value_heads"] if k == "*" else 0 for k in pattern], "attention.layer_norm_epsilon": c["layer_norm_epsilon"],
            "rope.dimension_count": c["hidden_size"] // c["num_attention_heads"],
            **mamba(c["conv_kernel"], c["ssm_state_size"], c["n_groups"], c["mamba_num_heads"], c["mamba_num_heads"] * c["mamba_head_dim"])}
    if "E" in pattern:
        wide = c["moe_intermediate_size"]
        more.update({**experts(c, "n_routed_experts", "moe_intermediate_size"), "expert_shared_count": c["n_shared_experts"],
                     "expert_shared_feed_forward_length": c["moe_shared_expert_intermediate_size"], "expert_weights_norm": c["norm_topk_prob"],
                     "expert_weights_scale": c["routed_scaling_factor"], "expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"]})
    more["feed_forward_length"] = [wide if k in "E-" else 0 for k in pattern]
    return {**common({"rope_theta": 10000.0, **c}), **more}


def glm4_moe(c):
    return {**common(c), **experts(c, "n_routed_experts", "moe_intermediate_size"), "rope.dimension_count": c["head_dim"] // 2,
            "expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"], "expert_shared_count": c["n_shared_experts"],
            "leading_dense_block_count": c["first_k_dense_replace"], "expert_gating_func": 2, "expert_weights_scale": c["routed_scaling_factor"],
            "expert_weights_norm": c["norm_topk_prob"], "nextn_predict_layers": 0}


def lfm2(c):
    kinds = c.get("layer_types") or ["full_attention" if i in c["full_attn_idxs"] else "conv" for i in range(c["num_hidden_layers"])]
    more = {"attention.head_count_kv": [c["num_key_value_heads"] if k == "full_attention" else 0 for k in kinds],
            "attention.layer_norm_rms_epsilon": c["norm_eps"], "shortconv.l_cache": c["conv_L_cache"]}
    if "num_experts" in c:
        return {**common(c), **more, **experts(c, "num_experts", "moe_intermediate_size"), "expert_gating_func": 2,
                "leading_dense_block_count": c["num_dense_layers"], "expert_weights_scale": c["routed_scaling_factor"]}
    width = int(2 * c["intermediate_size"] / 3)
    return {**common(c), **more, "feed_forward_length": -(-width // c["block_multiple_of"]) * c["block_multiple_of"]}


def full_of(c):
    """The size of heads, and how many have keys, in layers without a window."""
    single = next(iter(c.get("per_layer_config", {}).values()), {})
    heads = c.get("num_global_key_value_heads") if c["attention_k_eq_v"] else None
    return single.get("head_dim") or c["global_head_dim"], single.get("num_key_value_heads") or heads or c["num_key_value_heads"]


def gemma4(c):
    (size, heads), windows = full_of(c), [k == "sliding_attention" for k in c["layer_types"]]
    layers, shared, wide = len(windows), c["num_kv_shared_layers"], 2 if c["use_double_wide_mlp"] else 1
    rope = c["rope_parameters"]
    more = {"attention.key_length": size, "attention.key_length_swa": c["head_dim"], "rope.dimension_count": size, "rope.dimension_count_swa": c["head_dim"],
            "attention.head_count_kv": [c["num_key_value_heads"] if w else heads for w in windows],
            "feed_forward_length": [c["intermediate_size"] * (wide if i + shared >= layers else 1) for i in range(layers)],
            "attention.sliding_window": c["sliding_window"], "attention.sliding_window_pattern": windows, "attention.shared_kv_layers": shared,
            "embedding_length_per_layer_input": c.get("hidden_size_per_layer_input") or 0, "final_logit_softcapping": c["final_logit_softcapping"],
            "rope.freq_base_swa": rope["sliding_attention"]["rope_theta"]}
    if c.get("enable_moe_block"):
        more.update({"expert_count": c["num_experts"], "expert_used_count": c["top_k_experts"], "expert_feed_forward_length": c["moe_intermediate_size"]})
    return {**common({**c, "rope_theta": rope["full_attention"]["rope_theta"]}), **more}


def qwen3_next(c):
    return {**common(c), **experts(c, "num_experts", "moe_intermediate_size"), "expert_shared_feed_forward_length": c["shared_expert_intermediate_size"],
            **mamba(c["linear_conv_kernel_dim"], c["linear_key_head_dim"], c["linear_num_key_heads"], c["linear_num_value_heads"],
                    c["linear_num_value_heads"] * c["linear_value_head_dim"]),
            "attention.recurrent_layers": [k == "linear_attention" for k in c["layer_types"]], "full_attention_interval": 4,
            "rope.dimension_count": int(c["head_dim"] * c["partial_rotary_factor"])}


def minimax(c):
    return {**common(c), **experts(c, "num_local_experts", "intermediate_size"), "rope.dimension_count": c["rotary_dim"]}


def mistral(c):
    return {**common(c), "rope.dimension_count": c["head_dim"]}


def ministral3(c):
    r = c["rope_parameters"]
    return {**common(c), **yarn(c), "rope.dimension_count": c["head_dim"], "rope.scaling.yarn_log_multiplier": r["mscale_all_dim"],
            "attention.temperature_scale": r["llama_4_scaling_beta"]}


def afmoe(c):
    """The file does not say which layers have windows: llama.cpp takes four."""
    return {**common(c), **experts(c, "num_experts", "moe_intermediate_size"), "expert_shared_count": c["num_shared_experts"],
            "leading_dense_block_count": c["num_dense_layers"], "expert_weights_norm": True, "expert_weights_scale": c["route_scale"],
            "expert_gating_func": 2, "attention.sliding_window": c["sliding_window"]}


def exaone_moe(c):
    return {**common(c), **experts(c, "num_experts", "moe_intermediate_size"), "expert_shared_count": c["num_shared_experts"],
            "expert_shared_feed_forward_length": c["moe_intermediate_size"] * c["num_shared_experts"], "expert_weights_scale": c["routed_scaling_factor"],
            "expert_weights_norm": c["norm_topk_prob"], "leading_dense_block_count": c["first_k_dense_replace"], "nextn_predict_layers": 0,
            "expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"], "expert_gating_func": 2, "rope.scaling.type": "none",
            "attention.sliding_window": c["sliding_window"], "attention.sliding_window_pattern": [k == "sliding_attention" for k in c["layer_types"]]}


def hy_v3(c):
    return {**common(c), **experts(c, "num_experts", "moe_intermediate_size"), "expert_weights_norm": True, "expert_gating_func": 2,
            "expert_shared_feed_forward_length": c["moe_intermediate_size"] * c["num_shared_experts"], "expert_weights_scale": c["router_scaling_factor"]}


def mistral4(c):
    return {**deepseek(c), "attention.temperature_scale": c["rope_parameters"]["llama_4_scaling_beta"]}


def kimi_linear(c):
    linear, full = c["linear_attn_config"], [i + 1 in c["linear_attn_config"]["full_attn_layers"] for i in range(c["num_hidden_layers"])]
    more = {**c, "max_position_embeddings": c["model_max_length"], "num_experts_per_tok": c["num_experts_per_token"], "n_shared_experts": c["num_shared_experts"],
            "n_group": c["num_expert_group"], "n_routed_experts": c["num_experts"], "rope_theta": 1e4}
    return {**deepseek(more), "attention.head_count_kv": [int(f) for f in full],
            "ssm.conv_kernel": linear["short_conv_kernel_size"], "kda.head_dim": linear["head_dim"]}


def apertus(c):
    r = c["rope_parameters"]
    return {**common({**c, "head_dim": c["hidden_size"] // c["num_attention_heads"]}), **c["xielu"]} if r else {}


GATED_NAMES = {
    "self_attn.g_proj": "attn_gate", "mlp.experts.e_score_correction_bias": "exp_probs_b.bias", "self_attn.attention_sink_bias": "attn_sinks.weight",
    "self_attn.sinks": "attn_sinks.weight", **{f"mlp.shared_expert.{n}_proj": f"ffn_{n}_shexp" for n in ("gate", "up", "down")},
    **{f"share_expert.{n}_proj": f"ffn_{n}_shexp" for n in ("gate", "up", "down")}, "moe.gate": "ffn_gate_inp", "moe.router_bias": "exp_probs_b.bias",
    **{f"moe.{n}_proj": f"ffn_{n}_exps" for n in ("gate", "up", "down")},
}


def two_kinds(c, full=1):
    """Windows and rotations of each kind; layers without a window rotate 1 / `full` of what the file says."""
    main, local = (c["rope_parameters"].get(k) for k in ("full_attention", "sliding_attention"))
    rotate = [int(c["head_dim"] * r.get("partial_rotary_factor", 1)) for r in (main, local or main)]
    return {**common({**c, "rope_parameters": main}), "attention.sliding_window": c["sliding_window"], "rope.dimension_count": rotate[0] * full,
            "attention.sliding_window_pattern": [k == "sliding_attention" for k in c["layer_types"]],
            **({"rope.freq_base_swa": float(local["rope_theta"]), "rope.dimension_count_swa": rotate[1]} if local else {}),
            **(yarn({"rope_parameters": main}) if main["rope_type"] == "yarn" else {})}


def laguna(c):
    return {**two_kinds(c), **experts(c, "num_experts", "moe_intermediate_size"), "attention.head_count": c["num_attention_heads_per_layer"],
            "expert_weights_norm": True, "expert_weights_scale": c["moe_routed_scaling_factor"], "expert_gating_func": 2,
            "expert_shared_feed_forward_length": c["shared_expert_intermediate_size"], "leading_dense_block_count": c["mlp_layer_types"].index("sparse")}


def mimo2(c):
    windows = [int(k == "sliding_attention") for k in c["layer_types"]]
    return {**two_kinds(c), **experts(c, "n_routed_experts", "moe_intermediate_size"), "attention.sliding_window_pattern": windows,
            "attention.head_count_kv": [c["num_key_value_heads"] << w for w in windows], "attention.value_length": c["v_head_dim"],
            "attention.value_scale": c["attention_value_scale"]}


def step35(c):
    other, windows = c["attention_other_setting"], [k == "sliding_attention" for k in c["layer_types"][:c["num_hidden_layers"]]]
    more = {**c, "num_key_value_heads": c["num_attention_groups"], "num_experts_per_tok": c["moe_top_k"], "rope_theta": c["rope_theta"][0],
            "layer_types": c["layer_types"][:c["num_hidden_layers"]], "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": part}
                for kind, theta, part in zip(c["layer_types"], c["rope_theta"], c["partial_rotary_factors"])}}
    return {**two_kinds(more, 2), **experts(more, "moe_num_experts", "moe_intermediate_size"), "expert_weights_norm": True, "moe_every_n_layers": 1,
            "attention.head_count": [other["num_attention_heads"] if w else c["num_attention_heads"] for w in windows],
            "attention.head_count_kv": [c["num_attention_groups"]] * len(windows), "expert_weights_scale": c["moe_router_scaling_factor"],
            "expert_shared_feed_forward_length": c["share_expert_dim"], "leading_dense_block_count": int(c["moe_layers_enum"].split(",")[0]),
            "swiglu_clamp_exp": c["swiglu_limits"][:len(windows)], "swiglu_clamp_shexp": c["swiglu_limits_shared"][:len(windows)]}


def phimoe(c):
    return {**common(c), **experts(c, "num_local_experts", "intermediate_size"), "attention.sliding_window": c["sliding_window"],
            "rope.dimension_count": c["hidden_size"] // c["num_attention_heads"], "rope.scaling.attn_factor": 1.19,
            "rope.scaling.original_context_length": c["original_max_position_embeddings"]}


def pairs_of_heads(c, name, values):
    heads = {"attn_q": c["num_attention_heads"], "attn_k": c["num_key_value_heads"]}.get(name.split(".")[2] if name.startswith("blk") else "")
    return name, paired(values, heads) if heads else values


def raised_norms(c, name, values):
    """Norms are w - 1 in the checkpoint."""
    return name, values.mapped(lambda x: x + 1) if "norm" in name else values


def flat_correction(c, name, values):
    return name, values.shaped(len(values.numbers)) if "exp_probs" in name else values


def squeezed(c, name, values):
    return name, values.shaped(values.shape[0], values.shape[2]) if "conv" in name and len(values.shape) == 3 else values


def halves_of_latents(c, name, values):
    """Keys and values of the latent part as stacks of heads, keys transposed."""
    if ".attn_kv_b." not in name:
        return name, values
    heads, n, width = c["num_attention_heads"], c["qk_nope_head_dim"], c["kv_lora_rank"]
    step = values.shape[0] // heads
    keys, rest = values.take([h * step + i for h in range(heads) for i in range(n)]), step - n
    turned = array.array("f", (keys.numbers[(h * n + i) * width + k] for h in range(heads) for k in range(width) for i in range(n)))
    return {name.replace("kv_b", "k_b"): Values([heads, width, n], turned),
            name.replace("kv_b", "v_b"): values.take([h * step + n + i for h in range(heads) for i in range(rest)]).shaped(heads, rest, width)}


def mamba_parts(groups):
    def change(c, name, values):
        end = name.rpartition("blk.")[2].partition(".")[2]
        if end == "ssm_conv1d.weight":
            values = values.shaped(values.shape[0], values.shape[2])
        elif end in ("ssm_a", "ssm_d"):
            values = (values.mapped(lambda x: -math.exp(x)) if end == "ssm_a" else values).shaped(values.shape[0], 1)
        elif end == "ssm_norm.weight":
            values = values.shaped(c[groups], values.shape[0] // c[groups])
        return name, values
    return change


def gemma4_parts(c, name, values):
    """Adds the divisors of the frequencies: those beyond the part that rotates become 0."""
    if name != "output_norm.weight":
        return name, values
    half = full_of(c)[0] // 2
    ones = int(half * c["rope_parameters"]["full_attention"]["partial_rotary_factor"])
    return {name: values, "rope_freqs.weight": Values([half], array.array("f", [1.0] * ones + [1e30] * (half - ones)))}


def next_parts(c, name, values):
    """q, k, v of all heads, and z; norms are w - 1 in the checkpoint."""
    kind = name.split(".")[-2]
    if kind != "qkvz":
        if len(values.shape) == 1 and kind.endswith("norm") and kind != "ssm_norm":
            return name, values.mapped(lambda x: x + 1)
        name, values = mamba_parts("linear_num_key_heads")(c, name, values) if kind != "ssm_norm" else (name, values)
        return name, values.shaped(len(values.numbers)) if name.endswith("ssm_a") else values
    heads, key, value = c["linear_num_key_heads"], c["linear_key_head_dim"], c["linear_num_value_heads"] // c["linear_num_key_heads"] * c["linear_value_head_dim"]
    spans, at, order = [key, key, value, value], 0, []
    for span in spans:
        order.append([h * sum(spans) + at + i for h in range(heads) for i in range(span)])
        at += span
    return {name.replace(kind, "attn_qkv"): values.take(order[0] + order[1] + order[2]), name.replace(kind, "attn_gate"): values.take(order[3])}


def granite_parts(c, name, values):
    """Gate and up in a tensor each; the dense MLP has the place of the shared expert."""
    kind = name.split(".")[-2]
    down = "ffn_down_shexp" if c["num_local_experts"] else "ffn_down"
    if kind == "shared_out":
        return name.replace(kind, down), values
    if kind not in ("shared_in", "ffn_gate_up_exps"):
        return mamba_parts("mamba_n_groups")(c, *pairs_of_heads(c, name, values))
    count = values.shape[0] if len(values.shape) == 3 else 1
    flat = values.shaped(count * values.shape[-2], values.shape[-1])
    half, found = values.shape[-2] // 2, {}
    for at, end in enumerate(["gate", "up"]):
        part = flat.take([i * 2 * half + at * half + k for i in range(count) for k in range(half)])
        to = down.replace("down", end) if count == 1 else f"ffn_{end}_exps"
        found[name.replace(kind, to)] = part.shaped(count, half, part.shape[1]) if len(values.shape) == 3 else part
    return found


def falcon_parts(c, name, values):
    """Factors are in the weights."""
    name, values = mamba_parts("mamba_n_groups")(c, name, values)
    kind = re.sub(r"^blk\.\d+\.|\.weight$", "", name)
    inner, states = c["mamba_d_ssm"], c["mamba_n_groups"] * c["mamba_d_state"]
    into = c["attention_in_multiplier"]
    factor = {"ffn_down": c["mlp_multipliers"][1], "ffn_gate": c["mlp_multipliers"][0], "attn_k": c["key_multiplier"] * into, "attn_q": into, "attn_v": into,
              "attn_output": c["attention_out_multiplier"], "ssm_out": c["ssm_out_multiplier"], "output": c["lm_head_multiplier"],
              "token_embd": c["embedding_multiplier"]}.get(kind)
    if kind == "ssm_in":
        spans = [inner, inner, states, states, c["mamba_n_heads"]]
        factors = [c["ssm_in_multiplier"] * f for f, span in zip(c["ssm_multipliers"], spans) for _ in range(span)]
        width = values.shape[1]
        return name, Values(values.shape, array.array("f", (x * factors[i // width] for i, x in enumerate(values.numbers))))
    return name, values.mapped(lambda x: x * factor) if factor else values


def as_is(c, name, values):
    return name, values


def qwen3_vl(c):
    return {**common(c), "rope.dimension_sections": [*c["rope_parameters"]["mrope_section"], 0]}


def kimi_parts(c, name, values):
    """Convolutions in four dimensions, decays as a column."""
    if "ssm_conv1d" in name:
        return name, values.shaped(1, values.shape[0], 1, values.shape[2])
    return (name, values.mapped(lambda x: -math.exp(x))) if name.endswith("ssm_a") else halves_of_latents(c, name, values)


# model_type: architecture, keys, names before the common ones, what happens to a tensor
FAMILIES = {
    "arcee": ("arcee", arcee, {}, pairs_of_heads),
    "llama": ("llama", common, {}, pairs_of_heads),
    "qwen2": ("qwen2", common, {}, as_is),
    "gemma3_text": ("gemma3", gemma_embedding, GEMMA_NAMES, raised_norms),
    "cohere": ("command-r", cohere, {}, as_is),
    "cohere2": ("cohere2", cohere2, {}, as_is),
    "deepseek_v2": ("deepseek2", deepseek, LATENT_NAMES, halves_of_latents),
    "deepseek_v2_whole": ("deepseek2", deepseek_whole, LATENT_NAMES, as_is),
    "deepseek_v3": ("deepseek2", deepseek, LATENT_NAMES, halves_of_latents),
    "dots1": ("dots1", dots1, {}, as_is),
    "embeddinggemma": ("gemma-embedding", gemma_embedding, GEMMA_NAMES, raised_norms),
    "gemma": ("gemma", common, {}, raised_norms),
    "ernie4_5_moe": ("ernie4_5-moe", ernie_moe, {"mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias"}, flat_correction),
    "hunyuan_v1_moe": ("hunyuan-moe", hunyuan_moe, HUNYUAN_NAMES, as_is),
    "falcon_h1": ("falcon-h1", falcon_h1, FALCON_NAMES, falcon_parts),
    "granitemoehybrid": ("granitehybrid", granite_hybrid, GRANITE_NAMES, granite_parts),
    "qwen3_vl_text": ("qwen3vl", qwen3_vl, {}, as_is),
    "qwen2_5_vl_text": ("qwen2vl", qwen3_vl, {}, as_is),
    "qwen3_next": ("qwen3next", qwen3_next, NEXT_NAMES, next_parts),
    "nemotron_h": ("nemotron_h", nemotron_h, NEMOTRON_NAMES, mamba_parts("n_groups")),
    "nemotron_h_moe": ("nemotron_h_moe", nemotron_h, NEMOTRON_NAMES, mamba_parts("n_groups")),
    "gemma4_text": ("gemma4", gemma4, GEMMA4_NAMES, gemma4_parts),
    "gemma4_unified_text": ("gemma4", gemma4, GEMMA4_NAMES, gemma4_parts),
    "glm4_moe": ("glm4moe", glm4_moe, {"post_attention_layernorm": "post_attention_norm"}, as_is),
    "lfm2": ("lfm2", lfm2, LFM_NAMES, squeezed),
    "lfm2_moe": ("lfm2moe", lfm2, LFM_NAMES, squeezed),
    "minimax_m2": ("minimax-m2", minimax, MINIMAX_NAMES, as_is),
    "olmoe": ("olmoe", olmoe, {}, as_is),
    "afmoe": ("afmoe", afmoe, AFMOE_NAMES, as_is),
    "laguna": ("laguna", laguna, GATED_NAMES, as_is),
    "mimo_v2_flash": ("mimo2", mimo2, GATED_NAMES, as_is),
    "step3p5": ("step35", step35, GATED_NAMES, raised_norms),
    "phimoe": ("phimoe", phimoe, MINIMAX_NAMES, as_is),
    "apertus": ("apertus", apertus, APERTUS_NAMES, as_is),
    "cohere2_moe": ("cohere2moe", cohere2_moe, {}, as_is),
    "exaone_moe": ("exaone-moe", exaone_moe, {"mlp.e_score_correction_bias": "exp_probs_b.bias"}, as_is),
    "hy_v3": ("hy_v3", hy_v3, HY_NAMES, as_is),
    "kimi_linear": ("kimi-linear", kimi_linear, KIMI_NAMES, kimi_parts),
    "mistral4": ("mistral4", mistral4, {**LATENT_NAMES, **STACKED_NAMES}, halves_of_latents),
    "mistral": ("mistral3", mistral, {}, pairs_of_heads),
    "ministral3": ("mistral3", ministral3, {}, pairs_of_heads),
}


# ---- the file ----

def renamed(name, own):
    """The name of a tensor, and its expert."""
    name = name.removeprefix("language_model.").replace(".language_model.", ".").replace(".text_model.", ".")
    layer = re.fullmatch(r"(?:model|backbone)\.layers\.(\d+)\.(.*)", name)
    prefix, end = (f"blk.{layer[1]}.", layer[2]) if layer else ("", re.sub(r"^(model|backbone)\.", "", name))
    expert = re.search(r"\bexperts\.(\d+)\.", end)
    end = re.sub(r"\bexperts\.\d+\.", "experts.", end)
    names = {**NAMES, **own}
    if end in names:
        return prefix + names[end], expert and int(expert[1])
    stem, dot, kind = end.rpartition(".")
    return prefix + names[stem] + dot + kind, expert and int(expert[1])


def twin_of(config, tensors, kind=None):
    """Its architecture, keys and tensors; `kind` is a row of FAMILIES."""
    if not kind:
        kind = config["model_type"] + ("_moe" if "E" in config.get("hybrid_override_pattern", "") else "")
    arch, keys, own, change = FAMILIES[kind]
    plain, stacks = {}, {}
    for name, values in tensors.items():
        name, expert = renamed(name, own)
        if expert is None:
            plain[name] = values
        else:
            stacks.setdefault(name, {})[expert] = values
    for name, parts in stacks.items():
        plain[name] = stacked([parts[i] for i in range(len(parts))])
    changed = [change(config, name, values) for name, values in plain.items()]
    return arch, keys(config), {n: v for one in changed for n, v in (one.items() if isinstance(one, dict) else [one])}


VISION_NAMES = {
    "pos_embed": "v.position_embd", "blocks.#.norm1": "v.blk.#.ln1", "blocks.#.norm2": "v.blk.#.ln2", "blocks.#.attn.qkv": "v.blk.#.attn_qkv",
    "blocks.#.attn.proj": "v.blk.#.attn_out", "blocks.#.mlp.linear_fc1": "v.blk.#.ffn_up", "blocks.#.mlp.linear_fc2": "v.blk.#.ffn_down",
    "merger.norm": "v.post_ln", "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2", "patch_embed.proj": "v.patch_embd",
    "deepstack_merger_list.#.norm": "v.deepstack.#.norm", "deepstack_merger_list.#.linear_fc1": "v.deepstack.#.fc1",
    "deepstack_merger_list.#.linear_fc2": "v.deepstack.#.fc2",
}


WINDOW_NAMES = {
    **VISION_NAMES, **{f"blocks.#.mlp.{n}_proj": f"v.blk.#.ffn_{n}" for n in ("gate", "up", "down")}, "merger.ln_q": "v.post_ln",
    "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2",
}


def frames(values):
    """Filters of a patch, a tensor for each frame."""
    out, channels, count, height, width = values.shape
    runs = values.shaped(out * channels * count, height * width)
    return [runs.take(range(f, runs.shape[0], count)).shaped(out, channels, height, width) for f in range(count)]


def vision_of(config, tensors):
    """The file of the vision encoder: its architecture, keys and tensors."""
    c, found = config["vision_config"], {}
    deep = c.get("deepstack_visual_indexes", [])
    windows = "fullatt_block_indexes" in c
    keys = {"has_vision_encoder": True, "projector_type": "qwen2.5vl_merger" if windows else "qwen3vl_merger", "vision.block_count": c["depth"], "vision.embedding_length": c["hidden_size"],
            "vision.attention.head_count": c["num_heads"], "vision.feed_forward_length": c["intermediate_size"], "vision.patch_size": c["patch_size"],
            "vision.projection_dim": c["out_hidden_size"], "vision.spatial_merge_size": c["spatial_merge_size"],
            "vision.attention.layer_norm_epsilon": 1e-6, "vision.image_mean": [0.5] * 3, "vision.image_std": [0.5] * 3,
            "vision.is_deepstack_layers": [i in deep for i in range(c["depth"])]}
    if windows:
        keys.update({"use_silu": True, "vision.n_wa_pattern": c["fullatt_block_indexes"][0] + 1, "vision.window_size": c["window_size"],
                     "vision.image_mean": CLIP[0], "vision.image_std": CLIP[1]})
    for name, values in tensors.items():
        stem, dot, kind = name.removeprefix("model.").removeprefix("visual.").rpartition(".")
        number = re.search(r"(?<=\.)\d+", stem)
        names = WINDOW_NAMES if windows else VISION_NAMES
        to = names.get(stem) or names[re.sub(r"(?<=\.)\d+", "#", stem)]
        if number:
            to = to.replace("#", str(deep[int(number[0])] if "deepstack" in to else number[0]))
        if len(values.shape) == 5:
            found["v.patch_embd.weight"], found["v.patch_embd.weight.1"] = frames(values)
        elif windows and "qkv" in to:
            third = values.shape[0] // 3
            for i, one in enumerate("qkv"):
                found[to.replace("qkv", one) + dot + kind] = values.take(range(i * third, (i + 1) * third))
        else:
            found[to + dot + kind] = values
    return "clip", keys, found


SIGLIP_NAMES = {
    "embeddings.patch_embedding": "v.patch_embd", "embeddings.position_embedding": "v.position_embd",
    "encoder.layers.#.layer_norm1": "v.blk.#.ln1", "encoder.layers.#.layer_norm2": "v.blk.#.ln2",
    **{f"encoder.layers.#.self_attn.{n}_proj": f"v.blk.#.attn_{to}" for n, to in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "out"))},
    "encoder.layers.#.mlp.fc1": "v.blk.#.ffn_up", "encoder.layers.#.mlp.fc2": "v.blk.#.ffn_down", "post_layernorm": "v.post_ln",
    "mm_soft_emb_norm": "mm.soft_emb_norm", "modality_projection.proj": "mm.model.fc",
}
INTERN_NAMES = {
    "embeddings.patch_embeddings.projection": "v.patch_embd", "encoder.layer.#.layernorm_before": "v.blk.#.ln1",
    "encoder.layer.#.layernorm_after": "v.blk.#.ln2", **{f"encoder.layer.#.attention.{n}_proj": f"v.blk.#.attn_{n}" for n in "qkv"},
    "encoder.layer.#.attention.projection_layer": "v.blk.#.attn_out", "encoder.layer.#.mlp.fc1": "v.blk.#.ffn_up",
    "encoder.layer.#.mlp.fc2": "v.blk.#.ffn_down", "layer_norm": "mm.model.mlp.0", "linear_1": "mm.model.mlp.1", "linear_2": "mm.model.mlp.3",
}
PIXTRAL_NAMES = {
    "patch_conv": "v.patch_embd", "ln_pre": "v.pre_ln", "transformer.layers.#.attention_norm": "v.blk.#.ln1", "transformer.layers.#.ffn_norm": "v.blk.#.ln2",
    **{f"transformer.layers.#.attention.{n}_proj": f"v.blk.#.attn_{to}" for n, to in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out"))},
    **{f"transformer.layers.#.feed_forward.{n}_proj": f"v.blk.#.ffn_{n}" for n in ("gate", "up", "down")},
    "norm": "mm.input_norm", "patch_merger.merging_layer": "mm.patch_merger", "linear_1": "mm.1", "linear_2": "mm.2",
}
CLIP = [[0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]]
# Whole names, of tensors without a module.
BARE_NAMES = {
    "mm_input_projection_weight": "mm.input_projection.weight", "embeddings.cls_token": "v.class_embd",
    "embeddings.position_embeddings": "v.position_embd.weight", "encoder.layer.#.lambda_1": "v.blk.#.ls1.weight",
    "encoder.layer.#.lambda_2": "v.blk.#.ls2.weight",
}
# By model_type of config.json: projector, names, and keys of the file.
ENCODERS = {
    "gemma3": ("gemma3", SIGLIP_NAMES, lambda c, p: {"vision.projector.scale_factor": 2}),
    "smolvlm": ("idefics3", SIGLIP_NAMES, lambda c, p: {"vision.projector.scale_factor": c["scale_factor"],
                                                        "vision.preproc_image_size": p["size"]["longest_edge"]}),
    "internvl": ("internvl", INTERN_NAMES, lambda c, p: {"vision.projector.scale_factor": 2, "vision.preproc_max_tiles": 12}),
    "mistral3": ("pixtral", PIXTRAL_NAMES, lambda c, p: {"vision.spatial_merge_size": c["spatial_merge_size"], "vision.image_mean": CLIP[0],
                                                         "vision.image_std": CLIP[1]}),
}


def encoder_of(config, preprocessor, tensors):
    """The file of an encoder other than Qwen's: its architecture, keys and tensors."""
    projector, names, more = ENCODERS[config["model_type"]]
    c, found = config["vision_config"], {}
    edge, patch = (v[0] if isinstance(v, list) else v for v in (c["image_size"], c["patch_size"]))
    mean, std = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]) if projector == "internvl" else ([0.5] * 3, [0.5] * 3)
    keys = {"has_vision_encoder": True, "projector_type": projector, "vision.block_count": c["num_hidden_layers"],
            "vision.embedding_length": c["hidden_size"], "vision.attention.head_count": c["num_attention_heads"],
            "vision.feed_forward_length": c["intermediate_size"], "vision.patch_size": patch, "vision.image_size": edge,
            "vision.projection_dim": config["text_config"]["hidden_size"], "vision.attention.layer_norm_epsilon": c.get("layer_norm_eps", 1e-5),
            "vision.image_mean": mean, "vision.image_std": std, **more(config, preprocessor)}
    keys.setdefault("use_silu" if c["hidden_act"] == "silu" else "use_gelu", True)
    for name, values in tensors.items():
        stem = re.sub(r"^(model\.)?(vision_tower|vision_model|multi_modal_projector|connector)\.", "", name)
        number = re.search(r"(?<=\.)\d+", stem)
        stem = re.sub(r"(?<=\.)\d+", "#", stem, count=1)
        module, dot, kind = stem.rpartition(".")
        to = BARE_NAMES[stem] if stem in BARE_NAMES else names[module] + dot + kind
        if "soft_emb_norm" in to:
            values = values.mapped(lambda x: x + 1)
        if projector == "pixtral" and re.search("attn_[qk]", to):
            values = paired(values, c["num_attention_heads"])
        found[to.replace("#", number[0]) if number else to] = values
    return "clip", keys, found


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    """A value with its type: an integer is a u32, and an i32 in a list."""
    if isinstance(v, list) and isinstance(v[0], str):
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(text, v))
    if isinstance(v, list):
        kind = {bool: (7, "?"), int: (5, "i"), float: (6, "f")}[type(v[0])]
        return struct.pack(f"<IIQ{len(v)}{kind[1]}", 9, kind[0], len(v), *v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    kind = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}[type(v)]
    return struct.pack("<I" + kind[1], kind[0], v)


def write(path, arch, keys, tensors, tokens=None):
    pairs = [text("general.architecture") + value(arch),
             *(text(k if k.startswith("xielu.") else f"{arch}.{k}") + value(v) for k, v in keys.items())]
    pairs += [text("tokenizer.ggml.tokens") + value(tokens)] if tokens else []
    table, data = b"", b""
    for name, t in tensors.items():
        table += text(name) + struct.pack(f"<I{len(t.shape)}QIQ", len(t.shape), *t.shape[::-1], 0, len(data))
        raw = t.numbers.tobytes()
        data += raw + bytes(-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + table
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_safetensors(folder, config, tensors):
    """The checkpoint itself, in float32."""
    table, at = {}, 0
    for name, t in tensors.items():
        size = 4 * len(t.numbers)
        table[name] = {"dtype": "F32", "shape": t.shape, "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(table).encode()
    data = b"".join(t.numbers.tobytes() for t in tensors.values())
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    (folder / "config.json").write_text(json.dumps(config))


def make(folder, path):
    write(path, *twin_of(*read(folder)))
