"""Small GGUF models that are served: random weights of the architecture qwen3, whole or in parts."""
import array
import random
import struct

HIDDEN, HEADS, KV_HEADS, HEAD, FEED, LAYERS, VOCAB = 32, 2, 1, 16, 64, 2, 300
F32, STRING, U16, U32, I32, FLOAT, LIST = 0, 8, 2, 4, 5, 6, 9


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def strings(key, values):
    return pair(key, LIST, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def metadata(words):
    arch = "qwen3"
    numbers = {"block_count": LAYERS, "context_length": 512, "embedding_length": HIDDEN, "feed_forward_length": FEED, "attention.head_count": HEADS,
               "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD, "attention.value_length": HEAD}
    tokens = [chr(i) if 33 <= i < 127 else f"t{i}" for i in range(VOCAB + words)]
    pairs = [pair("general.architecture", STRING, text(arch)), *[pair(f"{arch}.{k}", U32, struct.pack("<I", v)) for k, v in numbers.items()],
             pair(f"{arch}.attention.layer_norm_rms_epsilon", FLOAT, struct.pack("<f", 1e-6)), pair(f"{arch}.rope.freq_base", FLOAT, struct.pack("<f", 1e4)),
             pair("tokenizer.ggml.model", STRING, text("gpt2")), pair("tokenizer.ggml.pre", STRING, text("qwen2")), strings("tokenizer.ggml.tokens", tokens),
             pair("tokenizer.ggml.token_type", LIST, struct.pack("<IQ", I32, len(tokens)) + array.array("i", [1] * len(tokens)).tobytes()),
             strings("tokenizer.ggml.merges", ["t 1"]), pair("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", VOCAB - 1))]
    return pairs


def shapes(words):
    """Names and dimensions, the innermost first."""
    found = [("token_embd.weight", [HIDDEN, VOCAB + words]), ("output_norm.weight", [HIDDEN])]
    for i in range(LAYERS):
        found += [(f"blk.{i}.{name}.weight", dims) for name, dims in [
            ("attn_norm", [HIDDEN]), ("ffn_norm", [HIDDEN]), ("attn_q", [HIDDEN, HEADS * HEAD]), ("attn_k", [HIDDEN, KV_HEADS * HEAD]),
            ("attn_v", [HIDDEN, KV_HEADS * HEAD]), ("attn_output", [HEADS * HEAD, HIDDEN]), ("attn_q_norm", [HEAD]), ("attn_k_norm", [HEAD]),
            ("ffn_gate", [HIDDEN, FEED]), ("ffn_up", [HIDDEN, FEED]), ("ffn_down", [FEED, HIDDEN])]]
    return found


def write(pairs, tensors):
    table, data, at = b"", b"", 0
    for name, dims, values in tensors:
        table += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", F32, at)
        data += values + b"\0" * (-len(values) % 32)
        at = len(data)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + table
    return head + b"\0" * (-len(head) % 32) + data


def gguf(seed=1, parts=1, words=0):
    """The bytes of each part. words: further tokens, which make the head longer."""
    draw = random.Random(seed)
    tensors = []
    for name, dims in shapes(words):
        count = 1
        for d in dims:
            count *= d
        values = [1.0] * count if len(dims) == 1 else [draw.gauss(0, 0.2) for _ in range(count)]
        tensors.append((name, dims, array.array("f", values).tobytes()))
    if parts == 1:
        return [write(metadata(words), tensors)]
    each = -(-len(tensors) // parts)
    made = []
    for i in range(parts):
        split = [pair("split.no", U16, struct.pack("<H", i)), pair("split.count", U16, struct.pack("<H", parts)),
                 pair("split.tensors.count", I32, struct.pack("<i", len(tensors)))]
        made.append(write((metadata(words) if i == 0 else []) + split, tensors[i * each:(i + 1) * each]))
    return made


def files(names, seed=1):
    """NAME to bytes: each of `names` is a model of its own, NAME:3 one of three parts."""
    found = {}
    for at, name in enumerate(names):
        stem, _, parts = name.partition(":")
        made = gguf(seed + at, int(parts or 1))
        for i, data in enumerate(made):
            found[f"{stem}-{i + 1:05}-of-{len(made):05}.gguf" if parts else f"{stem}.gguf"] = data
    return found
