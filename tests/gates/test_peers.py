"""Figures that peers reads from the programs' output, its table, and the GGUF files of made-up weights."""

import json
import pathlib
import struct
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench"))

import gguf_shape
import peers

OURS = """kernels avx512, 2 workers, compute f32
    rows  ms a step   tokens/s       GB/s of reading
       1      25.00       40.0       25.0        92%
      16     200.00       80.0          -          -
  prefill of 512 tokens: 2.00 s, 256.0 tokens/s, 300.0 GFLOP/s, 54% of the multiply-adds' peak
"""
BATCHED = """main: n_kv_max = 16384
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   512 |     16 |    1 |    528 |    1.600 |   320.00 |    0.400 |    40.00 |    2.000 |   264.00 |
|   512 |     16 |   16 |    768 |    1.600 |   320.00 |    3.200 |    80.50 |    4.800 |   160.00 |
"""
BENCH = 'note\nbuild_commit,n_prompt,n_gen,avg_ts\n"0c1e570","512","0","300.5"\n"0c1e570","2048","0","280.25"\n'


def test_figures_come_from_each_programs_own_lines():
    figures, shares = peers.parse_model_bench(OURS)
    assert figures == {"1 rows": 40.0, "16 rows": 80.0, "prefill 512": 256.0}
    assert shares == {"1 rows": 92.0, "prefill 512": 54.0}
    assert peers.parse_batched_bench(BATCHED) == {"1 rows": 40.0, "16 rows": 80.5}
    assert peers.parse_llama_bench(BENCH) == {"prefill 512": 300.5, "prefill 2048": 280.25}


def test_output_without_figures_gives_none():
    for parse in (peers.parse_batched_bench, peers.parse_llama_bench):
        assert parse("") == parse("error: no model\n") == {}
    assert peers.parse_model_bench("m: skipped: no memory") == ({}, {})


def test_amx_is_believed_from_the_log_alone():
    assert peers.has_amx("load_tensors:          AMX model buffer size =   675.00 MiB")
    assert not peers.has_amx("system_info: AMX_INT8 = 0 | buffer size = 3 MiB")


def test_a_table_has_ratios_where_both_have_figures():
    ours = {"int16": {"1 rows": 40.0, "2 rows": 60.0}, "int8": {"1 rows": 50.0}}
    text = peers.table("m", 2, ours, {"int16": {"1 rows": 92.0}, "int8": {}}, {"a": {"1 rows": 20.0}, "b": {}})
    assert "| 1 rows | 40.0 | 92 % | 50.0 | - | 20.0 | 2.00 | - | - |" in text
    assert "| 2 rows | 60.0 | - | - | - | - | - | - | - |" in text
    assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1


def test_medians_leave_out_what_a_round_lacks():
    assert peers.medians([{"a": 1.0, "b": 5.0}, {"a": 9.0}, {"a": 2.0}]) == {"a": 2.0, "b": 5.0}


def test_names_of_models():
    assert peers.Model.parse("qwen3.5-35b-a3b:8-4bit") == peers.Model("qwen3.5-35b-a3b", 8, "4bit")
    assert peers.Model.parse("qwen3-0.6b-bf16").file_name() == "qwen3-0.6b-bf16"
    with pytest.raises(Exception, match="not SHAPE-FORM"):
        peers.Model.parse("qwen3-0.6b-3bit")


class Reader:
    """A GGUF file's header, read from the format's description."""

    SIZES = {4: 4, 5: 4, 6: 4}

    def __init__(self, data):
        self.data, self.at = data, 0
        assert self.take(4) == b"GGUF"
        version, tensors, entries = struct.unpack("<IQQ", self.take(20))
        assert version == 3
        self.metadata = dict(self.entry() for _ in range(entries))
        self.tensors = {name: rest for name, *rest in (self.tensor() for _ in range(tensors))}
        self.start = -(-self.at // 32) * 32

    def take(self, n):
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def text(self):
        return self.take(self.number("Q")).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(count)]
        return self.number({4: "I", 5: "i", 6: "f"}[kind])

    def entry(self):
        key = self.text()
        return key, self.value(self.number("I"))

    def tensor(self):
        name, rank = self.text(), self.number("I")
        return name, [self.number("Q") for _ in range(rank)], self.number("I"), self.number("Q")


