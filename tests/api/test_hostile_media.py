"""Generated images and addresses of images: read, or refused with a message. No byte comes from a
forbidden place, and nothing is left."""

import http.server
import io
import os
import random
import struct
import threading
import urllib.parse
import zlib

import pytest
from PIL import Image

from conftest import Faulty, serving, until
from hostile import answered, draws, post, unharmed
from seeing import asking, chunk, data_url, image, nothing_left

KINDS = {"png": ("PNG", {}), "jpeg": ("JPEG", {"quality": 60}), "webp": ("WEBP", {"lossless": True}), "gif": ("GIF", {})}
IMAGE_BYTES_MAX = 200 << 10


class Web(http.server.BaseHTTPRequestHandler):
    """Sends its client on, once it may not go where it is sent."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path != "/on":
            return
        self.server.gate.wait(30)
        self.send_response(302)
        self.send_header("Location", self.server.location)
        self.end_headers()


@pytest.fixture(scope="module")
def web():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    server.daemon_threads, server.asked, server.gate = True, [], threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    top = tmp_path_factory.mktemp("hostile-media")
    shown = top / "shown"
    (shown / "a b").mkdir(parents=True)
    image = encoded(random.Random(1), "png")
    for path in (shown / "p.png", shown / "a b/q.png", top / "secret.png", top / "shown-too.png"):
        path.write_bytes(image)
    (shown / "out").symlink_to(top)
    (shown / "secret.png").symlink_to("../secret.png")
    os.mkfifo(shown / "pipe.png")
    return shown


@pytest.fixture(scope="module")
def eyes(folder):
    with serving("--host-cache", "64M", "--media-dir", folder, "--allow-remote-media", "--max-images", 4, "--max-media-bytes", IMAGE_BYTES_MAX, "--max-media-pixels", 60000,
                 kind=Faulty) as s:
        s.order("public")
        yield s
        nothing_left(s)


def encoded(rng, kind):
    name, options = KINDS[kind]
    size = (rng.randint(1, 40), rng.randint(1, 40))
    out = io.BytesIO()
    mode = rng.choice(["RGB", "L"] if kind == "jpeg" else ["RGB", "RGBA", "L", "P"])
    Image.frombytes("L", size, rng.randbytes(size[0] * size[1])).convert(mode).save(out, name, **options)
    return out.getvalue()


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at, kind = rng.randrange(len(data) or 1), rng.randrange(7)
        if not data:
            break
        if kind == 0:
            data[at] = rng.choice([0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)])
        elif kind == 1:
            del data[at:at + rng.choice([1, 4, 50])]
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.choice([1, 4, 50]))
        elif kind == 3:
            data[at:at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\1"])
        elif kind == 4:
            data = data[:at]
        elif kind == 5:
            data += data[at:]
        else:
            data[at:at] = data[:at]
    return bytes(data)


def bomb(rng):
    """A header that promises far more than there may be, or a little that becomes much."""
    big = [rng.choice([60001, 65500, 100_000, 2**31 - 1, 2**32 - 1, 300]), rng.choice([1, 300, 60001, 65500, 2**31 - 1])]
    rng.shuffle(big)
    head = struct.pack(">IIBBBBB", *big, rng.choice([1, 2, 4, 8, 16]), rng.choice([0, 2, 3, 4, 6]), 0, 0, rng.randrange(2))
    much = zlib.compress(bytes(4 << 20), 9)
    short = [min(x, 65535) for x in big]
    jpeg = encoded(rng, "jpeg")
    at = max(jpeg.find(b"\xff\xc0"), 0)
    return rng.choice([
        lambda: b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", much) + chunk(b"IEND", b""),
        lambda: b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 20, 20, 8, 2, 0, 0, 0)) + chunk(b"zTXt", b"a\0\0" + much) * 3 + chunk(b"IDAT", much) + chunk(b"IEND", b""),
        lambda: b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 20, 20, 8, 2, 0, 0, 0)) + chunk(b"IDAT", b"") * 5000 + chunk(b"IEND", b""),
        lambda: jpeg[:at + 5] + struct.pack(">HH", *short) + jpeg[at + 9:],
        lambda: b"GIF89a" + struct.pack("<HHBBB", *short, 0x80, 0, 0) + bytes(6) + (b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\2\2\x44\1\0") * rng.choice([1, 3000]) + b";",
        lambda: b"RIFF" + struct.pack("<I", 30) + b"WEBPVP8L" + struct.pack("<I", 18) + b"\x2f" + rng.randbytes(17)])()


def try_parts(server, *parts):
    status, body, _ = answered(post(server, "/v1/chat/completions", asking(*parts, "?", max_tokens=1)), 200, 400, 413)
    return status, body


@pytest.mark.smoke
@pytest.mark.hostile
def test_damaged_images_and_bombs(eyes):
    seen = 0
    with unharmed(eyes):
        for _, rng in draws("images", 120):
            data = damaged(rng, encoded(rng, rng.choice(list(KINDS)))) if rng.random() < 0.75 else bomb(rng)
            parts = [data] if rng.random() < 0.8 else [encoded(rng, "png"), data, data]
            status, _ = try_parts(eyes, *parts)
            seen += status == 200
    nothing_left(eyes)
    assert seen > 0


@pytest.mark.hostile
def test_urls_that_are_none(eyes):
    """Data URLs and others with a fault: an answer, and no look-up."""
    with unharmed(eyes):
        for _, rng in draws("urls", 120):
            url = data_url(encoded(rng, "png"), rng.choice(["image/png", "image/jpeg", "text/html", "", "video/mp4", "image/svg+xml"]))
            at = rng.randrange(len(url))
            other = rng.choice(["", "=", "==", "%", "%3d", " ", "\n", "-", "_", "/", "+", ",", ";", "\0", "\u00e9", "data:", ";base64", ";charset=utf-8"])
            url = rng.choice([url[:at] + other + url[at:], url[:at] + other, url[:at] + other + url[at + 1:], url.replace(";base64", other), url.upper(), url.replace("data:", other), other + url,
                              url.replace(",", "," + other * 40), "data:" * 50 + url, url[:at] + "=" * 1000])
            try_parts(eyes, image(url))
    nothing_left(eyes)


@pytest.mark.smoke
@pytest.mark.hostile
def test_paths_that_lead_elsewhere(eyes, folder):
    """Any readable file lies below the directory, for every spelling of the path."""
    with unharmed(eyes):
        for _, rng in draws("paths", 100):
            steps = [rng.choice(["..", ".", "", "a b", "out", "shown", "p.png", "q.png", "secret.png", "pipe.png", "%2e%2e", "%2e", "..%2f", "%00", "a%20b", "~", "*", "shown-too.png", "\u2025", "..\\"])
                     for _ in range(rng.randint(1, 5))]
            base = rng.choice([str(folder), str(folder.parent), "", "/proc/self/cwd", "/proc/self/root" + str(folder), str(folder) + "-too.png", str(folder) + "/../shown"])
            path = "/".join([base, *steps]) if rng.random() < 0.9 else "/" + "/".join(steps)
            url = rng.choice(["file://", "file:", "file:///", "file://localhost", "FILE://", "file://evil", "file://127.0.0.1"]) + path
            status, body = try_parts(eyes, image(url))
            real = os.path.realpath(urllib.parse.unquote(path).split("\0")[0])
            print(url, status)
            assert status != 200 or real.startswith(str(folder) + "/"), (url, body)


def spelling(rng, port):
    """This machine, or its neighbourhood, in another spelling."""
    a = [127, rng.choice([0, 1, 255]), rng.choice([0, 255]), rng.randint(1, 254)]
    whole = a[0] << 24 | a[1] << 16 | a[2] << 8 | a[3]
    host = rng.choice([
        lambda: ".".join(rng.choice(["%d", "%#o", "0x%x", "%03d"]) % x if x else "0" for x in a), lambda: str(whole), lambda: hex(whole), lambda: oct(whole).replace("o", ""),
        lambda: f"{a[0]}.{whole & 0xffffff}", lambda: f"{a[0]}.{a[1]}.{whole & 0xffff}", lambda: "localhost", lambda: "LOCALHOST.", lambda: "[::1]", lambda: "[0:0:0:0:0:0:0:1]", lambda: "[::]",
        lambda: f"[::ffff:127.0.0.{a[3]}]", lambda: f"[::ffff:7f00:{a[3]:x}]", lambda: f"[64:ff9b::7f00:{a[3]:x}]", lambda: f"[2002:7f00:{a[3]:x}::]", lambda: "[::127.0.0.1]", lambda: "0",
        lambda: "0.0.0.0", lambda: "10.0.0.1", lambda: "192.168.0.1", lambda: "169.254.169.254", lambda: "[fe80::1%25lo]", lambda: "[fc00::1]", lambda: "\uff11\uff12\uff17.0.0.1", lambda: "127\u30020.0.1",
        lambda: "127.0.0.1.", lambda: "example.com@127.0.0.1", lambda: "127.0.0.1#.example.com", lambda: "ip6-localhost", lambda: "%31%32%37.0.0.1"])()
    return rng.choice(["http://", "http:/", "HTTP://", "http:\\\\", "//"]) + host + f":{port}/" + rng.choice(["x", "", "?", "a/../b"])


@pytest.mark.hostile
def test_no_spelling_of_this_machine_is_connected_to(eyes, web):
    with unharmed(eyes):
        for _, rng in draws("spellings", 80):
            url = spelling(rng, web.server_port)
            print(url)
            status, _ = try_parts(eyes, image(url))
            assert status == 400
        assert web.asked == []


@pytest.mark.hostile
def test_no_redirect_leads_to_this_machine(eyes, web):
    """The first address may be connected to; that to which it sends its client may not."""
    with unharmed(eyes):
        for _, rng in draws("redirects", 12):
            web.gate.clear()
            web.asked.clear()
            web.location = spelling(rng, web.server_port) if rng.random() < 0.8 else rng.choice(["file:///etc/passwd", "gopher://127.0.0.1/", "data:,a", "/again", "//localhost/", "ftp://localhost/"])
            got = []
            eyes.order("local")
            asking_now = threading.Thread(target=lambda: got.append(try_parts(eyes, image(f"http://127.0.0.1:{web.server_port}/on"))))
            asking_now.start()
            until(lambda: web.asked, 60)
            eyes.order("public")
            web.gate.set()
            asking_now.join(60)
            print(web.location, got)
            assert got and got[0][0] == 400 and web.asked == ["/on"], (web.location, got, web.asked)
    nothing_left(eyes)
