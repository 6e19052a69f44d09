#!/usr/bin/env python3
"""make_golden.py NAME...: writes the small goldens of tests/golden/data.

Each is a tiny checkpoint with random weights, and what Hugging Face transformers computes from it in float32:
eager attention, full attention masks, no cache. Run with a Python that has these packages from PyPI:

    torch (the CPU build)   transformers >= 5.17   safetensors

ENTRIES in golden_entries.py lists the goldens: the configuration, the first seed to try, and how the weights
are saved. A seed is taken whose greedy tokens are clear and not all the same: every margin is above
MARGIN_MIN, and DIFFERENT_MIN of them differ. --out DIR writes to another folder; --seeds N tries more seeds;
--list prints the names. seeded.py's generator draws the weights, and a golden has their recipe, weights.json,
instead of model.safetensors.

golden.json has under `text`: `prompt` token ids; `argmax`, `max_logit` and `margin` (largest logit less the
second one) at every prompt position; `logits_last`, after the last prompt token; `greedy`, 32 tokens without
regard to an end token; `greedy_margin`, the margin at each of those steps.

A model with images has `image` too: a prompt with the pixels of ../noise.rgb, its logits and tokens, and
`features_first_token` of its vision encoder. One with tiles has `tiles`: a prompt with an image of
several tiles and the whole one, and its tokens.

A model that makes vectors has `embedding` instead: `ids`, and their `vector` of length 1, by the pooling of
its modules.json. One that makes scores has `rerank`: `ids`, `token_types` of a pair, and the `score`."""
import argparse
import json
import pathlib
import sys

from golden_entries import ENTRIES

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = TOP / "tests" / "golden" / "data"
MARGIN_MIN = 2e-3
TILES_MARGIN_MIN = 1e-2
DIFFERENT_MIN = 5
GREEDY = 32
KIB_MAX = 24  # size of a golden in the repository


# ---- weights ----

def random_like(draws, tensor, gain, dtype):
    """Random values of the size that the initial ones ask for: around a constant, or a matrix's."""
    if tensor.dim() < 2:
        first = float(tensor[0] if tensor.dim() else tensor)
        if bool((tensor == first).all()):
            return draws.like(tensor.shape, dtype, 0.2, first)
        return tensor + draws.like(tensor.shape, dtype, 0.2)
    inputs = tensor.shape[-1] if tensor.dim() < 4 else tensor[0].numel()
    return draws.like(tensor.shape, dtype, gain / inputs ** 0.5)


def fill(torch, model, entry, draws):
    dtype = getattr(torch, entry.dtype)
    done = set()  # tied tensors
    with torch.no_grad():
        tensors = model.state_dict()
        for name, tensor in sorted(tensors.items()):
            if not tensor.is_floating_point() or tensor.data_ptr() in done:
                continue
            done.add(tensor.data_ptr())
            tensor.copy_(random_like(draws, tensor.float(), entry.gain, dtype).to(dtype).float())
        if entry.weights:
            entry.weights(tensors)
            for tensor in tensors.values():
                tensor.copy_(tensor.to(dtype).float())


def make_model(entry, seed):
    import torch
    import transformers
    from draws import Draws
    from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText,
                              AutoModelForSequenceClassification)
    torch.manual_seed(0)
    config = AutoConfig.for_model(entry.model_type, **entry.config)
    config.dtype = torch.float32
    auto = (AutoModelForImageTextToText if entry.vision else AutoModel if entry.pooling
            else AutoModelForSequenceClassification if entry.scores else AutoModelForCausalLM)
    make = getattr(transformers, entry.made_by)._from_config if entry.made_by else auto.from_config
    model = make(config, attn_implementation="eager").eval().float()
    draws = Draws(seed)
    fill(torch, model, entry, draws)
    return torch, model, draws


# ---- computation ----

