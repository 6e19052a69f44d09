#!/usr/bin/env python3
"""Writes the images of this folder and what Pillow sees in them: expected.txt, resized.txt, sizes.txt,
which test_decode.c, test_resize.c and test_smart_size.c compare with. Needs Pillow up to 12.1 (later ones
resize tall images down before across, which rounds differently); the tests do not."""
import hashlib
import io
import math
import pathlib
import random
import struct
import zlib

from PIL import Image, ImageDraw, ImageOps

HERE = pathlib.Path(__file__).resolve().parent


def sha(image):
    return hashlib.sha256(image.tobytes()).hexdigest()


def scene(width, height, mode="RGB"):
    """Smooth and sharp, no symmetry: every turn and every swapped colour shows."""
    image = Image.new("RGB", (width, height))
    image.putdata([((x * 255) // width, (y * 255) // height, (x * y) % 256) for y in range(height) for x in range(width)])
    draw = ImageDraw.Draw(image)
    draw.rectangle([2, 3, width // 3, height // 4], fill=(250, 20, 30))
    draw.line([0, height - 1, width - 1, height // 2], fill=(0, 255, 0), width=2)
    return image.convert(mode)


def noise(width, height, seed):
    """Makes equal bytes as test_resize.c does."""
    state, out = seed, bytearray()
    for _ in range(width * height * 3):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        byte = state >> 24
        out.append(0 if byte < 64 else 255 if byte > 191 else byte)
    return Image.frombytes("RGB", (width, height), bytes(out))


def exif(orientation, big=False):
    e = Image.Exif()
    e.endian = ">" if big else "<"
    e[0x010F] = "a camera"
    e[0x0112] = orientation
    return e.tobytes()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_raw(width, height, depth, colour, rows, interlaced=False, extra=b""):
    """Writes what Pillow does not: 16 bit, few bits, Adam7."""
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]

    def line(samples):
        out, have, acc = bytearray(), 0, 0
        for s in samples:
            acc, have = acc << depth | s, have + depth
            while have >= 8:
                have -= 8
                out.append(acc >> have & 255)
        if have:
            out.append(acc << (8 - have) & 255)
        return b"\0" + bytes(out)

    per = bits // depth
    data = b""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    for x0, y0, dx, dy in passes if interlaced else [(0, 0, 1, 1)]:
        for y in range(y0, height, dy):
            samples = [rows[y][x * per + c] for x in range(x0, width, dx) for c in range(per)]
            if samples:
                data += line(samples)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
            + extra + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def make_pngs(save):
    w, h = 37, 29
    rng = random.Random(1)
    for name, mode in (("rgb", "RGB"), ("rgba", "RGBA"), ("grey", "L"), ("grey_alpha", "LA"), ("bit", "1")):
        image = scene(w, h, mode)
        if mode in ("RGBA", "LA"):
            image.putalpha(scene(w, h, "L").rotate(180))
        save(f"png_{name}.png", image, format="PNG")
    save("png_palette.png", scene(w, h).quantize(200), format="PNG")
    save("png_palette_16.png", scene(w, h).quantize(13), format="PNG", bits=4)
    save("png_palette_trns.png", scene(w, h).quantize(9), format="PNG", transparency=bytes([0, 100, 255]))
    save("png_rgb_trns.png", scene(w, h), format="PNG", transparency=(250, 20, 30))
    for o in range(1, 9):
        save(f"png_turned_{o}.png", scene(w, h), format="PNG", exif=exif(o, o % 2 == 0))
    for depth, colour, interlaced in ((16, 2, 0), (16, 6, 0), (16, 4, 0), (2, 0, 0), (4, 0, 1), (8, 2, 1), (2, 3, 1), (16, 2, 1), (1, 0, 1)):
        per = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
        rows = [[rng.randrange(1 << depth) for _ in range(w * per)] for _ in range(h)]
        extra = chunk(b"PLTE", bytes(rng.randrange(256) for _ in range(12))) if colour == 3 else b""
        save(f"png_{colour}_{depth}{'_adam7' if interlaced else ''}.png", png_raw(w, h, depth, colour, rows, bool(interlaced), extra))
    # Pillow maps a grey of 16 bits from 256 on to white; here its upper byte counts, so the expectation is
    # made from that.
    rows = [[(x * 1771 + y * 977) & 0xFFFF for x in range(w)] for y in range(h)]
    upper = Image.new("L", (w, h))
    upper.putdata([v >> 8 for row in rows for v in row])
    save("png_0_16.png", png_raw(w, h, 16, 0, rows), seen=upper.convert("RGB"))
    # Two million zeros of text and of a color profile, which no decoder has to read.
    zeros = zlib.compress(bytes(2 << 20), 9)
    bomb = chunk(b"iCCP", b"p\0\0" + zeros) + chunk(b"zTXt", b"k\0\0" + zeros)
    rows = [[rng.randrange(256) for _ in range(w)] for _ in range(h)]
    flat = Image.new("L", (w, h))
    flat.putdata([v for row in rows for v in row])
    save("png_bomb.png", png_raw(w, h, 8, 0, rows, extra=bomb), seen=flat.convert("RGB"))
    save("png_1x1.png", Image.new("RGB", (1, 1), (1, 2, 3)), format="PNG")


def make_jpegs(save):
    w, h = 45, 38
    for name, options in (("444", {"subsampling": 0}), ("422", {"subsampling": 1}), ("420", {"subsampling": 2}),
                          ("progressive", {"progressive": True}), ("restart", {"restart_marker_blocks": 2}), ("low", {"quality": 5})):
        save(f"jpeg_{name}.jpg", scene(w, h), format="JPEG", **options)
    save("jpeg_grey.jpg", scene(w, h, "L"), format="JPEG")
    save("jpeg_grey_progressive.jpg", scene(w, h, "L"), format="JPEG", progressive=True)
    save("jpeg_cmyk.jpg", scene(w, h, "CMYK"), format="JPEG")
    save("jpeg_rgb.jpg", scene(w, h), format="JPEG", keep_rgb=True)
    for o in range(1, 9):
        save(f"jpeg_turned_{o}.jpg", scene(w, h), format="JPEG", exif=exif(o, o % 2 == 1))
    save("jpeg_turned_9.jpg", scene(w, h), format="JPEG", exif=exif(9))
    save("jpeg_turned_progressive.jpg", scene(w, h), format="JPEG", exif=exif(6), progressive=True)


def make_webps(save):
    w, h = 43, 31
    alpha = scene(w, h, "RGBA")
    alpha.putalpha(scene(w, h, "L").rotate(180))
    save("webp_lossy.webp", scene(w, h), format="WEBP")
    save("webp_lossless.webp", scene(w, h), format="WEBP", lossless=True)
    save("webp_lossy_alpha.webp", alpha, format="WEBP")
    save("webp_lossless_alpha.webp", alpha, format="WEBP", lossless=True, exact=True)
    save("webp_palette.webp", scene(w, h).quantize(7).convert("RGB"), format="WEBP", lossless=True)
    save("webp_palette_2.webp", scene(w, h, "1").convert("RGB"), format="WEBP", lossless=True)
    save("webp_noise.webp", noise(64, 64, 5), format="WEBP", lossless=True)
    for o in (3, 6):
        save(f"webp_turned_{o}.webp", scene(w, h), format="WEBP", exif=exif(o))
    frames = [scene(w, h).rotate(a) for a in (90, 180)]
    save("webp_animated.webp", scene(w, h), format="WEBP", save_all=True, append_images=frames, lossless=True)
    save("webp_animated_lossy.webp", scene(w, h), format="WEBP", save_all=True, append_images=frames)
    # A first frame that does not cover its canvas.
    buffer = io.BytesIO()
    small = Image.new("RGBA", (w, h))
    small.paste(scene(20, 15, "RGBA"), (8, 6))
    small.save(buffer, "WEBP", save_all=True, append_images=frames, lossless=True)
    save("webp_animated_small.webp", buffer.getvalue())
    # Regions so different that the encoder gives them groups of codes of their own.
    patchwork = Image.new("RGB", (512, 128))
    for i in range(16):
        patchwork.paste(scene(64, 64).rotate(i * 90) if i % 3 else noise(64, 64, i + 1), (i % 8 * 64, i // 8 * 64))
    buffer = io.BytesIO()
    patchwork.quantize(40).convert("RGB").resize((512, 128)).save(buffer, "WEBP", lossless=True, method=6, quality=100)
    save("webp_groups.webp", buffer.getvalue())


def gif_raw(canvas, place, indices, palette, interlaced=False, transparent=None):
    """Forms that Pillow does not write: a first image beside its canvas, no palette, indices after its
    end. Codes are never compressed."""
    w, h = place[2], place[3]
    flags = 0x80 | (len(palette) // 3 - 1).bit_length() - 1 if palette else 0
    out = b"GIF89a" + struct.pack("<HHBBB", *canvas, flags, 1, 0) + palette
    if transparent is not None:
        out += b"\x21\xf9\x04\x01\0\0" + bytes([transparent]) + b"\0"
    out += b"\x2c" + struct.pack("<HHHHB", *place, 0x40 if interlaced else 0) + b"\x08"
    order = [y for a, s in ((0, 8), (4, 8), (2, 4), (1, 2)) for y in range(a, h, s)] if interlaced else range(h)
    acc, have, data = 0, 0, bytearray()

    def put(code):
        nonlocal acc, have
        acc, have = acc | code << have, have + 9
        while have >= 8:
            data.append(acc & 255)
            acc, have = acc >> 8, have - 8

    put(256)
    for n, i in enumerate(i for y in order for i in indices[y * w:y * w + w]):
        if n and n % 200 == 0:
            put(256)
        put(i)
    put(257)
    data.append(acc & 255)
    for at in range(0, len(data), 255):
        out += bytes([len(data[at:at + 255])]) + bytes(data[at:at + 255])
    return out + b"\0\x3b"


def make_gifs(save):
    w, h = 41, 27
    save("gif.gif", scene(w, h).quantize(64), format="GIF", interlace=0)
    save("gif_interlaced.gif", scene(w, h).quantize(64), format="GIF", interlace=1)
    save("gif_grey.gif", scene(w, h, "L"), format="GIF")
    save("gif_transparent.gif", scene(w, h).quantize(16), format="GIF", transparency=3)
    save("gif_animated.gif", scene(w, h).quantize(16), format="GIF", save_all=True, append_images=[scene(w, h).rotate(180).quantize(16)])
    rng = random.Random(3)
    pixels = [rng.randrange(256) for _ in range(20 * 11)]
    palette = bytes(rng.randrange(256) for _ in range(96))
    save("gif_placed.gif", gif_raw((30, 25), (5, 6, 20, 11), [p % 32 for p in pixels], palette))
    save("gif_placed_transparent.gif", gif_raw((30, 25), (5, 6, 20, 11), [p % 32 for p in pixels], palette, True, 7))
    save("gif_beyond.gif", gif_raw((10, 8), (5, 6, 20, 11), [p % 32 for p in pixels], palette, True))
    save("gif_wild.gif", gif_raw((20, 11), (0, 0, 20, 11), pixels, palette))
    save("gif_no_palette.gif", gif_raw((20, 11), (0, 0, 20, 11), pixels, b""))


def write_images():
    lines = []

    def save(name, image, seen=None, **options):
        path = HERE / name
        if isinstance(image, bytes):
            path.write_bytes(image)
        else:
            image.save(path, **options)
        if seen is None:
            with Image.open(path) as opened:
                seen = ImageOps.exif_transpose(opened).convert("RGB")
        small = (max(seen.width * 2 // 3, 1), max(seen.height // 2, 1))
        lines.append(f"{name} {seen.width} {seen.height} {sha(seen)} {small[0]} {small[1]} "
                     f"{sha(seen.resize(small, Image.BICUBIC))}\n")

    for old in HERE.iterdir():
        if old.suffix in (".png", ".jpg", ".webp", ".gif"):
            old.unlink()
    make_pngs(save)
    make_jpegs(save)
    make_webps(save)
    make_gifs(save)
    (HERE / "expected.txt").write_text("".join(lines))


def write_resized():
    rng = random.Random(7)
    sizes = [(1, 1, 32, 32), (32, 32, 1, 1), (2, 3, 32, 64), (64, 64, 64, 64), (200, 1, 64, 32), (1, 200, 32, 224), (641, 3, 32, 32),
             (640, 480, 640, 480), (480, 640, 224, 320), (333, 500, 320, 512), (97, 61, 96, 64), (64, 48, 64, 96), (3000, 2, 64, 32), (2, 3000, 32, 64)]
    sizes += [tuple(int(2 ** rng.uniform(0, 8.5)) for _ in range(4)) for _ in range(60)]
    with (HERE / "resized.txt").open("w") as out:
        for seed, (w, h, to_w, to_h) in enumerate(sizes, 1):
            out.write(f"{w} {h} {to_w} {to_h} {seed} {sha(noise(w, h, seed).resize((to_w, to_h), Image.BICUBIC))}\n")


def write_filters():
    """Bilinear (2) and Lanczos (1), first across and then down, which later versions of Pillow reverse."""
    rng = random.Random(8)
    with (HERE / "filters.txt").open("w") as out:
        for seed in range(1, 41):
            w, h, to_w, to_h = (int(2 ** rng.uniform(0, 8.5)) for _ in range(4))
            mode = 1 + seed % 2
            across = noise(w, h, seed).resize((to_w, h), mode)
            out.write(f"{w} {h} {to_w} {to_h} {seed} {mode} {sha(across.resize((to_w, to_h), mode))}\n")


def smart_size(height, width, f, low, high):
    h, w = round(height / f) * f, round(width / f) * f
    if h * w > high:
        b = math.sqrt(height * width / high)
        h, w = max(f, math.floor(height / b / f) * f), max(f, math.floor(width / b / f) * f)
    elif h * w < low:
        b = math.sqrt(low / (height * width))
        h, w = math.ceil(height * b / f) * f, math.ceil(width * b / f) * f
    return h, w


def smart_size_video(frames, height, width, f, low, high):
    if height < f or width < f:
        scale = max(f / height, f / width)
        height, width = int(height * scale), int(width * scale)
    h, w, t = round(height / f) * f, round(width / f) * f, round(frames / 2) * 2
    if t * h * w > high:
        b = math.sqrt(frames * height * width / high)
        h, w = max(f, math.floor(height / b / f) * f), max(f, math.floor(width / b / f) * f)
    elif t * h * w < low:
        b = math.sqrt(low / (frames * height * width))
        h, w = math.ceil(height * b / f) * f, math.ceil(width * b / f) * f
    return h, w


def write_sizes():
    """frames (0: a still image) width height edge, which of four bounds, and the width and height that come
    out; 0 0: refused."""
    bounds = ((65536, 16777216), (4096, 1048576), (4096, 25165824), (131072, 786432))
    rng = random.Random(11)
    with (HERE / "sizes.txt").open("w") as out:
        for n in range(400):
            edge = rng.choice((28, 32))
            low, high = bound = rng.choice(bounds)
            width, height = (int(2 ** rng.uniform(0, 13.5)) for _ in range(2))
            if n % 4 == 0:
                width, height = (edge * rng.randrange(1, 60) + rng.choice((0, edge // 2)) for _ in range(2))
            frames = rng.randrange(2, 80) if n % 3 == 0 else 0
            size = smart_size_video(frames, height, width, edge, low, high) if frames else smart_size(height, width, edge, low, high)
            if max(width, height) > 200 * min(width, height):
                size = (0, 0)
            elif size[0] * size[1] > high:
                continue
            out.write(f"{frames} {width} {height} {edge} {bounds.index(bound)} {size[1]} {size[0]}\n")


write_images()
write_resized()
write_filters()
write_sizes()
