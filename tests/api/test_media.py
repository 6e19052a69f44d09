"""Images in every format and form through HTTP, and all that a chat can do with them."""

import contextlib
import io
import json
import random

import pytest
from PIL import Image

from conftest import FEW_PAGES, GOLDEN, TOP, Open, Server, case_fields, events, refused, serving, until
from seeing import (SEEN, ask, asking, choice, data_url, encoded, file_of, image, nothing_left, images, pixels_of, png_of,
                    text, tokens, user, video)
from test_cache import cached_tokens, clear, whole_pages_before

# The margin between the best two tokens changes by 0.34 at most when a golden image comes as a JPEG of
# quality 95, by 0.16 as a WebP of quality 90 (measured over all steps of all eight). Where the reference has
# a smaller margin, the codec may decide.
CODEC_ERROR = 0.5
WHAT = "What do you see?"


@pytest.fixture(scope="module")
def eyes():
    with serving("--host-cache", "64M") as s:
        yield s
        nothing_left(s)


def same_image(server, known, *others):
    """Other files of the same pixels are the same image: it is not encoded again, and gets the same
    answer."""
    clear(server)
    first = tokens(ask(server, known, WHAT))
    before = images(server)["encoded"]
    for other in others:
        assert tokens(ask(server, other, WHAT)) == first
        assert images(server)["encoded"] == before


# ---- the queue of decoding ----


def test_a_small_image_overtakes_large_ones_of_the_same_client(eyes):
    """Four requests with four images of 64 megapixels each keep every thread busy that may take them."""
    large = encoded(Image.new("1", (8000, 8000)), "PNG", compress_level=1)
    small = encoded(Image.new("RGB", (32, 32), "red"), "PNG")
    alone = tokens(ask(eyes, small, WHAT, max_tokens=2))
    body = dict(asking(*[large] * 4, WHAT, max_tokens=1), model="canary")
    with contextlib.ExitStack() as stack:
        requests = [stack.enter_context(Open(eyes, "/v1/chat/completions", body)) for _ in range(4)]
        until(lambda: len([r for r in eyes.requests() if r.get("media")]) == 4)
        assert tokens(ask(eyes, small, WHAT, max_tokens=2)) == alone
        unfinished = [r["media"]["parts_done"] for r in eyes.requests() if r.get("media")]
        assert len(unfinished) >= 3, unfinished
        assert len(requests) == 4
    nothing_left(eyes)


# ---- formats ----


@pytest.mark.smoke
def test_formats_that_lose_nothing_give_the_references_tokens(eyes):
    for case in SEEN:
        clear(eyes)
        rgb = pixels_of(case)
        files = [file_of(case), encoded(rgb, "WEBP", lossless=True, exact=True), encoded(rgb, "GIF"),
                 encoded(rgb.quantize(256), "PNG"), encoded(rgb, "PNG", compress_level=0)]
        before = images(eyes)["encoded"]
        for data in files:
            reply = ask(eyes, data, case["question"])
            assert tokens(reply) == case["greedy_ids"]
            assert reply.json()["prompt_token_ids"] == case["prompt_ids"]
        assert images(eyes)["encoded"] == before + 1


def margins(reply):
    """How far the best two tokens were apart at each step."""
    tops = [step["top_logprobs"] for step in choice(reply)["logprobs"]["content"]]
    return [top[0]["logprob"] - top[1]["logprob"] for top in tops]


