"""Requests of the gate `images`, and what it looks for on a server: each would say that all is well if it
were wrong."""

import os
import pathlib
import random
import subprocess
import sys
import zlib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/gates"))

import drawing
import gate_draft
import gate_images


def chunks(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = {}, 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert int.from_bytes(data[at + 8 + length : at + 12 + length], "big") == zlib.crc32(kind + body)
        found[kind] = body
        at += 12 + length
    return found


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("colour, channels", [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_a_png_has_as_many_bytes_as_it_says(depth, colour, channels):
    found = chunks(drawing.png(31, 17, "a", depth, colour))
    lines = zlib.decompress(found[b"IDAT"])
    assert found[b"IHDR"][:10] == (31).to_bytes(4, "big") + (17).to_bytes(4, "big") + bytes((depth, colour))
    assert len(lines) == 17 * (1 + 31 * channels * depth // 8)
    assert len({lines[i : i + 1 + 31 * channels * depth // 8] for i in range(0, len(lines), 1 + 31 * channels * depth // 8)}) == 17


def test_a_look_is_always_the_same_and_no_two_are_alike():
    made = [drawing.image(40, 30, look) for look in range(40)]
    assert made == [drawing.image(40, 30, look) for look in range(40)]
    assert len({data for _, data in made}) == 40
    assert {kind for kind, _ in made} <= {"image/png", "image/jpeg", "image/webp"}


def test_bad_images_are_bad_in_all_ways():
    made = {drawing.bad_url(random.Random(n)) for n in range(300)}
    assert len({url.split(",")[0] for url in made}) > 4 and len(made) > 150


def test_a_child_and_a_file_without_a_name_are_seen():
    with subprocess.Popen(["sleep", "60"]) as child:
        assert "sleep" in gate_images.children(os.getpid())
        child.kill()
    assert "sleep" not in gate_images.children(os.getpid())
    file = os.memfd_create("left")
    assert any("memfd:left" in name for name in gate_images.open_files(os.getpid()))
    os.close(file)
    assert not any("memfd:left" in name for name in gate_images.open_files(os.getpid()))


MIB = 1 << 20


def samples(others=lambda n: 5, pages=lambda n: n):
    """Memory after every 32 tokens of a generation whose pages take 1 MiB each."""
    for n in range(4, 40):
        kv = gate_draft.units_of(gate_draft.PROMPT + 32 * pages(n), MIB)
        tree = {"process": kv + others(n), "process/m": kv + others(n), "process/m/pools": kv, "process/m/pools/kv": kv, "process/m/x": others(n)}
        yield {"at": 32 * n, "own": 50 * MIB + kv, "accounts": tree}


class Told:
    def __init__(self):
        self.broken = []

    def figure(self, *_):
        pass

    def must(self, what, holds):
        self.broken += [] if holds else [what]


@pytest.mark.parametrize(
    "more, words",
    [
        ({}, []),
        ({"others": lambda n: 5 + (n == 20)}, ["nothing else"]),
        ({"pages": lambda n: 2 * n}, ["units that the pages"]),
        ({"pages": lambda n: n // 2}, ["units that the pages"]),
    ],
)
def test_a_ledger_that_grows_by_something_else_is_told(more, words):
    told = Told()
    gate_draft.judge_memory(told, list(samples(**more)), MIB)
    assert len(told.broken) == len(words) and all(word in what for word, what in zip(words, told.broken))
