"""Images in the engine, through HTTP: the reference's answers in every company, prefixes and
features that are found again, slices between the steps of others, and nothing left."""

import base64
import concurrent.futures
import random
import struct
import zlib

import pytest

from conftest import GOLDEN, TOP, Open, account, case_fields, serving, until
from test_cache import cached_tokens, clear, whole_pages_before

IMAGES = TOP / "tests/golden/data/canary-8bit/images"
SEEN = GOLDEN["vision"]
LABEL = '{model_name="canary"}'


@pytest.fixture(scope="module")
def eyes():
    with serving("--host-cache", "64M") as s:
        yield s


def data_url(png):
    return "data:image/png;base64," + base64.b64encode(png).decode()


def image(case):
    return data_url((IMAGES / case["image"]).read_bytes())


def png(width, height, look):
    """An image of its own: no two looks are alike."""
    line = random.Random(look).randbytes(3 * width)
    rows = b"".join(b"\0" + line[y % 97 :] + line[: y % 97] for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def about(url, question, **fields):
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    return {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 40, "return_token_ids": True,
            "chat_template_kwargs": {"enable_thinking": False}, **fields}


def ask(server, case):
    return server.post("/v1/chat/completions", **about(image(case), case["question"]))


def answer(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"]


def images(server):
    return server.status()["models"][0]["images"]


@pytest.mark.smoke
def test_the_reference_sees_the_same_alone_and_in_company(eyes):
    clear(eyes)
    for case in SEEN:
        reply = ask(eyes, case)
        assert answer(reply) == case["greedy_ids"]
        assert reply.json()["prompt_token_ids"] == case["prompt_ids"]
    texts = [case for case in GOLDEN["cases"] if not case["tools"]][:4]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        seen = [pool.submit(ask, eyes, case) for case in SEEN * 2]
        said = [pool.submit(eyes.post, "/v1/chat/completions", **case_fields(case)) for case in texts]
        assert [answer(r.result()) for r in seen] == [case["greedy_ids"] for case in SEEN * 2]
        assert [answer(r.result()) for r in said] == [case["greedy_ids"] for case in texts]


def test_each_image_is_encoded_once_and_one_that_is_in_a_prefix_not_at_all(eyes):
    clear(eyes)
    before = images(eyes)
    story = "Look at it for a while. " * 20
    url = data_url(png(128, 96, 5))
    first = eyes.post("/v1/chat/completions", **about(url, story + "What is it?"))
    assert cached_tokens(first) == 0
    again = eyes.post("/v1/chat/completions", **about(url, story + "What is it?"))
    assert cached_tokens(again) == whole_pages_before(first.json()["usage"]["prompt_tokens"])
    assert answer(again) == answer(first)
    assert images(eyes)["encoded"] == before["encoded"] + 1
    assert images(eyes)["found"] == before["found"]
    # In another place of a prompt it is known, though no prefix is.
    moved = about(url, "What is it?")
    moved["messages"][0]["content"].insert(0, {"type": "text", "text": story})
    assert cached_tokens(eyes.post("/v1/chat/completions", **moved)) == 0
    assert images(eyes)["encoded"] == before["encoded"] + 1
    assert images(eyes)["found"] == before["found"] + 1
    other = eyes.post("/v1/chat/completions", **about(data_url(png(128, 96, 6)), story + "What is it?"))
    assert cached_tokens(other) == 0
    assert images(eyes)["encoded"] == before["encoded"] + 2
    metrics = eyes.metrics()
    assert metrics["plateau_vision_images_encoded_total" + LABEL] == images(eyes)["encoded"]
    assert metrics["plateau_vision_cache_hits_total" + LABEL] == images(eyes)["found"]
    assert metrics["plateau_vision_cache_bytes" + LABEL] == images(eyes)["bytes"] > 0
    assert metrics["plateau_vision_encode_seconds_total" + LABEL] > 0
    status = eyes.status()
    for name, figure in status["caches"]["images"].items():  # all models together, and here is one
        assert figure == images(eyes)[name]
    assert status["media"]["images"] == metrics["plateau_media_images_total"] >= 4
    assert (status["media"]["waiting"], status["media"]["working"]) == (0, 0)


def test_a_clear_takes_features_too_and_encoding_s_memory_goes_by_itself(eyes):
    answer(ask(eyes, SEEN[0]))
    assert account(eyes.memory(), "images")["used_bytes"] > 0
    until(lambda: account(eyes.memory(), "vision")["used_bytes"] == 0)
    kept = images(eyes)
    cleared = clear(eyes)
    assert cleared["entries"] >= kept["kept"] > 0
    assert cleared["bytes_reclaimed"] >= kept["bytes"]
    assert account(eyes.memory(), "images")["used_bytes"] == 0
    assert account(eyes.memory(), "media")["used_bytes"] == 0


def test_a_running_stream_goes_on_while_a_image_is_encoded(eyes):
    clear(eyes)
    large = about(data_url(png(1000, 1000, 9)), "What is it?", max_tokens=1)
    with eyes.begin() as stream, concurrent.futures.ThreadPoolExecutor(1) as pool:
        for _ in range(5):
            stream.event()
        stream.read_on()
        before, steps = images(eyes), eyes.status()["models"][0]["steps"]
        asked = pool.submit(eyes.post, "/v1/chat/completions", **large)
        seen = until(lambda: eyes.requests("encoding") or asked.done(), every=0.001)
        if seen is not True:
            assert seen[0]["images"] == 1 and seen[0]["images_done"] == 0
            assert seen[0]["bytes"] > 1000 * 1000 * 3 * 0.9
        assert asked.result().status_code == 200
        after = images(eyes)
        assert after["encoded"] == before["encoded"] + 1
        slices = after["slices"] - before["slices"]
        assert slices > 5
        assert eyes.status()["models"][0]["steps"] - steps >= slices - 1
        came = stream.came
        until(lambda: stream.came > came)


def test_who_leaves_while_its_image_is_encoded_leaves_nothing(eyes):
    clear(eyes)
    with eyes.begin(stream=False):
        for look in range(20, 24):
            # It leaves as soon as its image is being encoded; where the test missed that, while it is
            # decoded.
            body = about(data_url(png(700, 900, look)), "What is it?", max_tokens=20000, ignore_eos=True)
            with Open(eyes, "/v1/chat/completions", body):
                until(lambda: eyes.requests("encoding") or len(eyes.requests("decoding")) == 2, every=0.001)
    eyes.wait_idle()
    until(lambda: account(eyes.memory(), "media")["used_bytes"] == 0)


def test_without_a_cache_of_features_each_is_made_when_it_is_needed():
    with serving("--host-cache", "0", "--image-cache", "0") as s:
        for _ in range(2):
            assert answer(ask(s, SEEN[2])) == SEEN[2]["greedy_ids"]
        assert images(s)["encoded"] == 2
        assert images(s)["kept"] == 0 and images(s)["bytes"] == 0
