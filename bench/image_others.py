#!/usr/bin/env python3
"""bench/image_others.py DIR: image_bench's images (image_bench --write DIR) through Pillow, the same
way: decoded, turned, hashed, resized by its own bicubic to the size that image_bench names. The processor's
time, the best of five runs each. Needs Pillow."""
import hashlib
import io
import math
import pathlib
import sys
import time

from PIL import Image, ImageOps


def smart_size(width, height, edge=32, low=65536, high=1 << 20):
    w, h = round(width / edge) * edge, round(height / edge) * edge
    if w * h > high:
        b = math.sqrt(width * height / high)
        return max(edge, math.floor(width / b / edge) * edge), max(edge, math.floor(height / b / edge) * edge)
    if w * h < low:
        b = math.sqrt(low / (width * height))
        return math.ceil(width * b / edge) * edge, math.ceil(height * b / edge) * edge
    return w, h


def once(data):
    began = time.thread_time()
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    hashlib.sha256(image.tobytes()).digest()
    image.resize(smart_size(*image.size), Image.BICUBIC)
    return time.thread_time() - began, image.size


for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    data = path.read_bytes()
    runs = [once(data) for _ in range(5)]
    print(f"{path.name:28} {runs[0][1][0]:5} x {runs[0][1][1]:<5} {min(t for t, _ in runs) * 1000:7.1f} ms")