def logits_of(torch, model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()


def margins(logits):
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


def rounded(values):
    return [round(float(v), 6) for v in values]


def text_part(torch, model, entry, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    vocab = entry.first if entry.sees and entry.images.reserved else model.config.get_text_config().vocab_size
    prompt = torch.randint(3, vocab, (entry.prompt,), generator=generator).tolist()
    logits = logits_of(torch, model, prompt)
    part = {"prompt": prompt, "argmax": logits.argmax(-1).tolist(), "max_logit": rounded(logits.max(-1).values),
            "margin": rounded(margins(logits)), "logits_last": rounded(logits[-1]), "greedy": [],
            "greedy_margin": []}
    ids = list(prompt)
    for _ in range(GREEDY):
        last = logits_of(torch, model, ids)[-1]
        part["greedy"].append(int(last.argmax()))
        part["greedy_margin"].append(round(float(margins(last)), 6))
        ids.append(part["greedy"][-1])
    return part


def go_on(prompt, logits, count, image):
    """Greedy tokens; one that stands for an image has no margin."""
    part = {"greedy": [], "greedy_margin": []}
    ids = list(prompt)
    while len(part["greedy"]) < count:
        last = logits(ids)[-1]
        ids.append(int(last.argmax()))
        part["greedy"].append(ids[-1])
        part["greedy_margin"].append(round(float(margins(last)), 6))
        if ids[-1] == image:
            return part | {"greedy_margin": [0]}
    return part


def image_part(torch, model, entry, seed):
    generator = torch.Generator().manual_seed(3000 + seed)
    shape, patch, merge = entry.images.shape, entry.images.patch(entry.vision), entry.images.merge(entry.vision)
    noise = (DATA / "noise.rgb").read_bytes()[:shape[0] * shape[1] * 3]
    image = torch.frombuffer(bytearray(noise), dtype=torch.uint8).view(shape)
    grid = [1, shape[0] // patch, shape[1] // patch]
    inputs = entry.images.inputs(torch, image, entry.vision)
    random = torch.randint(3, entry.first, (24,), generator=generator).tolist()
    prompt = random[:9] + entry.images.tokens(entry.first, grid[1] // merge, grid[2] // merge) + random[9:]

    def logits(ids):
        with torch.no_grad():
            return model(input_ids=torch.tensor([ids]), **inputs, **entry.images.more(torch, ids, entry.first),
                         **entry.images.masks(torch, model, ids, entry.first), use_cache=False).logits[0].double()

    all_logits = logits(prompt)
    with torch.no_grad():
        features = model.model.get_image_features(**inputs).pooler_output[0]
    part = {"image_hwc": "../noise.rgb", "image_shape": shape, "grid_thw": grid, "prompt": prompt,
            "argmax": all_logits.argmax(-1).tolist(), "logits_last": rounded(all_logits[-1]),
            "features_first_token": rounded(features[0])}
    return part | go_on(prompt, logits, GREEDY // 2, entry.first)


def tiles_part(torch, model, entry, seed):
    """Greedy tokens after an image of several tiles: the first one's pixels, each four times."""
    from PIL import Image
    generator = torch.Generator().manual_seed(4000 + seed)
    height, width, _ = entry.images.shape
    noise = (DATA / "noise.rgb").read_bytes()[:height * width * 3]
    image = Image.frombytes("RGB", (width, height), noise).resize((2 * width, 2 * height), Image.Resampling.NEAREST)
    inputs = entry.images.tiles(image)
    random = torch.randint(3, entry.first, (24,), generator=generator).tolist()
    prompt = random[:9] + entry.images.tiled(entry.first) + random[9:]

    def logits(ids):
        with torch.no_grad():
            return model(input_ids=torch.tensor([ids]), **inputs, use_cache=False).logits[0].double()

    return {"prompt": prompt} | go_on(prompt, logits, GREEDY // 4, entry.first)


def texts_of(torch, entry, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    return [torch.randint(3, entry.config["vocab_size"], (n,), generator=generator).tolist() for n in entry.lengths]


def vector_of(torch, model, entry, ids, dense):
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        vector = {"cls": rows[0], "mean": rows.mean(0), "last": rows[-1]}[entry.pooling]
        for matrix in dense:
            vector = matrix @ vector
    return rounded(vector / vector.norm())


def vectors_part(torch, model, entry, seed, dense):
    return [{"ids": ids, "vector": vector_of(torch, model, entry, ids, dense)} for ids in texts_of(torch, entry, seed)]


def scores_part(torch, model, entry, seed):
    part = []
    for ids in texts_of(torch, entry, seed):
        one = {"ids": ids}
        if entry.config.get("type_vocab_size", 1) > 1:
            one["token_types"] = [int(i > len(ids) // 3) for i in range(len(ids))]
        with torch.no_grad():
            logit = model(**{("input_ids" if k == "ids" else "token_type_ids"): torch.tensor([v])
                             for k, v in one.items()}).logits[0, 0]
        part.append(one | {"score": round(float(torch.sigmoid(logit)), 6)})
    return part


def dense_matrices(torch, entry, draws):
    widths = (entry.config["hidden_size"], *entry.dense)
    return [draws.like((n, k), torch.float32, k ** -0.5) for k, n in zip(widths, entry.dense)]


# ---- files ----

def save_modules(entry, folder, dense):
    from safetensors.torch import save_file
    names = ["Transformer", "Pooling", *["Dense"] * len(dense), "Normalize"]
    paths = ["", "1_Pooling", *[f"{i + 2}_Dense" for i in range(len(dense))], f"{len(dense) + 2}_Normalize"]
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
               for i, (name, path) in enumerate(zip(names, paths))]
    (folder / "modules.json").write_text(json.dumps(modules, indent=1) + "\n")
    (folder / "1_Pooling").mkdir()
    mode = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}[entry.pooling]
    config = {"word_embedding_dimension": entry.config["hidden_size"], f"pooling_mode_{mode}": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config) + "\n")
    for path, matrix in zip(paths[2:], dense):
        (folder / path).mkdir()
        config = {"in_features": matrix.shape[1], "out_features": matrix.shape[0], "bias": False,
                  "activation_function": "torch.nn.modules.linear.Identity"}
        (folder / path / "config.json").write_text(json.dumps(config) + "\n")
        save_file({"linear.weight": matrix}, folder / path / "model.safetensors", metadata={"format": "pt"})



def save(torch, model, entry, folder):
    dtype = getattr(torch, entry.dtype)
    model = model.to(dtype)
    model.config.dtype = dtype
    model.save_pretrained(folder)
    if not entry.served:
        (folder / "generation_config.json").unlink(missing_ok=True)
    if entry.preprocessor:
        (folder / "preprocessor_config.json").write_text(json.dumps(entry.preprocessor) + "\n")
    if entry.change:
        from safetensors.torch import load_file, save_file
        tensors = load_file(folder / "model.safetensors")
        entry.change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if entry.rewrite:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config = entry.rewrite(config) or config
        path.write_text(json.dumps(config, indent=1) + "\n")


def empty(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() else old.unlink()


def finish(name, folder, draws, transformers, parts, said):
    """Recipes take the place of weights; configurations are one line."""
    for path in folder.rglob("config.json"):
        path.write_text(json.dumps(json.loads(path.read_text()), separators=(",", ":")) + "\n")
    whole = sum(draws.store(path) for path in sorted(folder.rglob("model.safetensors")))
    golden = {"transformers": transformers.__version__, "compute": "float32", **parts}
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and f.name != "model.safetensors")
    print(f"{name}: seed {draws.seed}, {size} bytes, of which {whole} are of weights, {said}")
    if size > KIB_MAX << 10:
        sys.exit(f"{name}: more than {KIB_MAX} KiB: make it smaller")


def make_pooled(name, out):
    import transformers
    entry = ENTRIES[name]
    torch, model, draws = make_model(entry, entry.seed)
    dense = dense_matrices(torch, entry, draws)
    empty(out / name)
    if entry.pooling:
        parts = {"embedding": vectors_part(torch, model, entry, entry.seed, dense)}
        save_modules(entry, out / name, dense)
    else:
        parts = {"rerank": scores_part(torch, model, entry, entry.seed)}
    save(torch, model, entry, out / name)
    values = [v["score"] for v in parts["rerank"]] if entry.scores else f"{len(entry.lengths)} vectors"
    finish(name, out / name, draws, transformers, parts, values)


def make(name, out, seeds):
    import transformers
    entry = ENTRIES[name]
    for seed in range(entry.seed, entry.seed + seeds):
        torch, model, draws = make_model(entry, seed)
        head = None
        if entry.mtp:
            import eagle_head
            import mtp_head
            kind = eagle_head if entry.mtp == "eagle" else mtp_head
            head = kind.Head(model, getattr(torch, entry.dtype), draws)
        parts = {"text": text_part(torch, model, entry, seed)}
        clear = True
        if head:
            drafts, margin = head.part(parts["text"]["prompt"] + parts["text"]["greedy"])
            parts["text"] |= drafts
            clear = margin > MARGIN_MIN
        if entry.sees:
            parts["image"] = image_part(torch, model, entry, seed)
        if entry.sees and hasattr(entry.images, "tiles"):
            parts["tiles"] = tiles_part(torch, model, entry, seed)
            clear &= min(parts["tiles"]["greedy_margin"]) > TILES_MARGIN_MIN
        if clear and all(min(p["greedy_margin"]) > MARGIN_MIN and len(set(p["greedy"])) >= DIFFERENT_MIN
               for p in parts.values()):
            break
    else:
        sys.exit(f"{name}: no seed of {seeds} gives {DIFFERENT_MIN} tokens and margins above {MARGIN_MIN}")
    folder = out / name
    empty(folder)
    if head:
        older = entry.rewrite
        entry.change, entry.rewrite = head.add, lambda config: (head.configure(config), older and older(config))[1]
        head.restore()
    save(torch, model, entry, folder)
    if entry.mtp == "eagle":
        head.save(folder / "eagle")
    part = parts["text"]
    largest = max(max(map(abs, part["logits_last"])), max(part["max_logit"]))
    finish(name, folder, draws, transformers, parts,
           f"least margin {min(part['greedy_margin'])}, largest logit {largest}, "
           f"{len(set(part['greedy']))} different greedy tokens")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *ENTRIES], metavar="NAME")
    parser.add_argument("--out", type=pathlib.Path, default=DATA)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(ENTRIES))
    for name in args.names:
        if ENTRIES[name].pooling or ENTRIES[name].scores:
            make_pooled(name, args.out)
        else:
            make(name, args.out, args.seeds)


if __name__ == "__main__":
    main()
