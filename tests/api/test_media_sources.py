"""Sources of images, and refusals: each names the fault and the limit, and leaves nothing."""

import contextlib
import gzip
import http.server
import json
import os
import random
import struct
import threading

import pytest
from PIL import Image

from conftest import Faulty, Open, refused, serving, until
from seeing import SEEN, ask, asking, data_url, encoded, file_of, image, nothing_left, png_of, tokens
from test_cache import clear

WHAT = SEEN[1]["question"]
IMAGE = file_of(SEEN[1])
ANSWER = SEEN[1]["greedy_ids"]
BYTES_MAX = 100 << 10
PIXELS_MAX = 40000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files below --media-dir, and next to it."""
    top = tmp_path_factory.mktemp("media")
    shown = top / "shown"
    (shown / "a b").mkdir(parents=True)
    for path in (shown / "p.png", shown / "a b/q.png", top / "secret.png"):
        path.write_bytes(IMAGE)
    (shown / "within.png").symlink_to("a b/q.png")
    (shown / "out.png").symlink_to("../secret.png")
    (shown / "absolute.png").symlink_to(top / "secret.png")
    (shown / "up").symlink_to("..")
    (shown / "empty.png").touch()
    (shown / "half.png").write_bytes(IMAGE[: len(IMAGE) // 2])
    (shown / "long.png").write_bytes(IMAGE + bytes(BYTES_MAX))
    os.mkfifo(shown / "pipe.png")
    return shown


@pytest.fixture(scope="module")
def strict(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(empty))
        with serving("--host-cache", "64M", "--media-dir", folder, "--max-images", 3, "--max-media-bytes", BYTES_MAX,
                     "--max-media-pixels", PIXELS_MAX) as s:
            yield s
            nothing_left(s)
    assert list(empty.iterdir()) == []


@pytest.fixture
def server(strict):
    """After each test nothing is left, and the next image is seen."""
    yield strict
    nothing_left(strict)
    assert tokens(ask(strict, IMAGE, WHAT)) == ANSWER


def not_seen(server, part, code, *words):
    """It is refused as the second part of its message, beside a whole image, and no image of the request
    is shown to the model."""
    encoded_before = server.status()["models"][0]["images"]["encoded"]
    error = refused(ask(server, "One:", part, image(data_url(IMAGE)), WHAT), 400, code, *words)
    assert error["param"] == "messages[0].content[1]" and error["param"] in error["message"]
    assert server.status()["models"][0]["images"]["encoded"] == encoded_before


# ---- data URLs ----


def test_data_urls_that_are_none(server):
    clear(server)
    digits = data_url(IMAGE).split(",")[1]
    assert "+" in digits or "/" in digits
    for url, *words in [
        ("data:image/png;base64," + "@" * 8, "character 1 after the comma"),
        ("data:image/png;base64," + digits.replace("+", "-").replace("/", "_"), "does not belong there"),
        ("data:image/png;base64," + digits.replace("+", "%2B").replace("/", "%2F"), "does not belong there"),
        ("data:image/png;base64," + digits[:41], "bytes are missing"),
        ("data:image/png;base64," + digits + "=AAAA", "does not belong there"),
        ("data:image/png;base64,", "the image is empty"),
        ("data:image/png,%89PNG%0D%0A", "not in base64", "percent-escapes"),
        ("data:image/png;base64" + digits, "no comma"),
        ("data:", "no comma"),
    ]:
        not_seen(server, image(url), "invalid_media", *words)


def test_what_is_no_image(server):
    for data in (b"hello world", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7", b"BM" + bytes(60), b"\0" * 100):
        not_seen(server, image(data_url(data)), "invalid_media", "PNG, JPEG, WebP or GIF")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_images_that_end_early(server, kind):
    data = encoded(Image.frombytes("RGB", (40, 40), random.Random(2).randbytes(4800)), kind)
    name = {"WEBP": "WebP"}.get(kind, kind)
    for length in (13, len(data) // 3, len(data) * 2 // 3, len(data) - 40):
        not_seen(server, image(data_url(data[:length])), "invalid_media", f"the {name} image cannot be read")


def bombs():
    """(name, bytes): each claims to be larger than the decoder's limit, in little more than its header."""
    yield "PNG", png_of(100000, 100000, bytes(1000))
    yield "PNG", png_of(30000, 30000, bytes(1000))
    yield "PNG", png_of(201, 200, bytes(1000))
    jpeg = bytearray(encoded(Image.new("RGB", (64, 64)), "JPEG"))
    at = jpeg.index(b"\xff\xc0") + 5
    jpeg[at : at + 4] = struct.pack(">HH", 65000, 65000)
    yield "JPEG", bytes(jpeg)
    gif = bytearray(encoded(Image.new("P", (64, 64)), "GIF"))
    gif[6:10] = struct.pack("<HH", 65535, 65535)
    yield "GIF", bytes(gif)
    webp = bytearray(encoded(Image.new("RGB", (64, 64)), "WEBP", lossless=True))
    at = webp.index(b"VP8L") + 9
    webp[at : at + 4] = struct.pack("<I", 16383 - 1 | (16383 - 1) << 14)
    yield "WebP", bytes(webp)


