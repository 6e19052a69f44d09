"""A checkpoint and its GGUF twin give the same bits, for each architecture."""
import array
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess

import gguf_twin
import pytest

TOP = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("PLATEAU_PROGRAM", str(TOP / "build/plateau"))).parent
DATA = TOP / "tests/golden/data"
BESIDE = TOP / "../shared/golden"  # goldens that are too large for the project


def holds(folder, tmp_path):
    gguf_twin.make(folder, tmp_path / "model.gguf")
    shutil.copy(folder / "golden.json", tmp_path)
    ran = subprocess.run([BUILD / "golden", "--compute", "f32", tmp_path], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def logits_of(config, tensors, tmp_path, kind=None, change=lambda *twin: twin):
    """The hash and the logits of the checkpoint and of its twin."""
    plain, twin = tmp_path / "plain", tmp_path / "twin"
    plain.mkdir()
    twin.mkdir()
    gguf_twin.write_safetensors(plain, config, tensors)
    gguf_twin.write(twin / "model.gguf", *change(*gguf_twin.twin_of(config, tensors, kind)))
    ran = subprocess.run([BUILD / "tests/api/model_logits", plain, twin], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and "refused" not in ran.stdout, ran.stdout + ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines()]
    assert len(lines) == 2, ran.stdout + ran.stderr
    return [(line[0], [float(x) for x in line[1:]]) for line in lines]


def same(config, tensors, tmp_path, kind=None, **more):
    plain, twin = logits_of(config, tensors, tmp_path, kind, **more)
    assert plain == twin


def of_layers(name, layers):
    """The name of a tensor in a model of these layers; empty: a tensor of another layer."""
    found = re.search(r"layers\.(\d+)\.", name)
    if not found:
        return name
    layer = int(found[1])
    return re.sub(r"layers\.\d+", f"layers.{layers.index(layer)}", name) if layer in layers else ""


@pytest.mark.parametrize("name", ["arcee", "cohere", "cohere2", "gemma4", "gemma4_unified", "lfm2", "lfm2_moe", "minimax_m2", "ministral3", "olmoe",
                                  "exaone_moe", "hy_v3", "kimi_linear"])
def test_a_twin_is_the_checkpoint(name, tmp_path):
    holds(DATA / name, tmp_path)
    same(*gguf_twin.read(DATA / name), tmp_path)


def test_afmoe(tmp_path):
    """A file does not say which layers have windows, and means all but each fourth."""
    config, tensors = gguf_twin.read(DATA / "afmoe")
    config["layer_types"] = ["sliding_attention"] * 3 + ["full_attention"]
    same({k: v for k, v in config.items() if k != "global_attn_every_n_layers"}, tensors, tmp_path)


@pytest.mark.parametrize("name", ["laguna", "laguna_values", "mimo_v2_flash", "step3p5"])
def test_layers_with_a_window_have_other_heads_and_rotations(name, tmp_path):
    """A file of mimo2 has no groups of experts."""
    config, tensors = gguf_twin.read(DATA / name)
    same({**config, "n_group": 1, "topk_group": 1} if name == "mimo_v2_flash" else config, tensors, tmp_path)


def test_laguna_without_a_list_of_windows(tmp_path):
    """A file without one means that each fourth layer has none, from the first."""
    config, tensors = gguf_twin.read(DATA / "laguna")
    config["layer_types"] = ["full_attention", *["sliding_attention"] * 2]

    def without(arch, keys, found):
        return arch, {k: v for k, v in keys.items() if "pattern" not in k}, found
    same(config, tensors, tmp_path, change=without)


def test_step3p5_with_frequencies_of_llama3(tmp_path):
    """A file has factors for a whole head, of which layers without a window rotate a half."""
    config, tensors = gguf_twin.read(DATA / "step3p5")

    def scaled(arch, keys, found):
        return arch, keys, found | {"rope_freqs.weight": gguf_twin.Values([4], array.array("f", [1, 2, 1, 1]))}
    (_, plain), (_, twin) = logits_of(config, tensors, tmp_path, change=scaled)
    assert plain != twin and max(abs(x - y) for x, y in zip(plain, twin)) < 5


@pytest.mark.parametrize("list_of, counts, says", [
    ("attention.head_count", [4, 4, 6], "6 of layer 2 is not supported beside 4 of layers of its kind"),
    ("attention.head_count", [0, 4, 4], "attention.head_count: layer 0 has no heads"),
    ("attention.head_count_kv", [2, 4, 4], "4 in layers with a window is not supported beside 2; 2 is")])
def test_heads_that_differ_in_layers_of_one_kind_are_refused(list_of, counts, says, tmp_path):
    arch, keys, found = gguf_twin.twin_of(*gguf_twin.read(DATA / "step3p5"))
    keys[list_of] = counts
    gguf_twin.write(tmp_path / "model.gguf", arch, keys, found)
    ran = subprocess.run([BUILD / "tests/api/model_logits", tmp_path], capture_output=True, text=True, timeout=120)
    assert says in ran.stdout + ran.stderr


def test_phimoe(tmp_path):
    """A file has no factor of longrope's scores: all files have one."""
    config, tensors = gguf_twin.read(DATA / "phimoe")
    rope = config["rope_parameters"]
    rope["short_mscale"] = rope["long_mscale"] = 1.243163121016122
    config["router_jitter_noise"] = 0.01

    def factors(arch, keys, found):
        lists = {f"rope_factors_{n}.weight": gguf_twin.Values([2], array.array("f", rope[f"{n}_factor"])) for n in ("short", "long")}
        return arch, keys, found | lists
    same(config, tensors, tmp_path, change=factors)


def test_cohere2_moe(tmp_path):
    """A file means the mean of shared and chosen experts, which a sigmoid chooses."""
    config, tensors = gguf_twin.read(DATA / "cohere2_moe_sum")
    del config["shared_expert_combination_strategy"]
    same(config, tensors, tmp_path)


def test_mistral4(tmp_path):
    """A file has one number for mscale and mscale_all_dim."""
    config, tensors = gguf_twin.read(DATA / "mistral4")
    config["rope_parameters"]["mscale"] = config["rope_parameters"]["mscale_all_dim"]
    same(config, tensors, tmp_path)


@pytest.mark.parametrize("eps", [-1e-6, -0.5])
def test_apertus(eps, tmp_path):
    """Numbers of xIELU are metadata of the file."""
    config, tensors = gguf_twin.read(DATA / "apertus")
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 5000.0}
    layers, keys = range(config["num_hidden_layers"]), {"alpha_p": "alpha_p", "alpha_n": "alpha_n", "beta": "beta"}
    number = {k: [tensors[f"model.layers.{i}.mlp.act_fn.{k}"].numbers[0] for i in layers] for k in keys}
    config["xielu"] = {f"xielu.{k}": v for k, v in number.items()} | {"xielu.eps": [eps] * len(layers)}
    found = {n: v for n, v in tensors.items() if "act_fn" not in n}
    plain, twin = tmp_path / "plain", tmp_path / "twin"
    plain.mkdir()
    twin.mkdir()
    gguf_twin.write_safetensors(plain, {k: v for k, v in config.items() if k != "xielu"}, tensors)
    gguf_twin.write(twin / "model.gguf", *gguf_twin.twin_of(config, found))
    ran = subprocess.run([BUILD / "tests/api/model_logits", plain, twin], capture_output=True, text=True, timeout=120)
    lines = ran.stdout.splitlines()
    if eps < -0.1:
        assert "eps -0.5 of layer 0's xIELU is not supported: about 0 is" in ran.stdout + ran.stderr
    else:
        assert len(lines) == 2 and lines[0] == lines[1], ran.stdout + ran.stderr


