"""Videos through HTTP: from containers and from lists of frames, sampled as in the reference, within
limits. However they end, no process, no file and no byte remains."""

import os
import pathlib
import random
import shutil
import subprocess

import pytest
from PIL import Image

from conftest import Open, account, refused, serving, until
from seeing import (SEEN, ask, asking, children, choice, data_url, encoded, file_of, image, nothing_left, images, pixels_of,
                    tokens, video)
from test_cache import clear

WHAT = "What do you see?"
# Libraries that the server needs; the videos themselves are made with it, too.
needs_ffmpeg = pytest.mark.skipif(not (shutil.which("ffmpeg") and shutil.which("ffprobe")), reason="there is no ffmpeg")


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """The directory that the server may read files from."""
    return tmp_path_factory.mktemp("films")


@pytest.fixture(scope="module")
def cinema(films, tmp_path_factory):
    empty = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(empty))
        with serving("--host-cache", "64M", "--media-dir", films, "--max-video-seconds", 300, "--max-media-bytes", "2M",
                     "--max-media-pixels", 1000000, "--media-timeout", 30) as s:
            yield s
            nothing_left(s)
    assert list(empty.iterdir()) == []


def film(path, *options, source="testsrc", size="128x96", rate=8, seconds=2, sound=False):
    """Makes a video; returns its bytes."""
    inputs = ["-f", "lavfi", "-i", f"{source}=size={size}:rate={rate}:duration={seconds}"]
    if sound:
        inputs += ["-f", "lavfi", "-i", f"sine=duration={seconds}"]
    subprocess.run(["ffmpeg", "-v", "error", "-y", *inputs, *options, str(path)], check=True)
    return path.read_bytes()


def film_of(path, images, rate, *options):
    """A video that loses nothing of the images."""
    width, height = images[0].size
    raw = b"".join(i.tobytes() for i in images)
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(rate),
                    "-i", "-", *(options or ("-c:v", "ffv1", "-pix_fmt", "gbrp")), str(path)], input=raw, check=True)
    return path.read_bytes()


def rendered(server, reply):
    return server.post("/detokenize", tokens=reply.json()["prompt_token_ids"]).json()["prompt"].replace("<|video_pad|>", ".")


# ---- accepted ----

CONTAINERS = {
    "mp4": ("-c:v", "libx264", "-pix_fmt", "yuv420p"),
    "webm": ("-c:v", "libvpx-vp9"),
    "mkv": ("-c:v", "ffv1"),
    "avi": ("-c:v", "mpeg4"),
    "ts": ("-c:v", "mpeg2video"),
    "mov": ("-c:v", "prores"),  # has 10 bits
    "flv": ("-c:v", "flv"),
    "gif": (),
}


@needs_ffmpeg
@pytest.mark.smoke
def test_containers_of_every_kind_become_the_same_frames(cinema, films):
    """16 frames, of which two a second are looked at: 0, 5, 10 and 15, as two pairs; 4 x 3 tokens each."""
    for kind, options in CONTAINERS.items():
        data = film(films / f"kind.{kind}", *options)
        address = f"file://{films}/kind.{kind}" if kind == "mp4" else data_url(data, "video/" + kind)
        reply = ask(cinema, video(address), WHAT, max_tokens=2)
        assert "<0.3 seconds><|vision_start|>............<|vision_end|><1.6 seconds><|vision_start|>............<|vision_end|>" \
            in rendered(cinema, reply), kind
    nothing_left(cinema)


@needs_ffmpeg
def test_a_video_with_sound_is_seen(cinema, films):
    for kind, sound in (("mp4", "aac"), ("webm", "libopus"), ("mkv", "libmp3lame")):
        film(films / f"sound.{kind}", *CONTAINERS[kind], "-c:a", sound, sound=True)
        assert ask(cinema, video(f"file://{films}/sound.{kind}"), WHAT, max_tokens=2).status_code == 200


