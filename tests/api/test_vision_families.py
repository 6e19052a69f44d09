"""Models of each family of vision encoders, served: prompts, and tokens of transformers for an image."""
import concurrent.futures
import io
import json

import pytest
from PIL import Image

from conftest import TOP, Server
from seeing import data_url
from test_generate import run

DATA = TOP / "tests/golden/data"
# The golden, the tokens that its prompts have for an image, and the mark that its template writes.
FAMILIES = {"mistral3": (["[IMG]", "[IMG_BREAK]", "[IMG_END]"], "[IMG]"),
            "qwen2_5_vl": (["<img>", "<video>", "<begin>", "<end>"], "<begin><img><end>"),
            "kimi_k25_vl": (["<img>"], "<img>"),
            "glm4v_vl": (["<img>", "<video>", "<begin>", "<end>"], "<begin><img><end>"),
            "glm_ocr_vl": (["<img>", "<video>", "<begin>", "<end>"], "<begin><img><end>"),
            "gemma4_vl": (["<|image|>", "<|image>", "<image|>"], "<|image|>"),
            "gemma4_unified_vl": (["<|image|>", "<|image>", "<image|>"], "<|image|>"),
            "internvl": (["<IMG_CONTEXT>", "<img>", "</img>"], "<IMG_CONTEXT>"),
            "lfm2_vl": (["<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"]
                        + [f"<|img_row_{i // 3 + 1}_col_{i % 3 + 1}|>" for i in range(6)], "<image>"),
            "smolvlm": (["<image>", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>", "<row_1_col_2>",
                         "<row_2_col_1>", "<row_2_col_2>"], "<image>"),
            "gemma3_vl": (["<image_soft_token>", "<start_of_image>", "<end_of_image>"], "<start_of_image>")}
# Models that read videos.
VIDEOS = ["glm4v_vl"]
IDS = 80
FIRST = IDS - 12


def words_of(name):
    """The text of each id: special tokens, and words."""
    words = ["[UNK]", "[CLS]", "[SEP]"] + [f"w{i}" for i in range(3, IDS)]
    words[FIRST:FIRST + len(FAMILIES[name][0])] = FAMILIES[name][0]
    return words


def tokenizer(words):
    special = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, word in enumerate(words) if word[0] != "w"]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(words)}}}


def make_model(folder, name):
    for path in (DATA / name).iterdir():
        (folder / path.name).symlink_to(path)
    template = ("{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}"
                "{% elif c['type'] == 'video' %}<video>{% else %}" + FAMILIES[name][1] + "{% endif %}{% endfor %}{% endfor %}")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(words_of(name))))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


class Seeing(Server):
    def arguments(self):
        return [str(self.model), "--memory-limit", "512M"]


def image_of(golden, times=1, first=0):
    height, width, _ = golden["image_shape"]
    noise = (DATA / "noise.rgb").read_bytes()
    image = Image.frombytes("RGB", (width, height), (noise[first:] + noise)[:width * height * 3])
    image = image.resize((times * width, times * height), Image.Resampling.NEAREST)
    out = io.BytesIO()
    image.save(out, "PNG")
    return data_url(out.getvalue())


def pairs_are_images(server, golden, text):
    """A video of two equal frames, and two others, is two images, each with its whole seconds behind it."""
    frames = [image_of(golden, 1, first) for first in (0, 0, 777, 777, 777)]
    video = {"type": "video", "video": frames, "fps": 1}
    images = [part for i, second in ((0, "0"), (2, "2"), (4, "4"))
              for part in ({"type": "image_url", "image_url": {"url": frames[i]}}, {"type": "text", "text": second})]
    answers = []
    for content in [text, video], [text, *images]:
        messages = [{"role": "user", "content": content}]
        tokens = server.post("/tokenize", messages=messages, add_generation_prompt=False).json()["tokens"]
        got = server.post("/v1/chat/completions", messages=messages, temperature=0, logprobs=True, ignore_eos=True, max_tokens=8).json()
        answers.append((tokens, [(t["token"], t["logprob"]) for t in got["choices"][0]["logprobs"]["content"]]))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", FAMILIES)
