"""A GGUF file of made-up weights, with the shapes of a checkpoint that mkmodel wrote.

Matrices and the embedding are BF16, Q8_0 or Q4_0, vectors F32. One random MiB repeats: speed does not depend
on values. The file has tensors and metadata for llama.cpp's `qwen3`, `qwen35` and `qwen35moe`, and a
vocabulary without meaning."""

import array
import json
import math
import pathlib
import random
import struct

ALIGNMENT = 32
PIECE = 1 << 20

# name: (type of the tensor, values of a block, bytes of a block, value of `general.file_type`)
FORMS = {"f32": (0, 1, 4, 0), "q4_0": (2, 32, 18, 2), "q8_0": (8, 32, 34, 7), "bf16": (30, 1, 2, 32)}
ARCHITECTURES = {"qwen3": "qwen3", "qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe"}


# ---- content of a file ----


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


class Metadata:
    """Keys with values, in the file's own bytes."""

    def __init__(self):
        self.entries = []

    def add(self, key, kind, value):
        self.entries.append(text(key) + struct.pack("<I", kind) + value)

    def number(self, key, value):
        if isinstance(value, float):
            self.add(key, 6, struct.pack("<f", value))
        else:
            self.add(key, 4, struct.pack("<I", value))

    def text(self, key, value):
        self.add(key, 8, text(value))

    def texts(self, key, values):
        self.add(key, 9, struct.pack("<IQ", 8, len(values)) + b"".join(map(text, values)))

    def integers(self, key, values):
        self.add(key, 9, struct.pack("<IQ", 5, len(values)) + array.array("i", values).tobytes())


