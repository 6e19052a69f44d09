"""Images and videos as clients send them, made here from numbers: the same number, the same bytes.

PNG needs only zlib. JPEG and WebP come from Pillow, video files from ffmpeg; without these, PNG and lists
of frames replace them."""

import base64
import io
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import zlib

try:
    from PIL import Image
except ImportError:
    Image = None

CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by PNG's colour type: grey, RGB, grey with alpha, RGB with alpha


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width, height, lines, depth=8, colour=2):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines, 1)) + _chunk(b"IEND", b"")


def _rows(width, height, look, pixel_bytes):
    """Shifted colored stripes: fast to make, all different."""
    row = random.Random(look).randbytes(pixel_bytes * width)
    return [row[pixel_bytes * (y % 97 % width) :] + row[: pixel_bytes * (y % 97 % width)] for y in range(height)]


def png(width, height, look, depth=8, colour=2):
    lines = b"".join(b"\0" + row for row in _rows(width, height, look, CHANNELS[colour] * depth // 8))
    return _png(width, height, lines, depth, colour)


def _by_pillow(form, width, height, look):
    made = io.BytesIO()
    Image.frombytes("RGB", (width, height), b"".join(_rows(width, height, look, 3))).save(made, form, quality=80)
    return made.getvalue()


def image(width, height, look):
    """(type, bytes) in one of the forms, by its look."""
    form = random.Random(look).choice(("png", "png", "png16", "grey", "alpha", "jpeg", "jpeg", "webp"))
    if form in ("jpeg", "webp") and Image and width * height <= 1 << 22:
        return f"image/{form}", _by_pillow(form.upper(), width, height, look)
    depth = 16 if form == "png16" else 8
    colour = {"grey": 4, "alpha": 6}.get(form, 2)
    return "image/png", png(width, height, look, depth, colour)


def data_url(kind, data):
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def bad_url(rng):
    """Bytes that no server should accept as an image."""
    whole = png(64, 48, rng.random())
    bomb = whole[:16] + struct.pack(">II", 60000, 60000) + whole[24:29]
    bomb += struct.pack(">I", zlib.crc32(bomb[12:29])) + whole[33:]
    return rng.choice(
        (
            data_url("image/png", whole[: rng.randint(1, len(whole) - 20)]),  # ends early
            data_url("image/png", whole[:60] + rng.randbytes(200) + whole[60:]),
            data_url("image/png", bomb),
            data_url("image/png", png(640, 2, 1)),  # far too long for its height
            data_url("image/jpeg", b"\xff\xd8\xff\xe0" + rng.randbytes(300)),
            data_url("image/webp", b"RIFF\x24\0\0\0WEBPVP8L" + rng.randbytes(40)),
            data_url("image/png", rng.randbytes(rng.randint(1, 500)).replace(b"\xff", b"\0").replace(b"\x89", b"\0")),
            data_url("image/png", b""),
            "data:image/png;base64,@@@@",
            "https://example.org/not-asked-for.png",
            "file:///etc/hostname",
        )
    )


def videos(frames, count):
    """`count` different addresses for videos in a request, and their kind: a file that ffmpeg makes, else
    lists of frames."""
    if not shutil.which("ffmpeg"):
        made = [[data_url("image/png", png(128, 96, f"video {n} {i}")) for i in range(frames)] for n in range(count)]
        return made, "a list of frames"
    made = []
    with tempfile.TemporaryDirectory(prefix="plateau-gate-") as folder:
        for n in range(count):
            path = pathlib.Path(folder, f"{n}.mp4")
            what = f"testsrc2=size=128x96:rate=2:duration={frames / 2},hue=h={360 * n / count}"
            command = ["ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", what, "-frames:v", str(frames), "-c:v", "mpeg4", "-pix_fmt", "yuv420p", path]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
            made.append(data_url("video/mp4", path.read_bytes()))
    return made, "a file of ffmpeg's"
