"""Random weights of a golden by seeded.py's generator, and the recipe of a checkpoint made of them."""
import base64
import hashlib
import json
import struct

import torch

import seeded

DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32"}
TORCH = {name: dtype for dtype, name in DTYPES.items()}


def numbers(bytes_, dtype):
    return torch.frombuffer(bytearray(bytes_), dtype=dtype)


def tensors_of(file):
    """[(name, dtype, shape, bytes)] in the file's order."""
    size = struct.unpack("<Q", file[:8])[0]
    header = json.loads(file[8:8 + size])
    header.pop("__metadata__", None)
    at = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    return [(name, t["dtype"], t["shape"], file[8 + size:][slice(*t["data_offsets"])]) for name, t in at]


class Draws:
    """All weights drawn for one model. They are found again in the file that transformers writes, in which
    tensors have other names, and are split and stacked."""

    def __init__(self, seed):
        self.seed, self.drawn = seed, []

    def like(self, shape, dtype, deviation, offset=0.0):
        """A new tensor of this dtype: `offset` and noise of about this standard deviation."""
        shape, count = list(shape), int(torch.Size(shape).numel())
        how = [1000 * self.seed + len(self.drawn), round(deviation / seeded.DEVIATION * seeded.UNIT), offset]
        bytes_ = seeded.drawn(DTYPES[dtype], count, *how)
        self.drawn.append((DTYPES[dtype], how, bytes_))
        return numbers(bytes_, dtype).view(shape)

    def entry(self, dtype, shape, bytes_, of_file):
        if dtype == of_file:
            for drawn, how, there in self.drawn:
                at = there.find(bytes_) if drawn == dtype else -1
                if at >= 0 and at % seeded.SIZES[dtype] == 0:
                    entry = [shape, *how, at // seeded.SIZES[dtype]]
                    while len(entry) > 3 and entry[-1] == 0:
                        entry.pop()
                    return entry
            size = seeded.SIZES[dtype]
            if bytes_ == bytes_[:size] * (len(bytes_) // size):
                return [shape, 0, 0, float(numbers(bytes_[:size], TORCH[dtype])[0])]
        return {"dtype": dtype, "shape": shape, "base64": base64.b64encode(bytes_).decode()}

    def store(self, path):
        """Writes weights.json for the file at `path`, and the file by it. Returns how much is not drawn."""
        tensors = tensors_of(path.read_bytes())
        sizes = {}
        for _, dtype, _, bytes_ in tensors:
            sizes[dtype] = sizes.get(dtype, 0) + len(bytes_)
        of_file = max((d for d in sizes if d in seeded.SIZES), key=sizes.get)
        recipe = {"sha256": "", "dtype": of_file,
                  "tensors": {name: self.entry(*tensor, of_file) for name, *tensor in tensors}}
        file = seeded.file_of(recipe)
        if [t[1:] for t in tensors_of(file)] != [t[1:] for t in tensors]:
            raise SystemExit(f"{path}: the recipe does not give these weights")
        recipe["sha256"] = hashlib.sha256(file).hexdigest()
        path.with_name("weights.json").write_text(self.text(recipe))
        path.unlink()
        error = seeded.write(path.with_name("weights.json"))
        if error:
            raise SystemExit(error)
        return sum(len(t["base64"]) * 3 // 4 for t in recipe["tensors"].values() if isinstance(t, dict))

    @staticmethod
    def text(recipe):
        """A line for each tensor."""
        rows = [f"{json.dumps(name)}:{json.dumps(entry, separators=(',', ':'))}"
                for name, entry in recipe["tensors"].items()]
        head = f'{{"sha256":"{recipe["sha256"]}","dtype":"{recipe["dtype"]}","tensors":{{\n'
        return head + ",\n".join(rows) + "\n}}\n"
