"""A file of a larger model, of which the text alone is computed: its text runs, its other tensors are not
loaded, an image is refused."""
import json
import pathlib
import struct
import subprocess

import pytest

from conftest import PROGRAM, TOP, Server, serving

DATA = TOP / "tests/golden/data"
GOLDEN_PROGRAM = pathlib.Path(PROGRAM).parent / "golden"
# model_type of the parent, the golden, and where writers put the text's tensors
PARENTS = [("llava_onevision", "gemma3", "language_model.model."), ("minicpmv", "gemma4", "model.language_model."),
           ("aya_vision", "llama", "language_model.model."), ("ovis2", "lfm2", "model.language_model."),
           ("llava_next", "qwen3", "model.language_model."),
           ("nemotron_h_omni", "nemotron_h", "language_model.backbone.")]
# Parents whose text's configuration has another key than text_config.
TEXT_KEYS = {"nemotron_h_omni": "llm_config"}


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + size]), raw[8 + size:]


def make_parent(top, kind, golden, prefix, text_type=None):
    """A directory with that golden's text in a parent, and a vision encoder of another make."""
    folder = top / f"{kind}-parent"
    folder.mkdir()
    text = json.loads((DATA / golden / "config.json").read_text())
    tied = text.get("tie_word_embeddings", False)
    if text_type:
        text["model_type"] = text_type
    elif text_type == "":
        del text["model_type"]
    config = {"model_type": kind, TEXT_KEYS.get(kind, "text_config"): text, "vision_config": {"model_type": "siglip", "hidden_size": 8},
              "tie_word_embeddings": tied, "hidden_size": 7}
    (folder / "config.json").write_text(json.dumps(config))
    header, data = read_safetensors(DATA / golden / "model.safetensors")
    header.pop("__metadata__", None)
    named = {name.replace("model.", prefix, 1) if name.startswith("model.") else "language_model." + name: of
             for name, of in header.items()}
    end = len(data)
    named["vision_tower.encoder.layers.0.mlp.fc1.weight"] = {"dtype": "F32", "shape": [64, 64], "data_offsets": [end, end + 16384]}
    named["multi_modal_projector.linear_1.weight"] = {"dtype": "F32", "shape": [8, 8], "data_offsets": [end + 16384, end + 16640]}
    head = json.dumps(named).encode()
    # Not a number, so that a tensor that is loaded would be refused.
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data + b"\xff" * 16640)
    return folder


@pytest.mark.smoke
@pytest.mark.parametrize("kind, golden, prefix", PARENTS, ids=[p[0] for p in PARENTS])
def test_the_text_of_a_parent_is_its_golden(tmp_path, kind, golden, prefix):
    folder = make_parent(tmp_path, kind, golden, prefix)
    got = subprocess.run([GOLDEN_PROGRAM, "--chunk", "33", "--batch", "3", "--model", folder, DATA / golden],
                         capture_output=True, text=True, timeout=300)
    assert got.returncode == 0 and " 0 prompts wrong" in got.stdout, got.stdout + got.stderr


def test_images_are_refused_and_other_tensors_are_not_loaded(tmp_path):
    folder = make_parent(tmp_path, "llava_onevision", "gemma3", "language_model.model.")
    plan = json.loads(subprocess.run([PROGRAM, "plan", folder, "--json"], capture_output=True, text=True, timeout=60, check=True).stdout)
    assert plan["models"][0]["vision_weight_bytes"] == 0

    class Parent(Server):
        def arguments(self):
            return [str(folder)]

    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_twist": 3}))
    with serving(kind=Parent) as s:
        line = next(line for line in s.lines if "event=unknown_keys" in line)
        assert "'attention_twist'" in line and "'hidden_size'" not in line, line
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        r = s.post("/v1/chat/completions", messages=[{"role": "user", "content": [{"type": "text", "text": "Look."}, image]}])
        error = r.json()["error"]
        assert (r.status_code, error["param"]) == (400, "messages[0].content[1]"), r.text
        assert "of gemma3 the text alone is computed" in error["message"]
        assert s.http.get("/v1/models").json()["data"][0]["input_modalities"] == ["text"]
        assert s.complete([5, 6, 7], max_tokens=2).status_code == 200
