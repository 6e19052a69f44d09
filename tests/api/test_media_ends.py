"""How requests with images end before their time, in each of their phases, one by one and a hundred at
once; and that nothing stays."""

import contextlib
import itertools
import json
import pathlib
import random
import time

import pytest
from PIL import Image

from conftest import Faulty, Open, refused, settled, serving, until
from seeing import SEEN, ask, asking, data_url, encoded, file_of, image, nothing_left, png_of, tokens
from test_faults import told as was_served
from test_media_sources import web  # noqa: F401 (a fixture)
from test_video import family, projector, runs, told  # noqa: F401 (a fixture)

WHAT = SEEN[1]["question"]
IMAGE = file_of(SEEN[1])
# Waits for the thread that a video has; a small image does not.
FRAMES = {"type": "video", "video": [data_url(IMAGE)] * 2}
looks = itertools.count()


@pytest.fixture(scope="module")
def busy(projector, tmp_path_factory):  # noqa: F811
    """One thread for videos and large images, two rows; programs that hang in place of ffmpeg; it fetches
    from this machine."""
    empty = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(empty))
        with serving("--host-cache", "64M", "--media-threads", 1, "--max-num-seqs", 2, "--allow-remote-media", kind=Faulty) as s:
            s.order("local")
            yield s
            nothing_left(s)
    assert list(empty.iterdir()) == []


def new(width, height):
    """A new image for every cache, small as a file."""
    colour = (next(looks) * 7919) % (1 << 24)
    return encoded(Image.new("RGB", (width, height), colour), "PNG")


def huge():
    """64 million pixels in some kilobytes: decoding takes a while."""
    row = b"\0" + random.Random(next(looks)).randbytes(1) * 1000
    return png_of(8000, 8000, row * 8000, depth=1, colour=0)


def state(request):
    """Its phase; while its images are being prepared, their state."""
    return request["media"]["state"] if request["phase"] == "media" else request["phase"]