def test_bombs_are_refused_by_their_header(server):
    media = "plateau_memory_bytes{account=\"process/media\",kind=\"peak\"}"
    for kind, data in bombs():
        assert len(data) < 2000
        not_seen(server, image(data_url(data)), "media_too_large", f"the {kind} image", "the limit is")
    assert server.metrics()[media] < 16 << 20


def test_limits_are_met_exactly(server):
    fits = IMAGE + bytes(BYTES_MAX - len(IMAGE))
    assert tokens(ask(server, fits, WHAT)) == ANSWER
    lines = data_url(fits)
    lines = image("\n".join(lines[i : i + 76] for i in range(0, len(lines), 76)))
    assert tokens(ask(server, lines, WHAT)) == ANSWER
    not_seen(server, image(data_url(fits + b"\0")), "media_too_large", f"has {BYTES_MAX + 1} bytes", BYTES_MAX, "--max-media-bytes")
    widest = encoded(Image.new("RGB", (200, 200)), "PNG")
    assert ask(server, widest, WHAT, max_tokens=1).status_code == 200
    not_seen(server, image(data_url(encoded(Image.new("RGB", (200, 201)), "PNG"))), "media_too_large", "200 x 201", PIXELS_MAX)
    not_seen(server, image(data_url(encoded(Image.new("RGB", (1000, 4)), "PNG"))), "invalid_media", "200 times")


def test_no_more_images_than_allowed(server):
    assert ask(server, IMAGE, IMAGE, IMAGE, WHAT, max_tokens=1).status_code == 200
    error = refused(ask(server, *[IMAGE] * 4, WHAT), 400, "too_many_media", "4 images", "the limit is 3", "--max-images")
    assert error["param"] == "messages"


def test_one_bad_image_among_good_ones_is_named(server):
    bad = IMAGE[:60]
    error = refused(ask(server, IMAGE, IMAGE, bad, WHAT), 400, "invalid_media", "messages[0].content[2]")
    assert error["param"] == "messages[0].content[2]"


# ---- files ----


def test_files_below_the_directory(server, folder):
    for url in (f"file://{folder}/p.png", f"file://localhost{folder}/p.png", f"FILE://{folder}//p.png", f"file://{folder}/a%20b/q.png",
                f"file://{folder}/within.png", f"file://{folder}/a b/../p.png"):
        assert tokens(ask(server, image(url), WHAT)) == ANSWER, url


@pytest.mark.smoke
def test_no_way_leads_out_of_the_directory(server, folder):
    out, elsewhere = "leads out of the directory", "not below the directory"
    for url, words in [
        (f"file://{folder}/../secret.png", out), (f"file://{folder}/%2e%2e/secret.png", out), (f"file://{folder}/a b/../../secret.png", out),
        (f"file://{folder}/out.png", out), (f"file://{folder}/absolute.png", out), (f"file://{folder}/up/secret.png", out),
        (f"file://{folder.parent}/secret.png", elsewhere), ("file:///etc/passwd", elsewhere), (f"file://{folder}", elsewhere),
        (f"file://{folder}x/p.png", elsewhere), ("file:///proc/self/environ", elsewhere),
        ("file:p.png", "file:///directory/name"), ("file://elsewhere/p.png", "file:///directory/name"),
        (f"file://{folder}/p.png%00.jpg", "file:///directory/name"),
        (f"file://{folder}/pipe.png", "no regular file"), (f"file://{folder}/a b", "no regular file"),
        (f"file://{folder}/none.png", "No such file"), (f"file://{folder}/empty.png", "the file is empty"),
        (f"file://{folder}/half.png", "ends early"),
    ]:
        not_seen(server, image(url), "invalid_media", words)
    long = f"has {len(IMAGE) + BYTES_MAX} bytes"
    not_seen(server, image(f"file://{folder}/long.png"), "media_too_large", long, BYTES_MAX, "--max-media-bytes")