@pytest.mark.parametrize("kind, options", [("JPEG", {"quality": 95}), ("WEBP", {"quality": 90})], ids=["jpeg", "webp"])
def test_formats_that_lose_something_give_them_within_their_error(eyes, kind, options):
    compared = 0
    for case in SEEN:
        data = encoded(pixels_of(case), kind, **options)
        lossy, exact = (ask(eyes, d, case["question"], logprobs=True, top_logprobs=2) for d in (data, file_of(case)))
        sure = [m >= CODEC_ERROR for m in case["greedy_margin"]] + [False]
        steps = sure.index(False)
        assert tokens(lossy)[:steps] == case["greedy_ids"][:steps]
        apart = zip(margins(lossy)[:steps], margins(exact)[:steps])
        assert all(abs(a - b) < CODEC_ERROR for a, b in apart)
        compared += steps
        # Pillow finds the pixels that the codec left, too.
        seen = encoded(Image.open(io.BytesIO(data)).convert("RGB"), "PNG")
        assert tokens(ask(eyes, seen, case["question"])) == tokens(lossy)
    assert compared >= 20


def noise(width, height, look=1):
    return Image.frombytes("RGB", (width, height), random.Random(look).randbytes(3 * width * height))


def test_colours_of_every_kind(eyes):
    rgb = pixels_of(SEEN[0])
    plain = encoded(rgb, "PNG")
    # A transparent pixel shows the colour that is stored for it.
    veiled = rgb.copy()
    veiled.putalpha(noise(*rgb.size).convert("L"))
    same_image(eyes, plain, encoded(veiled, "PNG"), encoded(veiled, "WEBP", lossless=True, exact=True))
    indexed = rgb.quantize(256)
    same_image(eyes, plain, encoded(indexed, "PNG", transparency=0))
    grey = rgb.convert("L")
    with_alpha = grey.copy()
    with_alpha.putalpha(128)
    same_image(eyes, encoded(grey.convert("RGB"), "PNG"), encoded(grey, "PNG"), encoded(with_alpha, "PNG"), encoded(grey, "GIF"))
    line = rgb.convert("1")
    same_image(eyes, encoded(line.convert("RGB"), "PNG"), encoded(line, "PNG"))


def test_of_sixteen_bits_the_upper_eight_are_seen(eyes):
    rgb = pixels_of(SEEN[0])
    low = random.Random(5)

    def widened(data, row_bytes):
        """Each byte followed by a second one, in rows that start with their filter."""
        wide = [data[i : i + row_bytes] for i in range(0, len(data), row_bytes)]
        return b"".join(b"\0" + bytes(v for b in row for v in (b, low.randrange(256))) for row in wide)

    deep = png_of(*rgb.size, widened(rgb.tobytes(), 3 * rgb.width), depth=16)
    same_image(eyes, file_of(SEEN[0]), deep)
    grey = rgb.convert("L")
    deep = png_of(*rgb.size, widened(grey.tobytes(), rgb.width), depth=16, colour=0)
    same_image(eyes, encoded(grey, "PNG"), deep)


def test_of_an_animation_the_first_image_is_seen(eyes):
    frames = [pixels_of(SEEN[0]), pixels_of(SEEN[0]).rotate(180)]
    moving = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100)
    assert Image.open(io.BytesIO(moving)).n_frames == 2
    same_image(eyes, file_of(SEEN[0]), moving)
    assert tokens(ask(eyes, moving, SEEN[0]["question"])) == SEEN[0]["greedy_ids"]


# Turns of a camera's image, by EXIF's orientation.
TURNED = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_90", 7: "TRANSVERSE",
          8: "ROTATE_270"}


def turned(upright, orientation, kind, **options):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = upright.transpose(getattr(Image.Transpose, TURNED[orientation]))
    return encoded(stored, kind, exif=exif, **options)


def test_a_turned_image_is_seen_upright(eyes):
    upright = pixels_of(SEEN[0])
    same_image(eyes, file_of(SEEN[0]), *(turned(upright, o, "PNG") for o in TURNED))
    same_image(eyes, file_of(SEEN[0]), turned(upright, 6, "WEBP", lossless=True, exact=True))
    # A turned JPEG loses other details: the scene is the same, not each pixel.
    for case in SEEN:
        expected = ask(eyes, encoded(pixels_of(case), "JPEG", quality=100, subsampling=0), case["question"])
        for o in (3, 6, 8):
            got = ask(eyes, turned(pixels_of(case), o, "JPEG", quality=100, subsampling=0), case["question"])
            assert tokens(got) == tokens(expected) == case["greedy_ids"]
            assert got.json()["prompt_token_ids"] == case["prompt_ids"]


