"""Other programs take the memory that the server has not committed yet, and give it back.

Running requests wait and get the tokens that they always get. New ones, and loads, are refused with the
numbers."""

import concurrent.futures

import pytest

from conftest import FAULTY, MODEL, Faulty, Open, all_returned, refused, serving, settled, until
from seeing import SEEN, data_url, file_of, image, text

pytestmark = pytest.mark.skipif(not FAULTY.exists(), reason="built without tests")

PATH = "/v1/completions"
ALL = 1 << 62
TOKENS = 1000
STREAMS = 4
FAKE = ("--device", "fake:0", "--device-memory-limit", "1G")
OPTIONS = ("--spec", "off", "--max-image-pixels", 0, "--host-cache", "16M", "--max-model-len", 4096)
TAKE, GIVE = (f"others {ALL}", "scarce"), ("others 0", "plenty")  # a device's memory; the machine's
DEVICES = pytest.mark.parametrize("kind, device", [(0, FAKE), (1, ())], ids=["fake", "cpu"])


def body(i, tokens=TOKENS):
    return {"prompt": [5 + i] * 40, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "stream": True}


def tokens_of(events):
    found = list(events)
    assert not any("error" in e for e in found if isinstance(e, dict)), found[-1]
    return [t for e in found if isinstance(e, dict) for c in e["choices"] for t in c.get("token_ids") or []]


def computed(server, i, tokens=TOKENS):
    with Open(server, PATH, body(i, tokens)) as stream:
        return tokens_of(stream.events())


def refused_for_memory(server, where):
    """New requests are refused, once the first has waited for a moment."""
    reply = until(lambda: (r := server.complete("a", max_tokens=2)).status_code == 503 and r)
    error = refused(reply, 503, "memory_short", "Running requests go on")
    assert where in error["message"] and int(reply.headers["retry-after"]) >= 1


@DEVICES
def test_running_requests_wait_and_new_ones_are_refused(kind, device):
    with serving(*device, *OPTIONS, kind=Faulty) as server:
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            want = list(pool.map(lambda i: computed(server, i), range(STREAMS)))
            before = settled(server)
            streams = [Open(server, PATH, body(i)) for i in range(STREAMS)]
            first = [s.event() for s in streams]
            server.order(TAKE[kind])
            rest = [pool.submit(lambda s=s: tokens_of(s.events())) for s in streams]
            refused_for_memory(server, ("of device fake:0, and", "the machine's memory")[kind])
            assert server.http.get("/health").status_code == 200
            assert not all(r.done() for r in rest)
            server.order(GIVE[kind])
            got = [[t for c in f["choices"] for t in c["token_ids"]] + r.result(120) for f, r in zip(first, rest)]
            for s in streams:
                s.leave()
        assert got == want
        assert server.complete("a", max_tokens=2).status_code == 200
        assert server.said("event=memory_taken") and server.said("event=memory_is_back")
        all_returned(server, before)


@DEVICES
def test_a_model_that_rests_refuses_until_memory_is_back(kind, device):
    with serving(*device, *OPTIONS, kind=Faulty) as server:
        want = server.complete("a", max_tokens=4, temperature=0).json()["choices"][0]["text"]
        before = settled(server)
        server.order(TAKE[kind])
        refused_for_memory(server, ("of device fake:0, and", "the machine's memory")[kind])
        assert server.wait_idle()["requests"] == []
        all_returned(server, before)
        server.order(GIVE[kind])
        assert server.complete("a", max_tokens=4, temperature=0).json()["choices"][0]["text"] == want
        all_returned(server, before)