def test_an_image_gives_the_tokens_of_transformers(tmp_path, name):
    golden, words = json.loads((DATA / name / "golden.json").read_text())["image"], words_of(name)
    places = [i for i, id in enumerate(golden["prompt"]) if words[id] in FAMILIES[name][0]]
    before, after = golden["prompt"][:places[0]], golden["prompt"][places[-1] + 1:]
    content = [{"type": "text", "text": " ".join(words[i] for i in before)},
               {"type": "image_url", "image_url": {"url": image_of(golden)}},
               {"type": "text", "text": " ".join(words[i] for i in after)}]
    messages = [{"role": "user", "content": content}]
    Seeing.model = make_model(tmp_path, name)
    server = Seeing("--compute", "f32")
    try:
        counted = server.post("/tokenize", messages=messages, add_generation_prompt=False).json()
        assert counted["tokens"] == golden["prompt"]
        reads = ["text", "image"] + (["video"] if name in VIDEOS else [])
        assert server.http.get("/v1/models").json()["data"][0]["input_modalities"] == reads
        # The second time all but the end of the prompt is cached.
        for cached in (False, True):
            got = server.post("/v1/chat/completions", messages=messages, temperature=0, logprobs=True, ignore_eos=True,
                              skip_special_tokens=False, max_tokens=len(golden["greedy"])).json()
            tokens = [t["token"].strip() for t in got["choices"][0]["logprobs"]["content"]]
            assert tokens == [words[i] for i in golden["greedy"]]
            assert (got["usage"]["prompt_tokens_details"]["cached_tokens"] > 0) == cached
        video = {"type": "video", "video": [image_of(golden)] * 2, "fps": 1}
        if name in VIDEOS:
            pairs_are_images(server, golden, content[0])
        else:
            error = server.post("/v1/chat/completions", messages=[{"role": "user", "content": [content[0], video]}]).json()["error"]
            assert error["code"] == "unsupported_value", error
        forged = json.loads(json.dumps(messages))
        forged[0]["content"][0]["text"] += words[FIRST]
        error = server.post("/v1/chat/completions", messages=forged).json()["error"]
        assert error["code"] == "invalid_value", error
    finally:
        assert server.stop() == 0


# The files of the preprocessor by which an image twice as large has tiles of 64 pixels; None: the golden's.
TILED = {"lfm2_vl": None, "internvl": {"size": {"height": 64, "width": 64}, "min_patches": 1, "max_patches": 12},
         "smolvlm": {"size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 64}}}


@pytest.mark.parametrize("name", TILED)
def test_tiles_give_the_tokens_of_transformers(tmp_path, name):
    golden, words = json.loads((DATA / name / "golden.json").read_text()), words_of(name)
    wanted = golden["tiles"]
    places = [i for i, id in enumerate(wanted["prompt"]) if words[id] in FAMILIES[name][0]]
    content = [{"type": "text", "text": " ".join(words[i] for i in wanted["prompt"][:places[0]])},
               {"type": "image_url", "image_url": {"url": image_of(golden["image"], 2)}},
               {"type": "text", "text": " ".join(words[i] for i in wanted["prompt"][places[-1] + 1:])}]
    messages = [{"role": "user", "content": content}]
    model = make_model(tmp_path, name)
    if TILED[name]:
        (model / "preprocessor_config.json").unlink(missing_ok=True)
        (model / "preprocessor_config.json").write_text(json.dumps(TILED[name]))
    Seeing.model = model
    server = Seeing("--compute", "f32")
    try:
        counted = server.post("/tokenize", messages=messages, add_generation_prompt=False).json()
        assert counted["tokens"] == wanted["prompt"]
        for cached in (False, True):
            got = server.post("/v1/chat/completions", messages=messages, temperature=0, logprobs=True, ignore_eos=True,
                              skip_special_tokens=False, max_tokens=len(wanted["greedy"])).json()
            tokens = [t["token"].strip() for t in got["choices"][0]["logprobs"]["content"]]
            assert tokens == [words[i] for i in wanted["greedy"]]
            assert (got["usage"]["prompt_tokens_details"]["cached_tokens"] > 0) == cached
    finally:
        assert server.stop() == 0


def test_another_form_of_an_encoder_leaves_the_text(tmp_path):
    model = make_model(tmp_path, "mistral3")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(config | {"vision_feature_layer": -2}))
    command = ["plan", str(model), "--memory-limit", "512M"]
    refused = run(*command)
    assert refused.returncode == 1 and "vision_feature_layer" in refused.stderr
    assert "--max-image-pixels 0 serves the text alone" in refused.stderr
    assert run(*command, "--max-image-pixels", "0").returncode == 0


def asked(server, i, words, image):
    """A conversation of two images between texts of other lengths."""
    text = [" ".join(words[3 + (7 * i + 3 * k) % 60] for k in range(5 + 6 * i + 3 * part)) for part in range(3)]
    content = [{"type": "text", "text": text[0]}, image, {"type": "text", "text": text[1]}, image,
               {"type": "text", "text": text[2]}]
    got = server.post("/v1/chat/completions", messages=[{"role": "user", "content": content}], temperature=0,
                      logprobs=True, ignore_eos=True, max_tokens=12, cache_salt=str(i)).json()
    assert "choices" in got, got
    return [(t["token"], t["logprob"]) for t in got["choices"][0]["logprobs"]["content"]]


@pytest.mark.parametrize("name", FAMILIES)
def test_images_in_a_batch_give_the_same_bits(tmp_path, name):
    golden, words = json.loads((DATA / name / "golden.json").read_text())["image"], words_of(name)
    image = {"type": "image_url", "image_url": {"url": image_of(golden)}}
    Seeing.model = make_model(tmp_path, name)
    answers = []
    for together in (False, True):
        server = Seeing("--max-num-seqs", "4", "--step-ms", "1")
        try:
            with concurrent.futures.ThreadPoolExecutor(5 if together else 1) as pool:
                answers.append(list(pool.map(lambda i: asked(server, i, words, image), range(5))))
        finally:
            assert server.stop() == 0
    assert answers[0] == answers[1] and len({str(a) for a in answers[0]}) == 5