@pytest.mark.parametrize("whole", [False, True])
def test_deepseek_v2(whole, tmp_path):
    """A file has one number for mscale and mscale_all_dim. Old files have one matrix of keys and values."""
    config, tensors = gguf_twin.read(DATA / "deepseek_v2")
    config["rope_parameters"]["mscale"] = config["rope_parameters"]["mscale_all_dim"]
    same(config, tensors, tmp_path, "deepseek_v2_whole" if whole else None)


def pair(folder, tmp_path, change=lambda keys: keys):
    """Writes the twin of a model that sees: two files."""
    config, tensors = gguf_twin.read(folder)
    words = [f"t{i}" for i in range(config["text_config"]["vocab_size"])]
    for key, word in {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>", "vision_start_token_id": "<|vision_start|>",
                      "vision_end_token_id": "<|vision_end|>"}.items():
        words[config[key]] = word
    sees = {name: values for name, values in tensors.items() if "visual." in name}
    model = tmp_path / "model"
    model.mkdir()
    gguf_twin.write(model / "tiny.gguf", *gguf_twin.twin_of(config["text_config"], {n: v for n, v in tensors.items() if n not in sees}), words)
    arch, keys, found = gguf_twin.vision_of(config, sees)
    gguf_twin.write(model / "mmproj-F32.gguf", arch, change(keys), found)
    return model


