"""Weights that tools/golden/seeded.py draws from a recipe."""

import hashlib
import importlib.util
import json
import os
import pathlib
import struct
from fractions import Fraction

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("seeded", TOP / "tools/golden/seeded.py")
seeded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(seeded)


def bf16(bits):
    return Fraction(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def exact(seed, j, scale, offset):
    noise = hashlib.shake_128(b"%d" % seed).digest(4 * j + 4)[-4:]
    return Fraction(offset) + Fraction((sum(noise) - 510) * scale, 65536)


@pytest.mark.parametrize("scale, offset, first", [(88, 0, 0), (1, 1.0, 700), (255, -0.375, 3)])
def test_elements_are_the_bf16_numbers_nearest_to_the_formula(scale, offset, first):
    drawn = seeded.drawn("BF16", 500, 12, scale, offset, first)
    assert len(drawn) == 1000
    for i, (bits,) in enumerate(struct.iter_unpack("<H", drawn)):
        value = exact(12, first + i, scale, offset)
        magnitude = bits & 0x7FFF
        around = [bits & 0x8000 | m for m in range(max(magnitude - 1, 0), magnitude + 2)]
        nearest = {b: abs(bf16(b) - value) for b in around}
        assert nearest[bits] == min(nearest.values())
        assert bits % 2 == 0 or list(nearest.values()).count(nearest[bits]) == 1


def test_float32_is_the_formula_itself():
    drawn = struct.unpack("<64f", seeded.drawn("F32", 64, 7, 200, 1.0, 5))
    assert [Fraction(v) for v in drawn] == [exact(7, 5 + i, 200, 1) for i in range(64)]


def recipe(digest):
    return {"sha256": digest, "dtype": "BF16", "tensors": {
        "a": [[2, 3], 5, 90], "b": [[4], 5, 90, 1.0, 6],
        "c": {"dtype": "I64", "shape": [1], "base64": "AQAAAAAAAAA="}}}


def test_a_file_has_the_tensors_in_order_and_the_stated_digest(tmp_path):
    file = seeded.file_of(recipe(""))
    size = struct.unpack("<Q", file[:8])[0]
    header = json.loads(file[8:8 + size])
    assert size % 8 == 0 and len(file) == 8 + size + 12 + 8 + 8
    assert header["b"] == {"dtype": "BF16", "shape": [4], "data_offsets": [12, 20]}
    assert header["c"] == {"dtype": "I64", "shape": [1], "data_offsets": [20, 28]}
    assert file[-8:] == struct.pack("<q", 1)
    path, target = tmp_path / "weights.json", tmp_path / "model.safetensors"
    path.write_text(json.dumps(recipe(hashlib.sha256(file).hexdigest())))
    target.write_bytes(b"older")
    assert seeded.write_all([tmp_path]) == [] and target.read_bytes() == file
    assert [f.name for f in sorted(tmp_path.iterdir())] == ["model.safetensors", "weights.json"]


def test_a_recipe_that_gives_another_digest_writes_nothing(tmp_path):
    (tmp_path / "weights.json").write_text(json.dumps(recipe("0" * 64)))
    (error,) = seeded.write_all([tmp_path])
    assert "not the stated one" in error and not (tmp_path / "model.safetensors").exists()


def recipe_and_file(folder):
    file = seeded.file_of(recipe(""))
    path, target = folder / "weights.json", folder / "model.safetensors"
    path.write_text(json.dumps(recipe(hashlib.sha256(file).hexdigest())))
    target.write_bytes(file)
    return path, target


def test_only_a_file_older_than_a_recipe_gets_another_time(tmp_path):
    path, target = recipe_and_file(tmp_path)
    later = pathlib.Path(seeded.__file__).stat().st_mtime + 1000
    os.utime(path, (later, later))
    os.utime(target, (later + 1, later + 1))
    assert seeded.write_all([tmp_path]) == [] and target.stat().st_mtime == later + 1
    os.utime(path, (1000, 1000))
    os.utime(target, (1000, 1000))
    assert seeded.write_all([tmp_path]) == [] and target.stat().st_mtime > 1000


def test_a_file_that_cannot_get_another_time_stays(tmp_path, monkeypatch):
    _, target = recipe_and_file(tmp_path)
    os.utime(target, (1000, 1000))

    def refuse(_):
        raise PermissionError

    monkeypatch.setattr(seeded.os, "utime", refuse)
    assert seeded.write_all([tmp_path]) == [] and target.stat().st_mtime == 1000


def test_an_interrupted_draw_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    _, target = recipe_and_file(tmp_path)
    target.write_bytes(b"older")

    def interrupt(self, _):
        raise KeyboardInterrupt

    monkeypatch.setattr(pathlib.Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        seeded.write_all([tmp_path])
    assert target.read_bytes() == b"older"
    assert [f.name for f in sorted(tmp_path.iterdir())] == ["model.safetensors", "weights.json"]


def test_goldens_have_the_stated_digests(tmp_path):
    recipes = list(seeded.DATA.rglob("weights.json"))
    assert recipes and seeded.write_all([seeded.DATA]) == []
    for path in recipes:
        file = path.with_name("model.safetensors").read_bytes()
        assert hashlib.sha256(file).hexdigest() == json.loads(path.read_text())["sha256"]
        assert file == seeded.file_of(json.loads(path.read_text()))
