"""Common parts of the tests of images and videos: images in every format, questions about them, and that
nothing of them is left."""

import base64
import contextlib
import io
import os
import pathlib
import struct
import zlib

from PIL import Image

from conftest import GOLDEN, TOP, account, check_ledger, until

IMAGES = TOP / "tests/golden/data/canary-8bit/images"
SEEN = GOLDEN["vision"]
WITHOUT_THINKING = {"enable_thinking": False}


def file_of(case):
    return (IMAGES / case["image"]).read_bytes()


def pixels_of(case):
    return Image.open(IMAGES / case["image"]).convert("RGB")


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def data_url(data, kind="image/png"):
    return f"data:{kind};base64," + base64.b64encode(data).decode()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width, height, rows, depth=8, colour=2):
    """A PNG with this content between its header and its end, valid or not."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def text(words):
    return {"type": "text", "text": words}


def image(url, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


def video(url, **more):
    return {"type": "video_url", "video_url": {"url": url, **more}}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def asking(*parts, **fields):
    """The fields of a chat about the parts; strings are texts, bytes are images."""
    known = {str: text, bytes: lambda data: image(data_url(data)), dict: lambda part: part}
    return {"messages": [user(*(known[type(p)](p) for p in parts))], "temperature": 0, "max_tokens": 40,
            "return_token_ids": True, "chat_template_kwargs": WITHOUT_THINKING, **fields}


def ask(server, *parts, **fields):
    return server.post("/v1/chat/completions", **asking(*parts, **fields))


def choice(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


def tokens(reply):
    return choice(reply)["token_ids"]


def images(server):
    return server.status()["models"][0]["images"]


def children(server):
    """The processes that the server started and that are still there."""
    found = []
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found += (task / "children").read_text().split()
    return found


def files(server):
    """Its open files, without sockets, pipes and other kinds."""
    links = []
    for entry in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:
            pass
    return sorted(link for link in links if link.startswith("/"))


def nothing_left(server, seconds=60):
    """No request, no task, no process, no byte of an image; the ledger holds."""
    server.wait_idle(seconds)
    waits = [f"plateau_media_{what}" for what in ("waiting", "working", "fetching", "queued_bytes")]

    def gone():
        """all bytes of images are returned"""
        metrics = server.metrics()
        return account(server.memory(), "media")["used_bytes"] == 0 and not any(metrics[name] for name in waits)

    until(gone, seconds)
    memory = server.memory()
    check_ledger(memory)
    assert memory["sums_hold"] is True
    assert account(memory, "media")["reserved_bytes"] == 0 == account(memory, "video")["reserved_bytes"]
    assert children(server) == []
    assert not [name for name in files(server) if "memfd" in name or "tmp" in pathlib.Path(name).name]