@needs_ffmpeg
def test_a_container_and_the_list_of_its_frames_are_the_same_video(cinema, films):
    """Has as many frames as the model sees, without loss and not resized: equal pixels, so that nothing is
    encoded for the second form."""
    clear(cinema)
    frames = [pixels_of(SEEN[0]).rotate(45 * i) for i in range(6)]
    data = film_of(films / "six.mkv", frames, 2)
    before = images(cinema)["encoded"]
    from_container = ask(cinema, video(data_url(data)), WHAT, logprobs=True, top_logprobs=3)
    assert images(cinema)["encoded"] == before + 3
    urls = [data_url(encoded(i, "PNG")) for i in frames]
    for part in ({"type": "video", "video": urls, "fps": 2}, {"type": "video", "video": urls, "sample_fps": 2.0},
                 {"type": "video_url", "video_url": [{"url": u} for u in urls]}):
        clear(cinema)
        before = images(cinema)["encoded"]
        again = ask(cinema, part, WHAT, logprobs=True, top_logprobs=3)
        assert again.json()["prompt_token_ids"] == from_container.json()["prompt_token_ids"]
        assert choice(again) == choice(from_container)
        assert images(cinema)["encoded"] == before + 3
    assert ask(cinema, video(data_url(data)), WHAT).json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert images(cinema)["encoded"] == before + 3


@needs_ffmpeg
def test_a_still_video_is_one_image_many_times(cinema, films):
    """Equal pairs are encoded once, however many there are."""
    clear(cinema)
    data = film_of(films / "still.mkv", [pixels_of(SEEN[1])] * 20, 4)
    before = images(cinema)["encoded"]
    reply = ask(cinema, video(data_url(data)), WHAT, max_tokens=4)
    shown = rendered(cinema, reply)
    assert shown.count("<|vision_start|>....<|vision_end|>") == 5
    assert images(cinema)["encoded"] == before + 1
    # A list of its frames is the same video.
    clear(cinema)
    frames = [data_url(file_of(SEEN[1]))] * 10
    listed = ask(cinema, {"type": "video", "video": frames, "fps": 2}, WHAT, max_tokens=4)
    assert listed.json()["usage"]["prompt_tokens"] == reply.json()["usage"]["prompt_tokens"]
    assert images(cinema)["encoded"] == before + 2