def test_what_is_not_allowed_says_what_would(server, folder):
    for url in ("http://example.com/p.png", "HTTPS://example.com/p.png"):
        not_seen(server, image(url), "media_not_allowed", "--allow-remote-media")
    for url in (str(folder / "p.png"), "p.png", "ftp://example.com/p.png", "gopher://example.com/", "blob:x", "javascript:x", "http:p.png",
                data_url(IMAGE).split(",")[1]):
        not_seen(server, image(url), "invalid_media", "http, https or file", "none of these")
    for url in ("http:///p.png", "http://u:p@example.com/p.png", "http://example.com/a b.png"):
        not_seen(server, image(url), "invalid_media", "this one has")
    with serving() as s:
        not_seen(s, image(f"file://{folder}/p.png"), "media_not_allowed", "--media-dir")


# ---- the network ----


class Web(http.server.BaseHTTPRequestHandler):
    """A server that does what the path says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked.append((self.path, dict(self.headers)))
        word, _, rest = self.path[1:].partition("?")
        with contextlib.suppress(OSError):
            getattr(self, "do_" + word)(rest)
            return
        self.close_connection = True

    def send(self, data, status=200, length=None, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(data) if length is None else length, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(data)

    def do_image(self, _):
        self.send(IMAGE)

    def do_to(self, address):
        self.send(b"", 302, Location=address)

    def do_missing(self, _):
        self.send(IMAGE, 404)

    def do_nothing(self, _):
        self.send(b"")

    def do_page(self, _):
        self.send(b"<html>")

    def do_packed(self, _):
        self.send(gzip.compress(IMAGE), Content_Encoding="gzip")

    def do_half(self, _):
        self.send(IMAGE[:50], length=len(IMAGE))
        self.close_connection = True

    def do_long(self, _):
        self.send(IMAGE + bytes(BYTES_MAX))

    def do_endless(self, _):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            self.wfile.write(b"1000\r\n" + bytes(0x1000) + b"\r\n")

    def do_silent(self, _):
        self.server.closing.wait()

    def do_slow(self, _):
        self.send(IMAGE[:9], length=len(IMAGE))
        self.server.closing.wait()


@pytest.fixture(scope="module")
def web():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # its clients leave in the middle
    server.asked, server.closing = [], threading.Event()
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def fetching():
    with serving("--host-cache", "64M", "--allow-remote-media", "--max-media-bytes", BYTES_MAX, kind=Faulty) as s:
        yield s
        nothing_left(s)


@pytest.fixture
def remote(fetching):
    """One that may fetch, from public addresses only."""
    fetching.order("public")
    yield fetching
    nothing_left(fetching)


@pytest.fixture
def local(fetching):
    """One that fetches from this machine, too."""
    fetching.order("local")
    yield fetching
    nothing_left(fetching)


@pytest.mark.smoke
def test_addresses_that_are_not_public_are_not_connected_to(remote, web):
    refused_before = remote.metrics()["plateau_media_addresses_refused_total"]
    port = web.server_port
    hosts = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]",
             "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
             "[fe80::1]", "[fd00::1]", "[fec0::1]", "224.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"]
    for host in hosts:
        not_seen(remote, image(f"http://{host}:{port}/image"), "media_not_allowed", "not public")
    assert remote.metrics()["plateau_media_addresses_refused_total"] >= refused_before + len(hosts)
    assert web.asked == []
    not_seen(remote, image("http://no-such-host.invalid/p.png"), "media_fetch_failed", "could not be fetched")


def test_a_image_is_fetched(local, web):
    for path in ("/image", "/to?/image", f"/to?{web.url}/to?/to?/image"):
        assert tokens(ask(local, image(web.url + path), WHAT)) == ANSWER
    _, headers = web.asked[-1]
    assert set(headers) == {"Host", "User-Agent", "Accept"}
    fetched = local.metrics()["plateau_media_fetched_bytes_total"]
    assert tokens(ask(local, image(web.url + "/image"), image(web.url + "/image"), WHAT, max_tokens=1))
    assert local.metrics()["plateau_media_fetched_bytes_total"] == fetched + 2 * len(IMAGE)


def test_a_redirect_is_looked_at_as_its_address_was(local, web):
    for to, *words in [
        ("file:///etc/passwd", "Unsupported protocol"), ("ftp://127.0.0.1/x", "Unsupported protocol"),
        ("http://u:p@127.0.0.1/x", "could not be fetched"), ("/to?/to?/to?/image", "redirected more than 3 times"),
    ]:
        not_seen(local, image(f"{web.url}/to?{to}"), "media_fetch_failed", *words)
    # The first address passes; the address of each redirect is checked anew. Once the request stands at the
    # first one, only public ones pass.
    web.asked.clear()
    gate = threading.Event()

    def do_gate(self, rest):
        gate.wait(30)
        self.do_to(rest)

    Web.do_gate = do_gate
    result = []
    asking = threading.Thread(target=lambda: result.append(ask(local, image(f"{web.url}/gate?http://localhost:{web.server_port}/image"), WHAT)))
    asking.start()
    until(lambda: web.asked)
    local.order("public")
    gate.set()
    asking.join(30)
    refused(result[0], 400, "media_not_allowed", "not public")
    assert [path.partition("?")[0] for path, _ in web.asked] == ["/gate"]


def test_what_other_servers_do_wrong_is_told(local, web):
    for path, code, *words in [
        ("missing", "media_fetch_failed", "status 404"),
        ("nothing", "media_fetch_failed", "could not be fetched"),
        ("half", "media_fetch_failed", "could not be fetched"),
        ("page", "invalid_media", "PNG, JPEG, WebP or GIF"),
        ("packed", "invalid_media", "PNG, JPEG, WebP or GIF"),
        ("long", "media_too_large", BYTES_MAX, "--max-media-bytes"),
        ("endless", "media_too_large", BYTES_MAX, "--max-media-bytes"),
    ]:
        not_seen(local, image(f"{web.url}/{path}"), code, *words)
    not_seen(local, image("http://127.0.0.1:1/"), "media_fetch_failed", "could not be fetched")


def test_nobody_waits_for_a_name_that_somebody_else_asked_for(local, web):
    """15 of 16 places are taken by names that are not answered, their clients stay or have gone."""
    local.order("mute")
    with contextlib.ExitStack() as stack:
        for i in range(15):
            one = stack.enter_context(Open(local, "/v1/chat/completions", asking(image(f"http://host{i}.slow/image"), WHAT)))
            until(lambda: [r for r in local.requests("media") if r["media"]["state"] == "fetching"])
            until(lambda: local.metrics()["plateau_media_fetching"] > 0)
            if i % 2:
                one.leave()
        assert tokens(ask(local, image(web.url + "/image"), WHAT)) == ANSWER
    local.wait_idle()
    until(lambda: local.metrics()["plateau_media_fetching"] == 0)
    assert tokens(ask(local, image(web.url + "/image"), WHAT)) == ANSWER
    local.order("answer")
    not_seen(local, image("http://host.slow/image"), "media_fetch_failed", "could not be fetched")


def test_a_slow_server_has_its_time_and_so_has_who_waits_behind_it(web):
    """16 are fetched at once, and none waits longer for its turn than its turn may take."""
    with serving("--allow-remote-media", "--media-timeout", 1, kind=Faulty) as s:
        s.order("local")
        for path in ("silent", "slow"):
            not_seen(s, image(f"{web.url}/{path}"), "media_fetch_failed", "within 1 s", "--media-timeout")
        body = asking(image(web.url + "/silent"), WHAT)
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(Open(s, "/v1/chat/completions", body)) for _ in range(48)]
            answers = [one.answer() for one in crowd]
            assert {a.status for a in answers} == {400, 503}
            late = next(a for a in answers if a.status == 503)
            assert int(late.getheader("Retry-After")) >= 1
            assert "waited 1 s to be decoded" in json.loads(late.read())["error"]["message"]
        nothing_left(s)
