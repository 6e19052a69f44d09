#!/usr/bin/env python3
"""seeded.py [FOLDER...]: writes model.safetensors beside each weights.json below FOLDER (tests/golden/data).

Random weights of a golden are not stored: weights.json says how they are drawn, and this program, which needs
nothing but Python, writes the file. The build runs it; git ignores what it writes.

weights.json: `sha256` of the file; `dtype`, BF16 or F32; and `tensors` by name, in the file's order:

    [shape, seed, scale, offset, first]

Element i is offset + n * scale / 65536, rounded to float32 and then to the dtype, ties to even. n is the sum
less 510 of bytes 4j to 4j + 3, j = first + i, of SHAKE-128 of the seed's decimal digits. `offset` and `first`
are 0 if they are left out. A tensor that is not random is {"dtype", "shape", "base64"} instead.

A file that has the stated digest already stays. It gets the time of now if a recipe or this program is newer,
as the build compares times. Exits 1 if a recipe gives another digest than it states; the file is not written
then."""
import base64
import contextlib
import hashlib
import json
import math
import os
import pathlib
import struct
import sys

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "data"
UNIT = 65536
DEVIATION = (4 * (256 ** 2 - 1) / 12) ** 0.5  # standard deviation of n
SIZES = {"BF16": 2, "F32": 4}


def stored(value, dtype):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if dtype == "F32":
        return struct.pack("<I", bits)
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def drawn(dtype, count, seed, scale, offset=0, first=0):
    """Bytes of `count` elements."""
    table = [stored(offset + n * scale / UNIT, dtype) for n in range(-510, 511)]
    b = hashlib.shake_128(str(seed).encode()).digest(4 * (first + count))[4 * first:]
    return b"".join(table[w + x + y + z] for w, x, y, z in zip(b[0::4], b[1::4], b[2::4], b[3::4]))


def tensor(entry, dtype):
    """(dtype, shape, bytes)"""
    if isinstance(entry, dict):
        return entry["dtype"], entry["shape"], base64.b64decode(entry["base64"])
    return dtype, entry[0], drawn(dtype, math.prod(entry[0]), *entry[1:])


def file_of(recipe):
    """The bytes of model.safetensors."""
    header, data = {"__metadata__": {"format": "pt"}}, []
    at = 0
    for name, entry in recipe["tensors"].items():
        dtype, shape, bytes_ = tensor(entry, recipe["dtype"])
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(bytes_)]}
        data.append(bytes_)
        at += len(bytes_)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + b"".join(data)


def digest_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def write(path, newest=math.inf):
    """model.safetensors beside the weights.json at `path`, newer than `newest`. Returns an error or None."""
    recipe, target = json.loads(path.read_text()), path.with_name("model.safetensors")
    if digest_of(target) == recipe["sha256"]:
        if target.stat().st_mtime_ns <= newest:
            with contextlib.suppress(OSError):  # a source that is read-only
                os.utime(target)
        return None
    file = file_of(recipe)
    if hashlib.sha256(file).hexdigest() != recipe["sha256"]:
        return f"{path}: the weights have the SHA-256 {hashlib.sha256(file).hexdigest()}, not the stated one"
    # Other builds may write and read the same file now.
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(file)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return None


def write_all(folders):
    """Returns the errors."""
    paths = [path for folder in folders for path in sorted(pathlib.Path(folder).rglob("weights.json"))]
    newest = max(path.stat().st_mtime_ns for path in [pathlib.Path(__file__), *paths])
    return [error for path in paths if (error := write(path, newest))]


if __name__ == "__main__":
    errors = write_all(sys.argv[1:] or [DATA])
    print("".join(error + "\n" for error in errors), end="")
    sys.exit(1 if errors else 0)