def sees(model, name="qwen3_vl"):
    """The exit status and output of the golden with an image, run against the model."""
    ran = subprocess.run([BUILD / "golden", "--compute", "f32", "--model", model, DATA / name], capture_output=True, text=True, timeout=120)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl"])
def test_a_vision_encoder_lies_beside_the_model(name, tmp_path):
    """Images of a directory, of a file, and of a packed file."""
    model, packed = pair(DATA / name, tmp_path), tmp_path / "tiny.plateau"
    (model / "mmproj-BF16.gguf").write_bytes(b"GGUF")
    subprocess.run([BUILD / "plateau", "pack", model, packed, "--compute", "f32"], check=True, capture_output=True, timeout=120)
    for path in model, model / "tiny.gguf", packed:
        code, said = sees(path, name)
        assert code == 0 and "image" in said, said


def test_an_encoder_of_another_model_is_passed_over(tmp_path):
    model = pair(DATA / "qwen3_vl", tmp_path, lambda keys: {**keys, "vision.projection_dim": 48})
    code, said = sees(model)
    assert code != 0 and "image" in said, said


IMAGE_TOKENS = {"gemma3_vl": "<image_soft_token>", "smolvlm": "<image>", "internvl": "<IMG_CONTEXT>", "mistral3": "[IMG]"}


def other_pair(name, tmp_path, beside=True):
    """Writes the twin of a model with another encoder; both files in one folder, or apart."""
    config, tensors = gguf_twin.read(DATA / name)
    preprocessor = DATA / name / "preprocessor_config.json"
    words = [f"t{i}" for i in range(config["text_config"]["vocab_size"])]
    words[config.get("image_token_id", config.get("image_token_index"))] = IMAGE_TOKENS[name]
    sees = {n: v for n, v in tensors.items() if re.search("vision|projector|connector", n)}
    model, other = tmp_path / "model", tmp_path / "other"
    model.mkdir()
    other.mkdir()
    gguf_twin.write(model / "tiny.gguf", *gguf_twin.twin_of(config["text_config"], {n: v for n, v in tensors.items() if n not in sees}), words)
    found = gguf_twin.encoder_of(config, json.loads(preprocessor.read_text()) if preprocessor.exists() else None, sees)
    gguf_twin.write(model / "mmproj-F32.gguf" if beside else other / "seeing.gguf", *found)
    return model


@pytest.mark.parametrize("name", IMAGE_TOKENS)
def test_other_encoders_lie_beside_the_model(name, tmp_path):
    model = other_pair(name, tmp_path)
    ran = subprocess.run([BUILD / "golden", "--compute", "f32", "--model", model, DATA / name], capture_output=True, text=True, timeout=120)
    said = ran.stdout + ran.stderr
    features = re.search(r"16 values of features compared, largest error (\S+)", said)
    assert features and float(features[1]) < 1e-5, said
    # A file of Gemma 3 has no layer_types of its own, so the golden's text is another model.
    assert ran.returncode == 0 or name == "gemma3_vl", said


CHAT_NAMES = [
    (r"^vision_tower\.embeddings\.patch_embeddings\.projection", "vision_model.embeddings.patch_embedding"),
    (r"^vision_tower\.embeddings\.cls_token", "vision_model.embeddings.class_embedding"),
    (r"^vision_tower\.embeddings\.position_embeddings", "vision_model.embeddings.position_embedding"),
    (r"^vision_tower\.encoder\.layer", "vision_model.encoder.layers"), (r"layernorm_before", "norm1"), (r"layernorm_after", "norm2"),
    (r"attention\.projection_layer", "attn.proj"), (r"lambda_(\d)", r"ls\1"), (r"^multi_modal_projector\.layer_norm", "mlp1.0"),
    (r"^multi_modal_projector\.linear_1", "mlp1.1"), (r"^multi_modal_projector\.linear_2", "mlp1.3"),
]