@pytest.mark.parametrize("shape, arch", [("tiny-qwen3", "qwen3"), ("tiny-qwen3.5", "qwen35"), ("tiny-qwen3.5-moe", "qwen35moe")])
def test_a_gguf_has_the_matrices_of_the_checkpoint(tmp_path, shape, arch):
    folder = tmp_path / "model"
    subprocess.run([TOP / "build/mkmodel", "--out", folder, shape, "bf16"], check=True, stdout=subprocess.DEVNULL)
    gguf_shape.write(tmp_path / "m.gguf", folder, "bf16")
    data = (tmp_path / "m.gguf").read_bytes()
    got = Reader(data)
    assert got.metadata["general.architecture"] == arch
    ends = [(got.start + at, got.start + at + gguf_shape.bytes_of(sizes, {0: "f32", 30: "bf16"}[kind])) for sizes, kind, at in got.tensors.values()]
    assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:])) and len(data) == -(-ends[-1][1] // 32) * 32
    # mkmodel's own header: as many values in matrices, apart from what the two name differently.
    header = json.loads((folder / "model.safetensors").read_bytes()[8:][: struct.unpack("<Q", (folder / "model.safetensors").read_bytes()[:8])[0]])
    values = lambda shapes: sum(gguf_shape.math.prod(s) for s in shapes)
    theirs = values(t["shape"] for name, t in header.items() if name != "__metadata__" and "vision" not in name and "visual" not in name and not name.startswith("mtp"))
    assert values(sizes for sizes, _, _ in got.tensors.values()) == theirs


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def prints(text, where=1):
    return f"cat >&{where} <<'END'\n{text}END\n"


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """Runs peers.py on programs that print; returns the table."""
    build, folder = tmp_path / "build", tmp_path / "peer"
    program(build / "bench/run/model_bench", f'echo "$@" >> {tmp_path}/asked\n' + prints(OURS))
    program(folder / "llama-bench", prints(BENCH) + prints("load_tensors:  AMX model buffer size = 675.00 MiB\n", 2))
    monkeypatch.setattr(peers, "checkpoint", lambda model, options: tmp_path)
    monkeypatch.setattr(peers, "gguf", lambda model, options: tmp_path / "m.gguf")

    def run(batched, *more):
        program(folder / "llama-batched-bench", batched)
        monkeypatch.setattr(sys, "argv", ["peers.py", "--build", str(build), "--models", "qwen3-0.6b-8bit", "--prefill", "512",
                                          "--threads", "1", "--rounds", "1", *more, f"a={folder}"])
        peers.main()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("where", [1, 2])
def test_a_run_of_all_programs_in_turns(bench, where):
    text = bench(prints(BATCHED, where))
    assert "| 1 rows | 40.0 | 92 % | 40.0 | 1.00 |" in text
    assert "AMX in use, by its own log: a" in text


def test_each_mode_has_a_column(bench, tmp_path):
    text = bench(prints(BATCHED), "--compute", "int16,int8", "--rows", "16")
    assert "| 16 rows | 80.0 | - | 80.0 | - | 80.5 | 0.99 |" in text
    assert "1 rows" not in text
    assert [line.split()[5] for line in (tmp_path / "asked").read_text().splitlines()] == ["int16", "int8"]


def test_rows_that_model_bench_does_not_measure_are_refused(bench, capsys):
    with pytest.raises(SystemExit):
        bench("", "--rows", "3")
    assert "3 is none of 1, 2, 4, 8, 16" in capsys.readouterr().err