def test_a_load_is_refused_with_the_numbers(tmp_path):
    (tmp_path / "second").symlink_to(MODEL)
    with serving(*FAKE, *OPTIONS, "--pin", MODEL.name, "--model-dir", tmp_path, kind=Faulty) as server:
        before = settled(server)
        server.order(f"others {ALL}")
        (device,) = server.memory()["system"]["devices"]
        assert device["free_bytes"] == 0 and device["others_bytes"] == (1 << 30) - device["committed_bytes"]
        assert f'plateau_device_memory_bytes{{device="fake:0",kind="others"}} {device["others_bytes"]}' in server.http.get("/metrics").text
        error = refused(server.http.post("/v1/models/second/load"), 507, "out_of_memory", "There is no memory to load second")
        assert f"of its {1 << 30} bytes 0 are free" in error["message"]
        assert f"Other programs hold {device['others_bytes']}." in error["message"]
        all_returned(server, before)
        server.order("others 0")
        assert server.http.post("/v1/models/second/load").status_code == 200
        assert server.post(PATH, model="second", prompt="a", max_tokens=2).status_code == 200
        assert server.http.post("/v1/models/second/unload").status_code == 200
        all_returned(server, before)


def test_an_idle_model_goes_when_other_programs_leave_no_room_for_a_load(tmp_path):
    (tmp_path / "second").symlink_to(MODEL)
    with serving(*FAKE, *OPTIONS, "--model-dir", tmp_path, kind=Faulty) as server:
        first = MODEL.name
        assert server.complete("a", max_tokens=2).status_code == 200
        settled(server)
        memory = server.memory()
        (device,), (root,) = memory["system"]["devices"], [a for a in memory["accounts"] if a["name"] == "fake:0"]
        (own,) = [a for a in root["children"] if a["name"] == first]
        left = own["reserved_bytes"] - own["used_bytes"] // 2  # too little, until the first model goes
        server.order(f"others {device['free_bytes'] - left}")
        assert server.http.post("/v1/models/second/load").status_code == 200
        states = {m["id"]: m["state"] for m in server.status()["models"]}
        assert (states[first], states["second"]) == ("unloaded", "ready")
        assert server.post(PATH, model="second", prompt="a", max_tokens=2).status_code == 200
        server.order("others 0")
        assert server.http.post("/v1/models/second/unload").status_code == 200
        assert server.http.post(f"/v1/models/{first}/load").status_code == 200


def test_an_image_waits_for_memory():
    """Pages are there, as nothing is trimmed; the encoder's memory is not."""
    content = [image(data_url(file_of(SEEN[0]))), text("What is this?")]
    message = {"messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0}
    with serving(*FAKE, "--spec", "off", "--trim", "off", "--image-cache", 0, "--max-model-len", 4096, kind=Faulty) as server:
        assert server.complete([5] * 1000, max_tokens=64).status_code == 200
        server.order(f"others {ALL}")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(server.post, "/v1/chat/completions", **message)
            server.says("event=memory_taken")
            assert not waits.done()
            server.order("others 0")
            got = waits.result(120).json()["choices"][0]["message"]
        assert got == server.post("/v1/chat/completions", **message).json()["choices"][0]["message"]


@DEVICES
def test_a_step_without_memory_is_computed_later(kind, device):
    with serving(*device, *OPTIONS, kind=Faulty) as server:
        want = [computed(server, i, 60) for i in range(2)]
        before = settled(server)
        with Open(server, PATH, body(0, 60)) as one, Open(server, PATH, body(1, 60)) as two:
            first = [s.event() for s in (one, two)]
            server.order("lack")
            got = [[t for c in f["choices"] for t in c["token_ids"]] + tokens_of(s.events()) for f, s in zip(first, (one, two))]
        assert got == want
        assert server.said("event=step_refused")
        all_returned(server, before)


def test_steps_that_find_no_memory_cost_no_request():
    found = []
    for device in ("fake:0", "fake:0,seed=3,memory=9"):
        with serving("--device", device, *OPTIONS) as server:
            found.append([server.complete([5 + i] * 300, max_tokens=12, temperature=0, ignore_eos=True).json()["choices"][0]["text"] for i in range(4)])
            assert server.said("event=step_refused") == ("memory" in device)
    assert found[0] == found[1]