def test_an_orientation_that_is_none_is_upright(eyes):
    exif = Image.Exif()
    for orientation in (0, 1, 9, 300):
        exif[0x0112] = orientation
        same_image(eyes, file_of(SEEN[0]), encoded(pixels_of(SEEN[0]), "PNG", exif=exif))


@pytest.mark.parametrize("size", [(1, 1), (31, 33), (640, 4), (3, 500), (1100, 1300)], ids=str)
def test_images_of_every_shape_are_seen(eyes, size):
    reply = ask(eyes, encoded(noise(*size), "PNG"), WHAT, max_tokens=2)
    assert len(tokens(reply)) == 2
    words = len(SEEN[0]["prompt_ids"]) - 12
    assert 4 <= reply.json()["usage"]["prompt_tokens"] - words <= 1024


# ---- forms ----


@pytest.mark.smoke
def test_all_ways_to_write_a_image_down_mean_the_same(eyes):
    case = SEEN[2]
    url = data_url(file_of(case))
    bytes64 = url.split(",")[1]
    ways = [image(url), *(image(url, detail=d) for d in ("auto", "low", "high", "original", "newer", None)),
            {**image(url), "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "image_url", "image_url": url}, {"type": "input_image", "image_url": url, "detail": "auto", "file_id": None},
            {"type": "image", "image": url}, {"type": "image", "url": url},
            {"type": "image_url", "image_url": {"url": url, "format": "image/png"}, "cache_control": {"type": "ephemeral"}},
            *(image(head + bytes64) for head in ("DATA:IMAGE/PNG;BASE64,", "data:;base64,", "data:image/jpeg;charset=x;base64,")),
            image("data:image/png;base64," + "\r\n".join(bytes64[i : i + 76] for i in range(0, len(bytes64), 76))),
            image(url.rstrip("="))]
    for way in ways:
        assert tokens(ask(eyes, way, case["question"])) == case["greedy_ids"], way


@pytest.mark.parametrize("part, word", [
    ({"crop": [0, 0, 9, 9]}, "crop"),
    ({"max_pixels": 4096}, "max_pixels"),
    ({"resized_width": 64}, "resized_width"),
    ({"fps": 2}, "fps"),
    ({"image": "data:,"}, "more than one URL"),
    ({"image_url": {"url": data_url(file_of(SEEN[0])), "min_pixels": 1}}, "min_pixels"),
    ({"image_url": {"url": data_url(file_of(SEEN[0])), "detail": 3}}, "detail"),
    ({"image_url": {"url": ["data:,"]}}, "no image URL"),
    ({"image_url": None}, "no image URL"),
    ({"type": "input_audio", "image_url": None}, "must be a part of type"),
], ids=str)
def test_what_changes_a_image_and_is_not_done_is_refused(eyes, part, word):
    reply = ask(eyes, text("Look."), {**image(data_url(file_of(SEEN[0]))), **part}, WHAT)
    error = refused(reply, 400, reply.json()["error"]["code"], word, "messages[0].content[1]")
    assert error["param"] == "messages[0].content[1]"
    assert error["code"] in ("invalid_value", "unsupported_value")


# ---- places ----


def test_a_image_before_behind_and_between_words(eyes):
    """Each place has its own tokens around the image, the same image, and an answer to the question."""
    case = SEEN[0]
    words = case["question"]
    pad = max(set(case["prompt_ids"]), key=case["prompt_ids"].count)
    places = []
    for parts in ([file_of(case), words], [words, file_of(case)], ["What ", file_of(case), "do you see?"]):
        reply = ask(eyes, *parts)
        ids = reply.json()["prompt_token_ids"]
        assert choice(reply)["finish_reason"] == "stop"
        assert ids.count(pad) == case["prompt_ids"].count(pad)
        places.append(ids.index(pad))
    assert places[0] < places[2] < places[1]


def test_several_images_have_their_order(eyes):
    first, second = file_of(SEEN[0]), file_of(SEEN[2])
    fields = {"logprobs": True, "top_logprobs": 5, "max_tokens": 5}
    both = ask(eyes, first, second, WHAT, **fields)
    swapped = ask(eyes, second, first, WHAT, **fields)
    alone = [ask(eyes, image, WHAT, **fields) for image in (first, second)]
    count = both.json()["usage"]["prompt_tokens"]
    around = [a.json()["usage"]["prompt_tokens"] for a in alone]
    rest = len(SEEN[0]["prompt_ids"]) - 12 - 2  # without the image's 4 x 3 tokens and their frame
    assert count == swapped.json()["usage"]["prompt_tokens"] == sum(around) - rest
    assert choice(both)["logprobs"] != choice(swapped)["logprobs"]
    for reply, question in ((both, [first, second]), (swapped, [second, first])):
        clear(eyes)
        assert choice(ask(eyes, *question, WHAT, **fields))["logprobs"] == choice(reply)["logprobs"]


def test_images_over_several_turns(eyes):
    first, second = SEEN[1], SEEN[7]
    words = first["question"] + " Look at it for a while." * 10

    def chat(data):
        history = [user(image(data_url(data)), text(words)), {"role": "assistant", "content": first["greedy_text"]},
                   user(image(data_url(file_of(second))), text(second["question"]))]
        return eyes.post("/v1/chat/completions", **{**asking(), "messages": history})

    clear(eyes)
    whole_chat = chat(file_of(first))
    assert cached_tokens(whole_chat) == 0
    # The second turn finds the prefix that the first left.
    clear(eyes)
    size = ask(eyes, file_of(first), words).json()["usage"]["prompt_tokens"]
    later = chat(file_of(first))
    assert 32 <= cached_tokens(later) <= size
    assert tokens(later) == tokens(whole_chat)
    # The first image is another one: another prompt, though its tokens are the same.
    other = chat(encoded(noise(64, 64), "PNG"))
    assert other.json()["prompt_token_ids"] == later.json()["prompt_token_ids"]
    assert cached_tokens(other) == 0


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_one_pixel_makes_another_image(eyes, where):
    """An image is larger than any block that is hashed at once: the tokens before it hit the prefix cache,
    the image and the tokens after it do not."""
    clear(eyes)
    one = noise(192, 192)
    other = one.copy()
    x, y = {"first": (0, 0), "middle": (95, 97), "last": (191, 191)}[where]
    other.putpixel((x, y), tuple(255 - c for c in one.getpixel((x, y))))

    def show(image):
        fields = asking(encoded(image, "PNG"), "Take your time. " * 15 + WHAT, max_tokens=1)
        fields["messages"].insert(0, {"role": "system", "content": "Look for a while. " * 15})
        return eyes.post("/v1/chat/completions", **fields)

    first = show(one)
    count, seen = images(eyes)["encoded"], first.json()["usage"]["prompt_tokens"]
    second = show(other)
    assert second.json()["prompt_token_ids"] == first.json()["prompt_token_ids"]
    place = first.json()["prompt_token_ids"].index(8184)  # the first of <|image_pad|>
    assert 0 < cached_tokens(second) <= place
    assert images(eyes)["encoded"] == count + 1
    again = show(one)
    assert cached_tokens(again) == whole_pages_before(seen)
    assert images(eyes)["encoded"] == count + 1


# ---- everything else that a chat has ----


def streamed(server, **fields):
    """(token ids, content, reasoning, tool calls, finish reason) of the stream."""
    body = server.post("/v1/chat/completions", stream=True, **fields).text
    ids, content, reasoning, calls, ended = [], "", "", "", None
    for event in events(body)[:-1]:
        for c in event["choices"]:
            ids += c.get("token_ids") or []
            content += c["delta"].get("content") or ""
            reasoning += c["delta"].get("reasoning_content") or ""
            for call in c["delta"].get("tool_calls") or []:
                calls += (call["function"].get("name") or "") + (call["function"].get("arguments") or "")
            ended = c["finish_reason"] or ended
    return ids, content, reasoning, calls, ended


def whole(reply):
    c = choice(reply)
    calls = "".join(k["function"]["name"] + k["function"]["arguments"] for k in c["message"].get("tool_calls") or [])
    return (c["token_ids"], c["message"]["content"] or "", c["message"].get("reasoning_content") or "", calls,
            c["finish_reason"])


WITH_TOOLS = [case for case in GOLDEN["cases"] if case["tools"]]
WISHES = {
    "plain": {},
    "reasoning": {"chat_template_kwargs": {"enable_thinking": True}},
    "tools": {"tools": WITH_TOOLS[0]["tools"]},
    "tools and reasoning": {"tools": WITH_TOOLS[0]["tools"], "chat_template_kwargs": {"enable_thinking": True}},
    "no tool choice": {"tools": WITH_TOOLS[0]["tools"], "tool_choice": "none"},
    "sampled": {"temperature": 1.0, "seed": 11, "top_p": 0.9},
    "text format": {"response_format": {"type": "text"}},
    "stop": {"stop": ["triangle"]},
}


@pytest.mark.parametrize("wish", WISHES)
def test_streamed_and_whole_are_the_same(eyes, wish):
    fields = {**asking(file_of(SEEN[0]), SEEN[0]["question"]), **WISHES[wish]}
    reply = eyes.post("/v1/chat/completions", **fields)
    assert streamed(eyes, **fields) == whole(reply)
    assert (whole(reply)[2] != "") == ("reasoning" in wish)
    if wish in ("plain", "no tool choice", "text format"):
        assert tokens(reply) == SEEN[0]["greedy_ids"]


def test_json_is_asked_for_as_without_images(eyes):
    for parts in ([WHAT], [file_of(SEEN[0]), WHAT]):
        reply = ask(eyes, *parts, response_format={"type": "json_object"}, max_tokens=2000)
        choice = reply.json()["choices"][0]
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"]), dict)


def test_definitions_of_tools_are_in_prompts_with_images(eyes):
    case = WITH_TOOLS[0]
    fields = {k: v for k, v in case_fields(case).items() if k in ("messages", "tools", "chat_template_kwargs")}
    plain = eyes.post("/apply-template", **fields).json()["prompt"]
    head = plain[: plain.index("</tools>")]
    assert all(tool["function"]["name"] in head for tool in case["tools"])
    seen = json.loads(json.dumps(fields))
    last = seen["messages"][-1]
    last["content"] = [image(data_url(file_of(SEEN[0]))), text(last["content"])]
    rendered = eyes.post("/apply-template", **seen).json()["prompt"]
    assert rendered.startswith(head) and rendered.count("<|image_pad|>") == 1
    # The model gets equal tokens, not only equal text.
    ids = eyes.post("/v1/chat/completions", **seen, max_tokens=1, return_token_ids=True).json()["prompt_token_ids"]
    assert eyes.post("/detokenize", tokens=ids).json()["prompt"].startswith(head)
    bare = {k: v for k, v in seen.items() if k != "tools"}
    sizes = [[eyes.post("/tokenize", **f).json()["count"] for f in pair] for pair in
             ((fields, {k: v for k, v in fields.items() if k != "tools"}), (seen, bare))]
    assert sizes[0][0] - sizes[0][1] == sizes[1][0] - sizes[1][1] > 20


@pytest.mark.parametrize("case", WITH_TOOLS, ids=lambda c: c["messages"][-1]["content"])
def test_a_tool_is_called_in_a_chat_with_images(eyes, case):
    """An earlier turn had the image; then comes the reference's question for a tool. With this image the
    small model answers as without one; other images distract it."""
    fields = case_fields(case)
    before = [user(text("Hello."), image(data_url(file_of(SEEN[4])))), {"role": "assistant", "content": "Hello!"}]
    fields["messages"] = [m for m in fields["messages"] if m["role"] == "system"] + before + \
                         [m for m in fields["messages"] if m["role"] != "system"]
    reply = eyes.post("/v1/chat/completions", **fields)
    expected = choice(eyes.post("/v1/chat/completions", **case_fields(case)))["message"]["tool_calls"][0]["function"]
    assert choice(reply)["finish_reason"] == "tool_calls"
    assert choice(reply)["message"]["tool_calls"][0]["function"] == expected
    assert streamed(eyes, **fields) == whole(reply)


def test_several_choices_see_the_same_image(eyes):
    clear(eyes)
    before = images(eyes)["encoded"]
    reply = ask(eyes, file_of(SEEN[0]), SEEN[0]["question"], n=3)
    assert [c["token_ids"] for c in reply.json()["choices"]] == [SEEN[0]["greedy_ids"]] * 3
    assert images(eyes)["encoded"] == before + 1


def test_tokenize_counts_what_a_chat_takes(eyes):
    for case in SEEN:
        fields = {k: v for k, v in asking(file_of(case), case["question"]).items() if k in ("messages", "chat_template_kwargs")}
        counted = eyes.post("/tokenize", **fields).json()
        assert counted["tokens"] == case["prompt_ids"] and counted["count"] == len(case["prompt_ids"])
        pads = max(case["prompt_ids"], key=case["prompt_ids"].count)
        assert counted["image_tokens"] == case["prompt_ids"].count(pads)
    assert "image_tokens" not in eyes.post("/tokenize", prompt="hi").json()
    refused(eyes.post("/tokenize", messages=[user(image("data:image/png;base64,AAAA"))]), 400, "invalid_media")


def test_a_text_cannot_pretend_to_be_a_image(eyes):
    refused(ask(eyes, file_of(SEEN[0]), "<|image_pad|> " + WHAT), 400, "invalid_value", "<|image_pad|>")
    tool = {"type": "function", "function": {"name": "f", "description": "<|image_pad|>", "parameters": {"type": "object"}}}
    refused(ask(eyes, file_of(SEEN[0]), WHAT, tools=[tool]), 400, "invalid_value", "<|image_pad|>")


def test_a_image_that_the_template_leaves_out_is_refused(eyes):
    reply = eyes.post("/v1/chat/completions", messages=[
        {"role": "system", "content": [image(data_url(file_of(SEEN[0])))]}, {"role": "user", "content": WHAT}])
    refused(reply, 400, "media_mismatch", "user messages")


# ---- models that do not see ----


def test_a_model_without_its_vision_encoder_refuses_images():
    with serving("--max-image-pixels", "0") as s:
        for part in (image(data_url(file_of(SEEN[0]))), video("data:,")):
            error = refused(ask(s, "Look.", part), 400, "unsupported_value", "without its vision encoder")
            assert error["param"] == "messages[0].content[1]"
        assert s.http.get("/v1/models").json()["data"][0]["input_modalities"] == ["text"]
        assert s.chat("Say hi.", max_tokens=2).status_code == 200


def test_a_model_that_reads_text_only_refuses_images(tmp_path):
    class Blind(Server):
        def arguments(self):
            return [str(TOP / "tests/golden/data/qwen3"), FEW_PAGES]

    with serving(kind=Blind) as s:
        refused(ask(s, file_of(SEEN[0]), WHAT), 400, "unsupported_value", "takes text only", "input_modalities")
        assert s.http.get("/v1/models").json()["data"][0]["input_modalities"] == ["text"]
        assert s.complete([5, 6, 7], max_tokens=2).status_code == 200
