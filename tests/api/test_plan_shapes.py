"""Plans of checkpoints in their released shapes: headers alone, in files that take no room on disk."""
import json
import struct

import pytest

from test_generate import run

# The numbers of DeepSeek V3's own config.json.
V3 = {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
      "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256, "num_experts_per_tok": 8,
      "moe_layer_freq": 1, "routed_scaling_factor": 2.5, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "qk_nope_head_dim": 128, "topk_method": "noaux_tc", "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "norm_topk_prob": True,
      "scoring_func": "sigmoid", "max_position_embeddings": 163840, "vocab_size": 129280, "rms_norm_eps": 1e-6, "rope_theta": 10000,
      "tie_word_embeddings": False, "hidden_act": "silu",
      "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
                       "original_max_position_embeddings": 4096}}


def mlp(name, width, hidden):
    return {f"{name}.gate_proj": [width, hidden], f"{name}.up_proj": [width, hidden], f"{name}.down_proj": [hidden, width]}


def v3_shapes(c):
    h, heads, latent = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    yield from {"model.embed_tokens": [c["vocab_size"], h], "lm_head": [c["vocab_size"], h], "model.norm": [h]}.items()
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        parts = {"input_layernorm": [h], "post_attention_layernorm": [h],
                 "self_attn.q_a_proj": [c["q_lora_rank"], h], "self_attn.q_a_layernorm": [c["q_lora_rank"]],
                 "self_attn.q_b_proj": [heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]), c["q_lora_rank"]],
                 "self_attn.kv_a_proj_with_mqa": [latent + c["qk_rope_head_dim"], h], "self_attn.kv_a_layernorm": [latent],
                 "self_attn.kv_b_proj": [heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), latent],
                 "self_attn.o_proj": [h, heads * c["v_head_dim"]]}
        if i < c["first_k_dense_replace"]:
            parts |= mlp("mlp", c["intermediate_size"], h)
        else:
            parts |= {"mlp.gate": [c["n_routed_experts"], h]} | mlp("mlp.shared_experts", c["moe_intermediate_size"], h)
            for e in range(c["n_routed_experts"]):
                parts |= mlp(f"mlp.experts.{e}", c["moe_intermediate_size"], h)
            yield f"{layer}.mlp.gate.e_score_correction_bias", [c["n_routed_experts"]]
        yield from ((f"{layer}.{name}", shape) for name, shape in parts.items())


def write(folder, config, shapes):
    """BF16 in several files; the values are holes."""
    (folder / "config.json").write_text(json.dumps(config))
    tensors = [(name if name.endswith("bias") else name + ".weight", shape) for name, shape in shapes]
    count = -(-len(tensors) // 6000)
    where = {}
    for n in range(count):
        header, at, name = {}, 0, f"model-{n + 1:05}-of-{count:05}.safetensors"
        for tensor, shape in tensors[n * 6000:(n + 1) * 6000]:
            size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
            where[tensor], at = name, at + size
        text = json.dumps(header).encode()
        with open(folder / name, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.truncate(8 + len(text) + at)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def test_latent_attention_keeps_576_numbers_of_a_token_in_each_layer(tmp_path):
    try:
        write(tmp_path, V3, v3_shapes(V3))
    except OSError as e:
        pytest.skip(f"no files of this size here: {e}")
    got = run("plan", "--max-model-len", "4096", str(tmp_path))
    # In BF16 it has 1.2 TiB, which fits into few machines. The plan is printed in any case.
    assert got.returncode == 0 or "it needs at least 1.2 TiB" in got.stderr, got.stderr
    assert "deepseek_v3, BF16, 6.71e+05 million parameters, 61 layers, context 4096 of 163840 tokens" in got.stdout
    assert f", {61 * 576 * 4} bytes a token: 61 layers with 1 KV heads of 576 whose values are the first 512," in got.stdout
    assert f"a request of the whole context {4096 * 61 * 576 * 4 / 2**20:.1f} MiB of pages" in got.stdout