def original_of_internvl(config, tensors):
    """The configuration and tensors as the files of OpenGVLab have them: q, k and v in one tensor."""
    vision, found = config["vision_config"], {}
    for name, values in tensors.items():
        for pattern, to in CHAT_NAMES:
            name = re.sub(pattern, to, name)
        found[name] = values
    for name in [n for n in found if ".attention.q_proj." in n]:
        parts = [found.pop(name.replace("q_proj", f"{n}_proj")) for n in "qkv"]
        stack = gguf_twin.stacked(parts)
        found[name.replace("attention.q_proj", "attn.qkv")] = stack.shaped(3 * parts[0].shape[0], *parts[0].shape[1:])
    own = {k: vision[k][0] if isinstance(vision[k], list) else vision[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers",
                                                                                    "num_attention_heads", "patch_size", "image_size", "layer_norm_eps")}
    return {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "llm_config": config["text_config"], "downsample_ratio": 0.5,
            "vision_config": {**own, "model_type": "intern_vit_6b", "norm_type": "layer_norm", "qkv_bias": True, "qk_normalization": False, "hidden_act": "gelu"},
            "ps_version": "v2", "select_layer": -1, "max_dynamic_patch": 12, "min_dynamic_patch": 1, "dynamic_image_size": True, "use_thumbnail": True,
            "force_image_size": own["image_size"], "pad2square": False, "template": "internvl2_5"}, found


def test_original_files_of_internvl(tmp_path):
    config, tensors = gguf_twin.read(DATA / "internvl")
    token = config["image_token_id"]
    config, tensors = original_of_internvl(config, tensors)
    gguf_twin.write_safetensors(tmp_path, config, tensors)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {str(token): {"content": "<IMG_CONTEXT>"}}}))
    code, said = sees(tmp_path, "internvl")
    assert code == 0 and "16 values of features compared" in said, said
    gguf_twin.write_safetensors(tmp_path, {**config, "ps_version": "v1"}, tensors)
    code, said = sees(tmp_path, "internvl")
    assert code != 0 and "ps_version 'v1' is not supported; v2 is" in said, said
    gguf_twin.write_safetensors(tmp_path, config, tensors)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {f"{token}x": {"content": "<IMG_CONTEXT>"}}}))
    code, said = sees(tmp_path, "internvl")
    assert code != 0 and "image_token_id" in said, said


def test_mmproj_names_the_encoder(tmp_path):
    model = other_pair("internvl", tmp_path, beside=False)
    config, tensors = gguf_twin.read(DATA / "smolvlm")
    found = {n: v for n, v in tensors.items() if re.search("vision|projector|connector", n)}
    preprocessor = json.loads((DATA / "smolvlm/preprocessor_config.json").read_text())
    gguf_twin.write(tmp_path / "idefics.gguf", *gguf_twin.encoder_of(config, preprocessor, found))

    def plan(*more):
        ran = subprocess.run([BUILD / "plateau", "plan", *more, "--memory-limit", "512M"], capture_output=True, text=True, timeout=60)
        return ran.returncode, ran.stdout + ran.stderr

    code, said = plan(model)
    assert code == 0 and "An image has at most" not in said, said
    code, said = plan(model, "--mmproj", tmp_path / "other/seeing.gguf")
    assert code == 0 and "An image has at most 53248 pixels, which are 208 tokens" in said, said
    refused = {"missing.gguf": "cannot be opened", "idefics.gguf": "the projector 'idefics3' does not belong to a model of the architecture 'qwen2'",
               "model/tiny.gguf": "it is not the file of a vision encoder"}
    for name, why in refused.items():
        code, said = plan(model, "--mmproj", tmp_path / name)
        assert code == 1 and f"--mmproj {tmp_path / name}: " in said and why in said, said
    packed = tmp_path / "tiny.plateau"
    subprocess.run([BUILD / "plateau", "pack", model, packed, "--compute", "f32", "--mmproj", tmp_path / "other/seeing.gguf"], check=True,
                   capture_output=True, timeout=120)
    code, said = sees(packed, "internvl")
    assert code == 0 and "16 values of features compared" in said, said
    code, said = plan(DATA / "internvl", "--mmproj", tmp_path / "other/seeing.gguf")
    assert code == 1 and "is not a GGUF model, whose vision encoder is a file of its own" in said, said


@pytest.mark.parametrize("key, value, says", [
    ("attention.layer_norm_epsilon", 1e-5, "clip.vision.attention.layer_norm_epsilon: 1e-05 is not supported"),
    ("attention.layer_norm_epsilon", float("nan"), "clip.vision.attention.layer_norm_epsilon: nan is not supported"),
    ("image_mean", [0.5, float("nan"), 0.5], "image_mean must be 3 numbers")])
def test_an_encoder_with_other_numbers_is_refused(tmp_path, key, value, says):
    model = pair(DATA / "qwen3_vl", tmp_path, lambda keys: {**keys, f"vision.{key}": value})
    code, said = sees(model)
    assert code != 0 and says in said, said