@needs_ffmpeg
def test_more_than_a_hundred_frames_are_looked_at(cinema, films):
    """Selected frames: each has a color of its own, and frames of a list with the same indices are the
    same images."""
    clear(cinema)
    frames = [Image.new("RGB", (32, 32), (i % 16 * 16, i // 16 * 16, 7)) for i in range(250)]
    data = film_of(films / "many.mkv", frames, 25)
    before = images(cinema)["encoded"]
    # 10 seconds at 20 frames a second are 200 frames: round(linspace(0, 249, 200)).
    reply = ask(cinema, video(data_url(data), fps=20), WHAT, max_tokens=1)
    assert rendered(cinema, reply).count("<|vision_start|>") == 100
    assert images(cinema)["encoded"] == before + 100
    chosen = [frames[round(i * 249 / 199)] for i in range(200)]
    listed = ask(cinema, {"type": "video", "video": [data_url(encoded(i, "PNG")) for i in chosen], "fps": 20}, WHAT, max_tokens=1)
    assert listed.status_code == 200
    assert images(cinema)["encoded"] == before + 100


@needs_ffmpeg
def test_frames_per_second_may_be_asked_for(cinema, films):
    data = data_url(film(films / "fps.mp4", *CONTAINERS["mp4"], seconds=4))
    pairs = {}
    for fps in (0.5, 2, 4, 1000):
        shown = rendered(cinema, ask(cinema, video(data, fps=fps), WHAT, max_tokens=1))
        pairs[fps] = shown.count("<|vision_start|>")
    assert pairs == {0.5: 2, 2: 4, 4: 8, 1000: 16}
    for fps in (0, -1, "2", 1001, [2]):
        refused(ask(cinema, video(data, fps=fps), WHAT), 400, "invalid_value", "fps")


@needs_ffmpeg
def test_videos_beside_images_keep_their_places(cinema, films):
    data = data_url(film(films / "beside.mp4", *CONTAINERS["mp4"]))
    still = image(data_url(file_of(SEEN[1])))
    reply = ask(cinema, "A", still, "B", video(data), "C", still, WHAT, max_tokens=2)
    shown = rendered(cinema, reply)
    assert -1 < shown.find("A<|vision_start|><|image_pad|>") < shown.find("B<0.3 seconds>") < \
        shown.find("C<|vision_start|><|image_pad|>")
    assert shown.count("<|image_pad|>") == 2 * 4


# ---- refused ----


def damaged(data):
    """A tenth in the middle is something else."""
    noise = random.Random(3).randbytes(len(data) // 10)
    return data[: len(data) // 2] + noise + data[len(data) // 2 + len(noise) :]


@needs_ffmpeg
def test_what_is_no_whole_video_is_refused(cinema, films):
    mp4 = film(films / "whole.mp4", *CONTAINERS["mp4"])
    broken = "invalid_media"
    for data, code, words in [
        (b"", broken, "not a video in a supported format"),
        (random.Random(1).randbytes(5000), broken, "not a video in a supported format"),
        (mp4[: len(mp4) // 2], broken, "not a video in a supported format"),
        (damaged(mp4), broken, "not all frames can be decoded"),
        (damaged(film(films / "a.ts", *CONTAINERS["ts"])), broken, "not all frames can be decoded"),
        (file_of(SEEN[0]), broken, "not a video in a supported format"),
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nfile://%b/a.ts\n#EXT-X-ENDLIST\n" % bytes(films), broken, "not a video"),
        (b"ffconcat version 1.0\nfile %b/whole.mp4\n" % bytes(films), broken, "not a video"),
    ]:
        error = refused(ask(cinema, "See:", video(data_url(data)), WHAT), 400, code, words)
        assert error["param"] == "messages[0].content[1]"
        nothing_left(cinema)
    refused(ask(cinema, image(data_url(mp4)), WHAT), 400, broken, "send PNG, JPEG, WebP or GIF")


@needs_ffmpeg
def test_a_video_has_limits(cinema, films):
    film(films / "long.mp4", *CONTAINERS["mp4"], rate=1, seconds=301, size="32x32")
    # Its container has no duration: the frames tell.
    film(films / "live.mkv", *CONTAINERS["mkv"], "-live", "1", rate=1, seconds=302, size="32x32")
    film(films / "wide.avi", "-c:v", "mjpeg", size="1250x802", rate=1, seconds=1)
    with open(films / "heavy.mp4", "wb") as f:
        f.truncate((2 << 20) + 1)
    (films / "empty.mp4").touch()
    for name, code, words in [
        ("long.mp4", "media_too_large", ["301 seconds", "the limit is 300", "--max-video-seconds"]),
        ("live.mkv", "media_too_large", ["302 seconds", "the limit is 300", "--max-video-seconds"]),
        ("wide.avi", "media_too_large", ["1250 x 802", "the limit is 1000000 pixels", "--max-media-pixels"]),
        ("heavy.mp4", "media_too_large", [(2 << 20) + 1, "at most 2097152", "--max-media-bytes"]),
        ("empty.mp4", "invalid_media", ["the file is empty"]),
        ("none.mp4", "invalid_media", ["No such file"]),
    ]:
        refused(ask(cinema, video(f"file://{films}/{name}"), WHAT), 400, code, *words)
    refused(ask(cinema, video(data_url(bytes((2 << 20) + 1))), WHAT), 400, "media_too_large", (2 << 20) + 1, 2 << 20)
    nothing_left(cinema)


def test_a_list_of_frames_has_limits(cinema):
    frame = data_url(file_of(SEEN[1]))

    def listed(frames, **more):
        return ask(cinema, {"type": "video", "video": frames, **more}, WHAT, max_tokens=2)

    assert listed([frame]).status_code == 200
    refused(listed([frame] * 769), 400, "media_too_large", "769 frames", "at most 768")
    refused(listed([frame, frame, data_url(file_of(SEEN[1])[:90])]), 400, "invalid_media", "frame 2", "ends early")
    refused(listed([frame, 5]), 400, "invalid_value", "frame 1")
    refused(listed([]), 400, "invalid_value", "no video URL")
    refused(listed([frame], max_frames=1), 400, "unsupported_value", "max_frames")
    refused(listed([frame, "file:///etc/passwd"]), 400, "invalid_media", "--media-dir")
    nothing_left(cinema)


@needs_ffmpeg
def test_a_video_that_does_not_fit_the_memory_for_media_is_refused(films):
    data = film(films / "fits.mp4", *CONTAINERS["mp4"])
    with serving("--media-memory", "64M") as s:
        refused(ask(s, video(data_url(data)), WHAT), 413, "media_too_large", 64 << 20, "--media-memory")
        nothing_left(s)
        assert tokens(ask(s, file_of(SEEN[1]), SEEN[1]["question"])) == SEEN[1]["greedy_ids"]


def test_without_ffmpeg_videos_are_refused_and_lists_of_frames_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with serving("--max-video-frames", 4) as s:
        refused(ask(s, video(data_url(b"any")), WHAT), 400, "unsupported_value", "ffmpeg", "list of images")
        frame = data_url(file_of(SEEN[1]))
        assert ask(s, {"type": "video", "video": [frame] * 4}, WHAT, max_tokens=2).status_code == 200
        refused(ask(s, {"type": "video", "video": [frame] * 5}, WHAT), 400, "media_too_large", "5 frames", "at most 4")
        nothing_left(s)


# ---- how it ends ----

# In place of ffprobe and ffmpeg: the first line of the video has their behaviour.
PROBE = """#!/bin/sh
printf 'width=64\\nheight=64\\nnb_read_packets=100\\navg_frame_rate=10/1\\nduration=10\\n'
"""
PROJECTOR = """#!/bin/sh
frame() { printf 'P6\\n64 64\\n255\\n'; head -c 12288 /dev/zero; }
read -r word < /proc/self/fd/3
case $word in
hang) frame; frame; frame; frame; sleep 1000 & wait ;;
deaf) trap '' TERM HUP INT PIPE; sleep 1000 & wait ;;
few) frame; frame ;;
die) for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do frame; done; exit 1 ;;
talk) frame; echo 'what is this?' ;;
larger) frame; printf 'P6\\n9000 9000\\n255\\n'; head -c 9999999 /dev/zero ;;
more) for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do frame; done ;;
esac
"""


@pytest.fixture(scope="module")
def projector(tmp_path_factory):
    programs = tmp_path_factory.mktemp("programs")
    for name, words in (("ffprobe", PROBE), ("ffmpeg", PROJECTOR)):
        (programs / name).write_text(words)
        (programs / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        yield patch


@pytest.fixture(scope="module")
def stage(projector):
    with serving("--media-threads", 2) as s:
        yield s
        nothing_left(s)


def told(word):
    return video(data_url(word.encode() + b"\n"))


def family(server):
    """Its processes and theirs."""
    found = []
    for pid in children(server):
        found.append(pid)
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            found += task.read_text().split()
    return found


def runs(pid):
    """True while it exists; its exit status may be collected late by another process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def working(server):
    """The videos that are being read and have had frames."""
    return [r for r in server.requests("media") if r["media"]["state"] == "working" and r["media"]["frames_decoded"] >= 4]


@pytest.mark.parametrize("word", ["few", "die", "talk", "larger"])
def test_a_program_that_fails_is_told_and_no_video_was_seen(stage, word):
    before = stage.metrics()["plateau_media_videos_total"]
    error = refused(ask(stage, told(word), WHAT), 400, "invalid_media", "not all frames")
    assert error["param"] == "messages[0].content[0]"
    nothing_left(stage)
    assert stage.metrics()["plateau_media_videos_total"] == before


def test_a_program_has_time_and_no_more(projector):
    with serving("--media-timeout", 1) as s:
        refused(ask(s, told("deaf"), WHAT), 400, "media_too_large", "within 1 s", "--media-timeout")
        nothing_left(s)


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["leaves", "is deleted"])
def test_a_client_that_goes_while_its_video_is_read(stage, how):
    with Open(stage, "/v1/chat/completions", asking(told("hang"), WHAT, stream=True)) as left:
        shown = until(lambda: working(stage))[0]
        assert shown["media"] == {"state": "working", "parts": 1, "parts_done": 0, "bytes_fetched": 0, "frames": 20,
                                  "frames_decoded": 4}
        assert shown["progress"] == 0.2
        pids = until(lambda: len(family(stage)) == 2 and family(stage))
        assert account(stage.memory(), "video")["reserved_bytes"] > 80 << 20
        # A request with images does not wait for it; one with a video does.
        assert tokens(ask(stage, file_of(SEEN[1]), SEEN[1]["question"])) == SEEN[1]["greedy_ids"]
        with Open(stage, "/v1/chat/completions", asking(told("hang"), WHAT)):
            until(lambda: [r for r in stage.requests("media") if r["media"]["state"] == "waiting"])
        until(lambda: len(stage.requests()) == 1)
        if how == "leaves":
            left.leave()
        else:
            assert stage.http.delete(f"/v1/requests/{shown['id']}").status_code == 200
        nothing_left(stage, 3)
        until(lambda: not any(runs(pid) for pid in pids))
