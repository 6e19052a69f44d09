"""GGUF twins of checkpoints: names, keys and the order of values as llama.cpp's converter writes them."""
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
LFM_NAMES = {
    "embedding_norm": "token_embd_norm", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    "feed_forward.gate": "ffn_gate_inp", "feed_forward.expert_bias": "exp_probs_b.bias", "feed_forward.experts.w1": "ffn_gate_exps",
    "feed_forward.experts.w3": "ffn_up_exps", "feed_forward.experts.w2": "ffn_down_exps",
}
MINIMAX_NAMES = {
    "block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias",
    "block_sparse_moe.experts.w1": "ffn_gate_exps", "block_sparse_moe.experts.w3": "ffn_up_exps", "block_sparse_moe.experts.w2": "ffn_down_exps",
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
            "rope.scaling.yarn_beta_fast": r["beta_fast"], "rope.scaling.yarn_beta_slow": r["beta_slow"]}


def cohere2(c):
    # llama.cpp takes 4 for the interval, which no key says.
    return {**common(c), "attention.layer_norm_epsilon": c["layer_norm_eps"], "logit_scale": c["logit_scale"],
            "attention.sliding_window": c["sliding_window"], "attention.sliding_window_pattern": c["sliding_window_pattern"],
            "rope.dimension_count": c["head_dim"], "rope.scaling.type": "none"}


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


def minimax(c):
    return {**common(c), **experts(c, "num_local_experts", "intermediate_size"), "rope.dimension_count": c["rotary_dim"]}


def ministral3(c):
    r = c["rope_parameters"]
    return {**common(c), **yarn(c), "rope.dimension_count": c["head_dim"], "rope.scaling.yarn_log_multiplier": r["mscale_all_dim"],
            "attention.temperature_scale": r["llama_4_scaling_beta"]}


def pairs_of_heads(c, name, values):
    heads = {"attn_q": c["num_attention_heads"], "attn_k": c["num_key_value_heads"]}.get(name.split(".")[2] if name.startswith("blk") else "")
    return name, paired(values, heads) if heads else values


def squeezed(c, name, values):
    return name, values.shaped(values.shape[0], values.shape[2]) if "conv" in name and len(values.shape) == 3 else values


def as_is(c, name, values):
    return name, values


# model_type: architecture, keys, names before the common ones, what happens to a tensor
FAMILIES = {
    "cohere2": ("cohere2", cohere2, {}, as_is),
    "glm4_moe": ("glm4moe", glm4_moe, {"post_attention_layernorm": "post_attention_norm"}, as_is),
    "lfm2": ("lfm2", lfm2, LFM_NAMES, squeezed),
    "lfm2_moe": ("lfm2moe", lfm2, LFM_NAMES, squeezed),
    "minimax_m2": ("minimax-m2", minimax, MINIMAX_NAMES, as_is),
    "ministral3": ("mistral3", ministral3, {}, pairs_of_heads),
}


# ---- the file ----

def renamed(name, own):
    """The name of a tensor, and its expert."""
    layer = re.fullmatch(r"(?:model|backbone)\.layers\.(\d+)\.(.*)", name)
    prefix, end = (f"blk.{layer[1]}.", layer[2]) if layer else ("", re.sub(r"^(model|backbone)\.", "", name))
    expert = re.search(r"\bexperts\.(\d+)\.", end)
    end = re.sub(r"\bexperts\.\d+\.", "experts.", end)
    names = {**NAMES, **own}
    if end in names:
        return prefix + names[end], expert and int(expert[1])
    stem, dot, kind = end.rpartition(".")
    return prefix + names[stem] + dot + kind, expert and int(expert[1])


def twin_of(config, tensors):
    """Its architecture, keys and tensors."""
    arch, keys, own, change = FAMILIES[config["model_type"]]
    plain, stacks = {}, {}
    for name, values in tensors.items():
        name, expert = renamed(name, own)
        if expert is None:
            plain[name] = values
        else:
            stacks.setdefault(name, {})[expert] = values
    for name, parts in stacks.items():
        plain[name] = stacked([parts[i] for i in range(len(parts))])
    return arch, keys(config), dict(change(config, name, values) for name, values in plain.items())


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(v):
    """A value with its type: an integer is a u32, and an i32 in a list."""
    if isinstance(v, list):
        kind = {bool: (7, "?"), int: (5, "i"), float: (6, "f")}[type(v[0])]
        return struct.pack(f"<IIQ{len(v)}{kind[1]}", 9, kind[0], len(v), *v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    kind = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}[type(v)]
    return struct.pack("<I" + kind[1], kind[0], v)


def write(path, arch, keys, tensors):
    pairs = [text("general.architecture") + value(arch), *(text(f"{arch}.{k}") + value(v) for k, v in keys.items())]
    table, data = b"", b""
    for name, t in tensors.items():
        table += text(name) + struct.pack(f"<I{len(t.shape)}QIQ", len(t.shape), *t.shape[::-1], 0, len(data))
        raw = t.numbers.tobytes()
        data += raw + bytes(-len(raw) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + table
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def make(folder, path):
    write(path, *twin_of(*read(folder)))