def test_gemma(tmp_path):
    """Norms are 1 more in the file, which rounds them."""
    holds(DATA / "gemma", tmp_path)


def test_hunyuan_moe(tmp_path):
    """The converter computes the base of the rotation."""
    config, tensors = gguf_twin.read(DATA / "hunyuan_v1_moe")
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 5000.0}
    same(config, tensors, tmp_path)


@pytest.mark.parametrize("biases", [True, False])
def test_ernie_moe(biases, tmp_path):
    """A file has no bias of logits."""
    config, tensors = gguf_twin.read(DATA / "ernie4_5_moe")
    config.update(use_bias=biases, moe_layer_end_index=-1, num_hidden_layers=3)
    same(config, {n: v for n, v in tensors.items() if "layers.3." not in n and n != "lm_head.bias" and (biases or not n.endswith("proj.bias"))}, tmp_path)


def test_dots1(tmp_path):
    """A file has no windows."""
    config, tensors = gguf_twin.read(DATA / "dots1")
    config.update(layer_types=["full_attention"] * config["num_hidden_layers"], sliding_window=None)
    same(config, tensors, tmp_path)


def drawn(shapes, layers):
    """Random tensors; `#` in a name is each layer, and norms are near their centre."""
    draw, found = random.Random(1), {}
    for name, shape in shapes.items():
        for n in [name.replace("#", str(i)) for i in range(layers)] if "#" in name else [name]:
            found[n] = gguf_twin.Values(shape, array.array("f", (draw.gauss(1, 0.1) if "norm" in n else draw.gauss(0, 0.2) for _ in range(math.prod(shape)))))
    return found


def model(*parts):
    """Shapes of a layer's parts under their prefix, and those around the layers."""
    shapes = {"model.embed_tokens.weight": [48, 32], "model.norm.weight": [32], "lm_head.weight": [48, 32],
              "model.layers.#.input_layernorm.weight": [32], "model.layers.#.post_attention_layernorm.weight": [32]}
    for prefix, names in parts:
        shapes.update({f"{prefix}.{name}": shape for name, shape in names.items()})
    return shapes


COMMON = {"vocab_size": 48, "hidden_size": 32, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "num_experts_per_tok": 2,
          "moe_intermediate_size": 12, "tie_word_embeddings": False}
MLP = {"gate_proj.weight": [24, 32], "up_proj.weight": [24, 32], "down_proj.weight": [32, 24]}
EXPERT = {"gate_proj.weight": [12, 32], "up_proj.weight": [12, 32], "down_proj.weight": [32, 12]}
HEADS = {"q_proj.weight": [64, 32], "k_proj.weight": [32, 32], "v_proj.weight": [32, 32], "o_proj.weight": [32, 64]}
HEAD_NORMS = {"q_norm.weight": [16], "k_norm.weight": [16]}


def test_mistral(tmp_path):
    """The row of mistral3 without scores that grow with the position."""
    config = {**COMMON, "model_type": "mistral", "num_hidden_layers": 2, "sliding_window": None}
    same(config, drawn(model(("model.layers.#.self_attn", HEADS), ("model.layers.#.mlp", MLP)), 2), tmp_path)


def fused(arch, keys, tensors):
    """Gate and up of each expert in one tensor, as the converter's --fuse-gate-up-exps writes them."""
    found = {}
    for name, values in tensors.items():
        if "ffn_up_exps" in name:
            continue
        if "ffn_gate_exps" in name:
            up = tensors[name.replace("gate", "up")]
            rows = [i * values.shape[1] + k + at for i in range(values.shape[0]) for at in (0, math.prod(values.shape[:2])) for k in range(values.shape[1])]
            both = gguf_twin.stacked([values, up]).shaped(2 * math.prod(values.shape[:2]), values.shape[2]).take(rows)
            name, values = name.replace("gate", "gate_up"), both.shaped(values.shape[0], 2 * values.shape[1], values.shape[2])
        found[name] = values
    return arch, keys, found


