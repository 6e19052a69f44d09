"""Compares pixels with the image processors of transformers: build/golden_pixels reads the same files.

    compare_pixels.py [NAME...] [--images N] [--seed N] [--program build/golden_pixels] [--pillow-order]

Torchvision and Pillow before 13 resize rows first and then columns. Pillow 13 takes the cheaper order, which
rounds otherwise: with --pillow-order it may. Prints for each processor how many images and parts are equal in
size and to the byte, and how far others are. An image is one part, or its tiles and the whole one. Processors
without a class for Pillow want torchvision."""
import argparse
import importlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, ImageFilter

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/data"


def rows_first(image, size, resample=None, box=None, reducing_gap=None, own=Image.Image.resize):
    """Image.resize() in two steps."""
    assert box is None and reducing_gap is None
    return own(own(image, (size[0], image.height), resample), size, resample)


# ---- results of processors as images ----

def patches(found, merge, frames, patch):
    """Tokens' patches together, [channel, frame, y, x]."""
    values, (_, rows, columns) = np.asarray(found["pixel_values"]), np.asarray(found["image_grid_thw"])[0]
    tiles = values.reshape(rows // merge, columns // merge, merge, merge, 3, frames, patch, patch)[:, :, :, :, :, 0]
    return [tiles.transpose(0, 2, 5, 1, 3, 6, 4).reshape(rows * patch, columns * patch, 3)]


def placed(found, patch):
    """Patches with their columns and rows, [y, x, channel]; -1: padding."""
    values, places = np.asarray(found["pixel_values"])[0], np.asarray(found["image_position_ids"])[0]
    columns, rows = places.max(axis=0) + 1
    image = np.zeros((rows * patch, columns * patch, 3))
    for (x, y), p in zip(places, values):
        if x >= 0:
            image[y * patch:(y + 1) * patch, x * patch:(x + 1) * patch] = p.reshape(patch, patch, 3)
    return [image]


def shaped(found, patch):
    """Patches row by row of each part, [y, x, channel]."""
    parts = []
    for values, (rows, columns) in zip(np.asarray(found["pixel_values"]), np.asarray(found["spatial_shapes"])):
        tiles = values[:rows * columns].reshape(rows, columns, patch, patch, 3)
        parts.append(tiles.transpose(0, 2, 1, 3, 4).reshape(rows * patch, columns * patch, 3))
    return parts


def single(found, patch):
    """Patches row by row, [channel, y, x]."""
    values, (_, rows, columns) = np.asarray(found["pixel_values"]), np.asarray(found["image_grid_thw"])[0]
    return [values.reshape(rows, columns, 3, patch, patch).transpose(0, 3, 1, 4, 2).reshape(rows * patch, columns * patch, 3)]


def whole(found, edge=None):
    """Parts of one size, [channel, y, x]; edge: pixels of it that whole tokens cover."""
    values = np.asarray(found["pixel_values"])
    parts = values.reshape(-1, *values.shape[-3:]).transpose(0, 2, 3, 1)
    if "image_sizes" in found and edge is None:
        rows, columns = np.asarray(found["image_sizes"])[0]
        parts = parts[:, :rows, :columns]
    return list(parts[:, :edge, :edge])


# ---- rows: golden with the configuration, its keys, processor, arguments, how it gives pixels ----

CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
QWEN = "qwen2_vl.image_processing_pil_qwen2_vl.Qwen2VLImageProcessorPil"
AREA = {"size": {"shortest_edge": 65536, "longest_edge": 16777216}}
ROWS = {
    "qwen3_vl": ("qwen3_vl", {"patch_size": 16}, {}, QWEN,
                 {**AREA, "patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}, lambda f: patches(f, 2, 2, 16)),
    "qwen2_5_vl": ("qwen2_5_vl", {"patch_size": 14, "window_size": 112}, {}, QWEN,
                   {**CLIP, "patch_size": 14, "size": {"shortest_edge": 3136, "longest_edge": 12845056}}, lambda f: patches(f, 2, 2, 14)),
    "glm4v": ("glm4v_vl", {"patch_size": 14, "image_size": 336}, {}, "glm4v.image_processing_pil_glm4v.Glm4vImageProcessorPil",
              {"size": {"shortest_edge": 12544, "longest_edge": 9633792}}, lambda f: patches(f, 2, 2, 14)),
    "gemma3": ("gemma3_vl", {"patch_size": 14, "image_size": 896}, {"mm_tokens_per_image": 256}, "gemma3.image_processing_pil_gemma3.Gemma3ImageProcessorPil",
               {"size": {"height": 896, "width": 896}}, whole),
    "gemma4": ("gemma4_vl", {"patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10240}, {},
               "gemma4.image_processing_pil_gemma4.Gemma4ImageProcessorPil", {}, lambda f: placed(f, 16)),
    "gemma4_unified": ("gemma4_unified_vl", {"patch_size": 16, "pooling_kernel_size": 3, "mm_posemb_size": 1120}, {},
                       "gemma4_unified.image_processing_gemma4_unified.Gemma4UnifiedImageProcessor", {}, lambda f: placed(f, 48)),
    "kimi_k25": ("kimi_k25_vl", {"patch_size": 14}, {}, "kimi_k25.image_processing_kimi_k25.Kimi_K25ImageProcessor", {}, lambda f: single(f, 14)),
    "mistral3": ("mistral3", {"patch_size": 14, "image_size": 1540}, {}, "pixtral.image_processing_pil_pixtral.PixtralImageProcessorPil",
                 {"size": {"longest_edge": 1540}, "patch_size": {"height": 28, "width": 28}}, whole),
    "internvl": ("internvl", {"patch_size": [14, 14], "image_size": [448, 448]}, {}, "got_ocr2.image_processing_pil_got_ocr2.GotOcr2ImageProcessorPil",
                 {"size": {"height": 448, "width": 448}, "crop_to_patches": True, "min_patches": 1, "max_patches": 12}, whole),
    "idefics3": ("smolvlm", {"patch_size": 14, "image_size": 364}, {"scale_factor": 2}, "idefics3.image_processing_pil_idefics3.Idefics3ImageProcessorPil",
                 {"size": {"longest_edge": 4 * 364}, "max_image_size": {"longest_edge": 364}}, whole),
    "smolvlm": ("smolvlm", {"patch_size": 16, "image_size": 512}, {"scale_factor": 4}, "smolvlm.image_processing_pil_smolvlm.SmolVLMImageProcessorPil",
                {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}, whole),
    "lfm2_vl": ("lfm2_vl", {"patch_size": 16, "num_patches": 256}, {}, "lfm2_vl.image_processing_lfm2_vl.Lfm2VlImageProcessor", {}, lambda f: shaped(f, 16)),
}


def write_config(folder, golden, vision, top, arguments):
    config = json.loads((DATA / golden / "config.json").read_text())
    config["vision_config"].update(vision)
    config.update(top)
    (folder / "config.json").write_text(json.dumps(config))
    # Pixtral's patch_size is an object, and that of the configuration.
    kept = {k: v for k, v in arguments.items() if not isinstance(v, dict) or k in ("size", "max_image_size")}
    (folder / "preprocessor_config.json").write_text(json.dumps(kept))


# ---- images ----

def draw_image(draw, rng):
    """Noise, a gradient with shapes, or blurred noise, of any ratio up to 12."""
    area, ratio = 2 ** draw.uniform(11, 20.5), 2 ** draw.uniform(-3.5, 3.5)
    width, height = max(28, round((area * ratio) ** 0.5)), max(28, round((area / ratio) ** 0.5))
    kind = draw.randrange(3)
    if kind == 1:
        y, x = np.mgrid[0:height, 0:width]
        planes = [(x * draw.uniform(-1, 1) + y * draw.uniform(-1, 1) + draw.uniform(0, 255)) % 256 for _ in range(3)]
        return Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8))
    image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    return image.filter(ImageFilter.GaussianBlur(draw.uniform(0.5, 6))) if kind == 2 else image


def read_parts(out):
    def line():
        return out.readline().split()
    parts = []
    for _ in range(int(line()[0])):
        width, height = map(int, line())
        parts.append(np.frombuffer(out.read(width * height * 3), dtype=np.uint8).reshape(height, width, 3))
    return parts


def compare(name, images, program):
    golden, vision, top, path, arguments, parts_of = ROWS[name]
    module, _, cls = path.rpartition(".")
    processor = getattr(importlib.import_module("transformers.models." + module), cls)(**arguments)
    equal = parts = equal_parts = values = differ = worst = sizes = 0
    with tempfile.TemporaryDirectory() as folder:
        write_config(pathlib.Path(folder), golden, vision, top, arguments)
        names = sorted(p.name for p in images.iterdir())
        run = subprocess.Popen([program, folder, images], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for file in names:
            run.stdin.write(file.encode() + b"\n")
            run.stdin.flush()
            ours = read_parts(run.stdout)
            found = processor(Image.open(images / file), do_rescale=False, do_normalize=False, return_tensors="np")
            theirs = parts_of(found)
            if len(ours) == len(theirs):
                # Pixels beyond whole tokens are not kept of a tile.
                theirs = [t[:o.shape[0], :o.shape[1]] if t.shape[0] - o.shape[0] < 64 else t for o, t in zip(ours, theirs)]
            if [o.shape for o in ours] != [t.shape for t in theirs]:
                print(f"  {file}: {[o.shape[:2] for o in ours]}, not {[t.shape[:2] for t in theirs]}")
                sizes += 1
                continue
            off = [np.abs(o.astype(int) - np.rint(t).astype(int)) for o, t in zip(ours, theirs)]
            parts += len(off)
            equal_parts += sum(not d.any() for d in off)
            equal += not any(d.any() for d in off)
            values += sum(d.size for d in off)
            differ += sum(int(np.count_nonzero(d)) for d in off)
            worst = max(worst, *(int(d.max()) for d in off))
        run.stdin.close()
        run.wait()
    print(f"{name}: {len(names)} images, {sizes} of another size, {equal} equal to the byte; {parts} parts, {equal_parts} equal; "
          f"{differ} of {values} values differ, by {worst} at most ({cls})", flush=True)
    return equal == len(names)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--images", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--program", default="build/golden_pixels")
    options.add_argument("--pillow-order", action="store_true")
    o = options.parse_args()
    if not o.pillow_order:
        Image.Image.resize = rows_first
    with tempfile.TemporaryDirectory() as folder:
        draw, rng = random.Random(o.seed), np.random.default_rng(o.seed)
        for i in range(o.images):
            draw_image(draw, rng).save(f"{folder}/{i:04}.png", compress_level=1)
        good = [compare(name, pathlib.Path(folder), o.program) for name in o.names or ROWS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
