#!/usr/bin/env python3
"""class_configs.py: writes tests/unit/data/class_configs.json.

It has, for each family that is served, the configuration that its class in Hugging Face transformers writes
with its own defaults: one line for each, without encoders of images and sound, without what every class has,
and without nulls. tests/unit/model/test_config_unknown.c reads them. Run with the Python that
make_golden.py needs."""
import json
import pathlib

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "unit" / "data" / "class_configs.json"
NAMES = """
llama seed_oss arcee mistral ministral ministral3 smollm3 ernie4_5 phi3 hunyuan_v1_dense cohere cohere2 granite glm4
qwen2 qwen3 qwen3_moe qwen2_moe qwen3_next qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe gemma gemma2 gemma3 gemma4
gemma4_unified olmoe olmo2 olmo3 mixtral minimax_m2 gpt_oss granitemoe granitemoeshared exaone4 deepseek_v3 kimi_k25
deepseek_v2 youtu glm4_moe_lite glm4_moe solar_open dots1 granitemoehybrid nemotron_h falcon_h1 lfm2 lfm2_moe bert
xlm-roberta roberta camembert mistral3 smolvlm idefics3 lfm2_vl nemotron_h_omni aya_vision cohere2_vision llava internvl
mistral4 ernie4_5_moe hunyuan_v1_moe hy_v3 exaone_moe afmoe laguna mimo_v2_flash granite_swa granitemoe_swa phimoe
kimi_linear bailing_hybrid apertus cohere2_moe step3p5 muse_glimmer glm4v glm4v_moe glm_ocr
""".split()
# Where a class's defaults do not fit each other.
OWN = {"glm4_moe": {"head_dim": 128}, "glm4v_moe": {"text_config": {"head_dim": 128}},
       "deepseek_v2": {"num_experts_per_tok": 6}}
LEFT_OUT = {"vision_config", "audio_config", "sound_config", "transformers_version", "_name_or_path", "id2label",
            "label2id", "is_encoder_decoder", "return_dict", "output_attentions", "output_hidden_states",
            "chunk_size_feed_forward"}


def short(config):
    return {k: short(v) if k in ("text_config", "llm_config") else v for k, v in config.items()
            if v is not None and k not in LEFT_OUT}


def main():
    from transformers import AutoConfig
    lines = []
    for name in NAMES:
        config = AutoConfig.for_model(name, **OWN.get(name, {}))
        config = short(json.loads(config.to_json_string(use_diff=False)))
        lines.append(f"{json.dumps(name)}:{json.dumps(config, separators=(',', ':'))}")
    DATA.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