@pytest.mark.parametrize("change", [lambda *twin: twin, fused], ids=["apart", "fused"])
def test_glm4_moe(change, tmp_path):
    config = {**COMMON, "model_type": "glm4_moe", "num_hidden_layers": 2, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2,
              "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "partial_rotary_factor": 0.5, "attention_bias": True, "use_qk_norm": True}
    biases = {"q_proj.bias": [64], "k_proj.bias": [32], "v_proj.bias": [32]}
    layer = "model.layers.1.mlp"
    shapes = model(("model.layers.#.self_attn", {**HEADS, **HEAD_NORMS, **biases}), ("model.layers.0.mlp", MLP), (layer, {"gate.weight": [4, 32]}),
                   (layer + ".gate", {"e_score_correction_bias": [4]}), (layer + ".shared_experts", EXPERT), *((f"{layer}.experts.{i}", EXPERT) for i in range(4)))
    same(config, drawn(shapes, 2), tmp_path, change=change)


def test_qwen3_next(tmp_path):
    config = {**COMMON, "model_type": "qwen3_next", "num_hidden_layers": 2, "num_experts": 4, "shared_expert_intermediate_size": 12, "norm_topk_prob": True,
              "layer_types": ["linear_attention", "full_attention"], "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
              "linear_num_key_heads": 2, "linear_num_value_heads": 4, "partial_rotary_factor": 0.25}
    net = {"in_proj_qkvz.weight": [192, 32], "in_proj_ba.weight": [8, 32], "conv1d.weight": [128, 1, 4], "A_log": [4], "dt_bias": [4], "norm.weight": [16],
           "out_proj.weight": [32, 64]}
    layer = "model.layers.#.mlp"
    shapes = model(("model.layers.0.linear_attn", net), ("model.layers.1.self_attn", {**HEADS, **HEAD_NORMS, "q_proj.weight": [128, 32]}),
                   (layer, {"gate.weight": [4, 32], "shared_expert_gate.weight": [1, 32]}), (layer + ".shared_expert", EXPERT),
                   *((f"{layer}.experts.{i}", EXPERT) for i in range(4)))
    tensors = drawn(shapes, 2)
    for name, values in tensors.items():
        if "norm" in name and "linear_attn" not in name:
            tensors[name] = values.mapped(lambda x: x - 1)
    same(config, tensors, tmp_path)


@pytest.mark.parametrize("name", ["deepseek_v3", "gemma4", "glm4_moe", "lfm2", "qwen3_next"])
def test_a_twin_of_a_large_golden_is_the_checkpoint(name, tmp_path):
    if not (BESIDE / name).is_dir():
        pytest.skip(f"no {BESIDE}")
    holds(BESIDE / name, tmp_path)


def test_granite_hybrid(tmp_path):
    config, tensors = gguf_twin.read(DATA / "granitemoehybrid")
    config["layer_types"] = ["mamba", "attention"]
    same(config, tensors, tmp_path)


@pytest.mark.parametrize("normed", [True, False])
def test_falcon_h1(normed, tmp_path):
    """Factors are in the file's weights, which rounds them. A file without ssm_norm has no norm."""
    config, tensors = gguf_twin.read(DATA / "falcon_h1")
    tensors = {name: values for name, values in tensors.items() if normed or "mamba.norm" not in name}
    config.update(mamba_rms_norm=normed, mamba_norm_before_gate=False, time_step_limit=[0.0, {"__float__": "Infinity"}])
    (_, plain), (_, twin) = logits_of(config, tensors, tmp_path)
    assert max(abs(x - y) for x, y in zip(plain, twin)) < 1e-5 * max(map(abs, plain))


@pytest.mark.parametrize("layers", [(0, 1, 2, 3), (0, 2, 3, 4)])
def test_nemotron_h(layers, tmp_path):
    """A file has experts or MLPs, not both: layers of the golden, which has."""
    config, tensors = gguf_twin.read(DATA / "nemotron_h")
    pattern = "".join(config["hybrid_override_pattern"][i] for i in layers)
    config.update(hybrid_override_pattern=pattern, num_hidden_layers=len(layers))
    same(config, {to: tensors[name] for name in tensors for to in [of_layers(name, layers)] if to}, tmp_path)


def test_the_document_has_every_name_of_the_tables():
    """Refusals of an architecture or a pre-tokenizer name the document."""
    text = (TOP / "docs/models.md").read_text().partition("## GGUF files")[2]
    words = set(re.findall(r"[\w.-]*\w", text))
    tables = {name: (TOP / f"src/gguf/{name}.c").read_text() for name in ("gguf_arch", "gguf_pre")}
    rows = tables["gguf_arch"].partition("gguf_arch archs[]")[2].partition("\n};")[0]
    names = set(re.findall(r'^    \{"([^"]+)", GGUF_NAMES', rows, re.M))
    names |= {name for row in re.findall(r"\.names = \{(.*?)\}", tables["gguf_pre"], re.S) for name in re.findall(r'"([^"]+)"', row)}
    assert len(names) > 90 and not names - words