def metadata(c, arch, name, form):
    m = Metadata()
    m.text("general.architecture", arch)
    m.text("general.name", name)
    m.number("general.file_type", FORMS[form][3])
    keys = {
        "block_count": c["num_hidden_layers"],
        "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"],
        "feed_forward_length": c.get("intermediate_size") or c["moe_intermediate_size"],
        "attention.head_count": c["num_attention_heads"],
        "attention.head_count_kv": c["num_key_value_heads"],
        "attention.key_length": c["head_dim"],
        "attention.value_length": c["head_dim"],
        "attention.layer_norm_rms_epsilon": float(c["rms_norm_eps"]),
        "rope.freq_base": float(c["rope_parameters"]["rope_theta"]),
    }
    if "linear_num_value_heads" in c:
        rotary = int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"])
        keys |= {
            "rope.dimension_count": rotary,
            "ssm.conv_kernel": c["linear_conv_kernel_dim"],
            "ssm.inner_size": c["linear_num_value_heads"] * c["linear_value_head_dim"],
            "ssm.state_size": c["linear_key_head_dim"],
            "ssm.time_step_rank": c["linear_num_value_heads"],
            "ssm.group_count": c["linear_num_key_heads"],
            "full_attention_interval": c["full_attention_interval"],
        }
        # Text has one position in each section: how the pairs are divided changes nothing.
        third = rotary // 2 // 3
        m.integers(f"{arch}.rope.dimension_sections", [rotary // 2 - 2 * third, third, third, 0])
    if "num_experts" in c:
        keys |= {
            "expert_count": c["num_experts"],
            "expert_used_count": c["num_experts_per_tok"],
            "expert_feed_forward_length": c["moe_intermediate_size"],
            "expert_shared_feed_forward_length": c["shared_expert_intermediate_size"],
        }
    for key, value in keys.items():
        m.number(f"{arch}.{key}", value)
    vocabulary(m, c["vocab_size"])
    return m


def vocabulary(m, count):
    m.text("tokenizer.ggml.model", "gpt2")
    m.text("tokenizer.ggml.pre", "qwen2")
    m.texts("tokenizer.ggml.tokens", [chr(i) if 33 <= i < 127 else f"t{i}" for i in range(count)])
    m.integers("tokenizer.ggml.token_type", [1] * count)
    m.texts("tokenizer.ggml.merges", ["t 1"])
    m.number("tokenizer.ggml.bos_token_id", count - 2)
    m.number("tokenizer.ggml.eos_token_id", count - 1)


def tensors(c, form):
    """[(name, sizes with the fastest first, form)] of all layers."""
    hidden, out = c["hidden_size"], []

    def matrix(name, width, rows, *experts):
        out.append((f"{name}.weight", (width, rows, *experts), form))

    def vector(name, *sizes):
        out.append((name, sizes, "f32"))

    matrix("token_embd", hidden, c["vocab_size"])
    vector("output_norm.weight", hidden)
    if not c["tie_word_embeddings"]:
        matrix("output", hidden, c["vocab_size"])
    kinds = c.get("layer_types") or ["full_attention"] * c["num_hidden_layers"]
    for i, kind in enumerate(kinds):
        at = f"blk.{i}."
        hybrid = "layer_types" in c
        vector(at + "attn_norm.weight", hidden)
        vector(at + ("post_attention_norm.weight" if hybrid else "ffn_norm.weight"), hidden)
        (attention if kind == "full_attention" else delta_net)(c, at, matrix, vector, hybrid)
        (experts if "num_experts" in c else mlp)(c, at, matrix, vector)
    return out


def attention(c, at, matrix, vector, gated):
    hidden, size = c["hidden_size"], c["head_dim"]
    width = c["num_attention_heads"] * size
    matrix(at + "attn_q", hidden, width * (2 if gated else 1))
    for name in ("attn_k", "attn_v"):
        matrix(at + name, hidden, c["num_key_value_heads"] * size)
    matrix(at + "attn_output", width, hidden)
    vector(at + "attn_q_norm.weight", size)
    vector(at + "attn_k_norm.weight", size)


def delta_net(c, at, matrix, vector, _):
    hidden, heads = c["hidden_size"], c["linear_num_value_heads"]
    keys, values = c["linear_num_key_heads"] * c["linear_key_head_dim"], heads * c["linear_value_head_dim"]
    matrix(at + "attn_qkv", hidden, 2 * keys + values)
    matrix(at + "attn_gate", hidden, values)
    matrix(at + "ssm_out", values, hidden)
    matrix(at + "ssm_beta", hidden, heads)
    matrix(at + "ssm_alpha", hidden, heads)
    vector(at + "ssm_conv1d.weight", c["linear_conv_kernel_dim"], 2 * keys + values)
    vector(at + "ssm_dt.bias", heads)
    vector(at + "ssm_a", heads)
    vector(at + "ssm_norm.weight", c["linear_value_head_dim"])


def mlp(c, at, matrix, _):
    hidden, width = c["hidden_size"], c["intermediate_size"]
    matrix(at + "ffn_gate", hidden, width)
    matrix(at + "ffn_up", hidden, width)
    matrix(at + "ffn_down", width, hidden)


def experts(c, at, matrix, vector):
    hidden, count = c["hidden_size"], c["num_experts"]
    vector(at + "ffn_gate_inp.weight", hidden, count)
    vector(at + "ffn_gate_inp_shexp.weight", hidden)
    for suffix, width, stack in (
        ("_exps", c["moe_intermediate_size"], (count,)),
        ("_shexp", c["shared_expert_intermediate_size"], ()),
    ):
        matrix(at + "ffn_gate" + suffix, hidden, width, *stack)
        matrix(at + "ffn_up" + suffix, hidden, width, *stack)
        matrix(at + "ffn_down" + suffix, width, hidden, *stack)


# ---- bytes ----


def bytes_of(sizes, form):
    _, block, size, _ = FORMS[form]
    assert sizes[0] % block == 0, (sizes, form)
    return math.prod(sizes) // block * size


def piece(form, rng):
    """About a MiB of whole blocks. Values are near 0.02."""
    size = FORMS[form][2]
    data = bytearray(rng.randbytes(PIECE // size * size))
    if form == "bf16":
        data[1::2] = bytes(b & 0x80 | 0x3C for b in data[1::2])
    else:
        scale = struct.pack("<e", 0.02 / (64 if form == "q8_0" else 4))
        for i in range(0, len(data), size):
            data[i : i + 2] = scale
    return bytes(data)


def vector_value(name):
    return -1.0 if name.endswith("ssm_a") else 1.0 if "norm" in name else 0.01


def write_repeated(out, data, count):
    for _ in range(count // len(data)):
        out.write(data)
    out.write(data[: count % len(data)])


def write(path, checkpoint, form):
    """Writes the file beside its place and renames it: a file that is there is whole."""
    config = json.loads((pathlib.Path(checkpoint) / "config.json").read_text())
    arch = ARCHITECTURES[config["model_type"]]
    c = config.get("text_config") or config
    m, all_tensors = metadata(c, arch, pathlib.Path(checkpoint).name, form), tensors(c, form)
    table, at = [], 0
    for name, sizes, kind in all_tensors:
        table.append(text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, FORMS[kind][0], at))
        at += -(-bytes_of(sizes, kind) // ALIGNMENT) * ALIGNMENT
    blocks = piece(form, random.Random(1))
    part = path.with_suffix(".part")
    with open(part, "wb", buffering=1 << 22) as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(table), len(m.entries)))
        out.write(b"".join(m.entries) + b"".join(table))
        out.write(bytes(-out.tell() % ALIGNMENT))
        for name, sizes, kind in all_tensors:
            count = bytes_of(sizes, kind)
            write_repeated(out, struct.pack("<f", vector_value(name)) * 1024 if kind == "f32" else blocks, count)
            out.write(bytes(-count % ALIGNMENT))
    part.rename(path)
