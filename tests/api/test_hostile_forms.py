"""Generated damage to quantised checkpoints of every form and to GGUF files: cuts, bits of heads, sizes,
places, scales, orders of groups, and what the configuration says of quantisation."""

import json
import struct

import pytest

from conftest import MODEL, TOP, Server, ends_well
from hostile import draws, unharmed
from hostile_files import changed_json, changed_weights, complete, copy_of, damaged, load, unload

FORMS = sorted(p for p in (TOP.parent / "shared/golden-quant").glob("*") if p.is_dir())
GGUFS = sorted(p for p in (TOP.parent / "shared/golden-gguf").glob("*/*.gguf"))
ODD = [0, 1, 2, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]
NAN = {"F32": b"\0\0\xc0\x7f", "BF16": b"\xc0\x7f", "F16": b"\0\x7e", "F8_E4M3": b"\x7f"}

pytestmark = [pytest.mark.hostile, pytest.mark.skipif(not FORMS or not GGUFS, reason="no goldens of forms beside the checkout")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A server that finds `damaged` beside the bundled model that it serves."""
    top = tmp_path_factory.mktemp("hostile-forms")
    copy_of(top / "damaged", FORMS[0])
    s = Server("--model-dir", top, "--load-timeout", 30)
    s.top = top
    with ends_well(s):
        assert load(s, "damaged")
        unload(s, "damaged")
        yield s


def tried(server):
    """Whether it could be loaded; then it answers a request, or fails with a reason."""
    if not load(server, "damaged"):
        return False
    complete(server, "damaged")
    unload(server, "damaged")
    return True


# ---- directories of safetensors ----


def parts(data):
    count = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + count]), 8 + count


def bits(rng, data, end):
    """A few bits before `end` are others."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 3, 8])):
        data[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return bytes(data)


def with_nan(rng, data):
    """A scale that is not a number; None: the form has none that could be."""
    tensors, body = parts(data)
    scales = [t for name, t in tensors.items() if name.split(".")[-1] in ("scales", "weight_scale", "weight_scale_inv", "weight_global_scale") and t["dtype"] in NAN]
    if not scales:
        return None
    t = rng.choice(scales)
    nan, (begin, end) = NAN[t["dtype"]], t["data_offsets"]
    at = body + begin + rng.randrange((end - begin) // len(nan)) * len(nan)
    return data[:at] + nan + data[at + len(nan):]


def with_other_groups(rng, data):
    """A g_idx whose groups are others, or out of range."""
    tensors, body = parts(data)
    orders = [t for name, t in tensors.items() if name.endswith("g_idx")]
    if not orders:
        return None
    begin, end = rng.choice(orders)["data_offsets"]
    at = body + begin + rng.randrange((end - begin) // 4) * 4
    old = struct.unpack("<i", data[at:at + 4])[0]
    return data[:at] + struct.pack("<i", rng.choice([n for n in (-1, old + 1, 2**30, -2**31, 10**6) if n != old])) + data[at + 4:]


def damaged_form(rng, source, where):
    """Writes the directory; returns whether it must be refused."""
    weights, config = (source / name for name in ("model.safetensors", "config.json"))
    copy_of(where, source, weights.name, config.name)
    data, text = weights.read_bytes(), config.read_bytes()
    refused, kind = False, rng.randrange(7)
    if kind == 0:
        data, refused = data[:rng.randrange(len(data))], True
    elif kind == 1:
        data = bits(rng, data, parts(data)[1])
    elif kind == 2:
        data = changed_weights(rng, data)
    elif kind in (3, 4):
        other = with_nan(rng, data) if kind == 3 else with_other_groups(rng, data)
        data, refused = other or data, other is not None
    elif kind == 5:
        root = json.loads(text)
        for key in ("quantization_config", "quantization"):
            if key in root:
                root[key] = json.loads(changed_json(rng, json.dumps(root[key])))
        text = json.dumps(root).encode()
    else:
        text = changed_json(rng, text) if rng.random() < 0.5 else damaged(rng, text)
    (where / weights.name).write_bytes(data)
    (where / config.name).write_bytes(text)
    return kind, refused


def test_damaged_forms(models):
    loaded = 0
    with unharmed(models, model=MODEL.name):
        for number, rng in draws("forms", 4 * len(FORMS)):
            source = FORMS[number % len(FORMS)]
            kind, refused = damaged_form(rng, source, models.top / "damaged")
            was = tried(models)
            assert not (was and refused), (source.name, kind, number)
            loaded += was
    assert loaded > 0


# ---- GGUF ----


def heads(data):
    """The end of the head, and where its numbers of 8 bytes are: counts, lengths, dimensions, offsets."""
    numbers, at = [8, 16], 24

    def text(at):
        numbers.append(at)
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    tensors, pairs = struct.unpack_from("<QQ", data, 8)
    for _ in range(pairs):
        at = text(at)
        kind, count, at = struct.unpack_from("<I", data, at)[0], 1, at + 4
        if kind == 9:
            kind, count = struct.unpack_from("<IQ", data, at)
            numbers.append(at + 4)
            at += 12
        if kind == 8:
            for _ in range(count):
                at = text(at)
        else:
            at += sizes[kind] * count
    for _ in range(tensors):
        at = text(at)
        rank = struct.unpack_from("<I", data, at)[0]
        numbers += [at + 4 + 8 * i for i in range(rank)] + [at + 8 + 8 * rank]
        at += 16 + 8 * rank
    return at, numbers


def damaged_gguf(rng, data):
    end, numbers = heads(data)
    kind = rng.randrange(5)
    if kind == 0:
        return data[:rng.randrange(len(data) - 64)], True
    if kind == 1:
        return bits(rng, data, end), False
    data = bytearray(data)
    if kind == 2:
        for at in rng.sample(numbers, rng.choice([1, 1, 2, 5])):
            struct.pack_into("<Q", data, at, rng.choice([*ODD, len(data), struct.unpack_from("<Q", data, at)[0] + rng.choice([-1, 1, 32])]) % 2**64)
    elif kind == 3:
        one, other = rng.sample(numbers, 2)
        data[one:one + 8] = data[other:other + 8]
    else:
        for _ in range(50):  # values, perhaps scales
            at = rng.randrange(end, len(data) - 2) & ~1
            data[at:at + 2] = rng.choice([b"\0\x7e", b"\0\x7c", b"\xff\xff"])
    return bytes(data), False


def test_damaged_ggufs(models):
    loaded = 0
    with unharmed(models, model=MODEL.name):
        for number, rng in draws("ggufs", 8 * len(GGUFS)):
            source = GGUFS[number % len(GGUFS)]
            where = copy_of(models.top / "damaged", source.parent, source.name)
            data, refused = damaged_gguf(rng, source.read_bytes())
            (where / source.name).write_bytes(data)
            was = tried(models)
            assert not (was and refused), (source.name, number)
            loaded += was
    print(loaded, "were loaded")