# The request, the other work under way, and the state in which it ends.
PHASES = {
    "fetching": (lambda web: asking(image(web.url + "/slow"), WHAT), []),
    "waiting": (lambda web: asking(FRAMES, WHAT), ["video"]),
    "working": (lambda web: asking(huge(), huge(), huge(), WHAT), []),
    "queued": (lambda web: asking(new(64, 64), WHAT), ["row", "row"]),
    "encoding": (lambda web: asking(*[new(1024, 1024) for _ in range(3)], WHAT), []),
    "decoding": (lambda web: asking(IMAGE, WHAT, max_tokens=20000, ignore_eos=True), []),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("phase", PHASES)
def test_who_leaves_in_any_phase_leaves_nothing(busy, web, phase, stream):  # noqa: F811
    make, company = PHASES[phase]
    others = [Open(busy, "/v1/chat/completions", asking(told("hang"), WHAT)) if other == "video" else busy.begin(stream=False) for other in company]
    try:
        until(lambda: len([r for r in busy.requests() if state(r) in ("working", "decoding")]) == len(others))
        for how in ("leaves", "is deleted"):
            with Open(busy, "/v1/chat/completions", {**make(web), "stream": stream}) as left:
                if phase == "decoding" and stream:
                    left.read_on()
                shown = until(lambda: [r for r in busy.requests() if state(r) == phase][-1:])[0]
                if how == "leaves":
                    left.leave()
                else:
                    assert busy.http.delete(f"/v1/requests/{shown['id']}").status_code == 200
                until(lambda: shown["id"] not in [r["id"] for r in busy.requests()])
            until(lambda: len(busy.requests()) == len(others) == busy.status()["engine_jobs"] + company.count("video"))
    finally:
        for other in others:
            other.leave()
    nothing_left(busy)
    assert tokens(ask(busy, IMAGE, WHAT)) == SEEN[1]["greedy_ids"]


def test_a_full_queue_is_told_and_empties(projector):  # noqa: F811
    with serving("--media-threads", 1, "--max-connections", 600, "--max-requests", 500) as s, contextlib.ExitStack() as stack:
        film = stack.enter_context(Open(s, "/v1/chat/completions", asking(told("hang"), WHAT)))
        until(lambda: [r for r in s.requests("media") if state(r) == "working"])
        body = asking(FRAMES, WHAT, max_tokens=1)
        crowd = [stack.enter_context(Open(s, "/v1/chat/completions", body)) for _ in range(256)]
        until(lambda: s.metrics()["plateau_media_waiting"] == 256)
        reply = s.post("/v1/chat/completions", **body)
        refused(reply, 429, "busy", "256 requests with images wait", "at most 256")
        assert int(reply.headers["Retry-After"]) >= 1
        for one in crowd[::2]:
            one.leave()
        until(lambda: s.metrics()["plateau_media_waiting"] == 128)
        film.leave()
        assert [one.answer().status for one in crowd[1::2]] == [200] * 128
        nothing_left(s)


def anonymous(server):
    """Returns the server's anonymous memory, once nothing is left to give back."""
    settled(server)
    return server.memory()["system"]["rss_anon_bytes"]


def test_a_hundred_who_leave_at_any_moment_leave_nothing(busy, web):  # noqa: F811
    draw = random.Random(6)
    kinds = [
        lambda: asking(IMAGE, WHAT), lambda: asking(new(draw.randrange(30, 600), draw.randrange(30, 600)), WHAT),
        lambda: asking(new(200, 200), IMAGE, new(300, 40), WHAT), lambda: asking(image(web.url + "/slow"), WHAT),
        lambda: asking(image(web.url + "/image"), WHAT), lambda: asking(told("hang"), WHAT), lambda: asking(IMAGE[:70], WHAT),
        lambda: asking({"type": "video", "video": [data_url(IMAGE)] * 6}, WHAT), lambda: asking(huge(), WHAT),
    ]

    def crowd(count):
        for i in range(count):
            body = {**kinds[i % len(kinds)](), "stream": draw.random() < 0.5}
            with Open(busy, "/v1/chat/completions", body):
                time.sleep(draw.choice([0, 0.001, 0.005, 0.02, 0.05]))

    crowd(20)
    before, tasks = anonymous(busy), busy.metrics()["plateau_media_requests_total"]
    threads = len(list(pathlib.Path(f"/proc/{busy.process.pid}/task").iterdir()))
    crowd(100)
    after = anonymous(busy)
    nothing_left(busy)
    assert busy.metrics()["plateau_media_requests_total"] > tasks + 30
    assert len(list(pathlib.Path(f"/proc/{busy.process.pid}/task").iterdir())) == threads
    if busy.memory()["system"]["heap_bytes"] > 0:  # a sanitizer keeps freed memory
        assert after <= before + max(8 << 20, before // 100)
    assert tokens(ask(busy, IMAGE, WHAT)) == SEEN[1]["greedy_ids"]


@pytest.mark.parametrize("lasts", ["", " all"], ids=["once", "from then on"])
def test_memory_may_be_refused_to_images_at_any_point(busy, lasts):
    """Each reservation of a request with images of three formats and a video is refused once, one after
    the other. The error says so, or the request succeeds anyway."""
    kinds = [encoded(Image.new("RGB", (100, 80), "red"), kind) for kind in ("PNG", "JPEG", "WEBP")]
    frames = {"type": "video", "video": [data_url(IMAGE)] * 3}
    ends, n, asked = [], 0, 1
    while asked >= n:
        n += 1
        assert busy.http.post("/api/hot-cache/clear").status_code == 200
        busy.order(f"refuse {n}{lasts}")
        reply = ask(busy, *kinds, frames, WHAT, max_tokens=2)
        asked = busy.order("refuse 0")
        ends.append(was_served(reply))
        nothing_left(busy)
    assert ends[-1] and not ends[0] and n > 20
    assert tokens(ask(busy, IMAGE, WHAT)) == SEEN[1]["greedy_ids"]


def test_a_model_that_goes_ends_those_whose_images_are_on_their_way(projector, web):  # noqa: F811
    with serving("--drain", 0, "--allow-remote-media", "--media-threads", 1, kind=Faulty) as s, contextlib.ExitStack() as stack:
        s.order("local")
        bodies = {"fetching": asking(image(web.url + "/slow"), WHAT), "working": asking(told("hang"), WHAT),
                  "waiting": asking(FRAMES, WHAT)}
        waiting = []
        for phase, body in bodies.items():
            waiting.append(stack.enter_context(Open(s, "/v1/chat/completions", body)))
            until(lambda: [r for r in s.requests("media") if state(r) == phase])
        assert s.post("/v1/models/canary/unload").status_code in (200, 202)
        for one in waiting:
            assert one.answer().status == 503
            assert json.loads(one.answer().read())["error"]["code"] == "model_unloading"
        nothing_left(s)
        assert tokens(ask(s, IMAGE, WHAT)) == SEEN[1]["greedy_ids"]


def test_a_server_that_ends_takes_its_videos_with_it(projector):  # noqa: F811
    server = Faulty()
    try:
        with Open(server, "/v1/chat/completions", asking(told("hang"), WHAT)) as one:
            pids = until(lambda: len(family(server)) == 2 and family(server))
            for _ in range(2):  # to drain, and then at once
                server.process.terminate()
                until(lambda: server.said("event=stopping"))
            assert one.answer().status == 503
            assert server.wait() == 0, "".join(server.lines[-20:])
        until(lambda: not any(runs(pid) for pid in pids))
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
