"""Figures that http_bench makes of streams: tokens and when they came, rates, ratios; and one burst against a
server of a few lines."""

import asyncio
import json
import pathlib
import random
import subprocess
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import http_bench


def event(**choice):
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def test_tokens_are_events_with_text_or_token_ids():
    parts = [
        (0.5, b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + event(text="", token_ids=[7])),
        (0.6, event(text="a", token_ids=[7, 8])),
        (0.7, event(text="b")),
        (0.8, b": a comment\n\n" + event(text="", finish_reason="length") + b"data: [DONE]\n\n"),
    ]
    assert http_bench.token_times(parts) == [0.5, 0.6, 0.6, 0.7]


def test_an_event_counts_when_its_end_has_come_however_it_is_cut():
    whole = event(text="a").replace(b"\n", b"\r\n") + event(text="b")
    for cut in range(1, len(whole)):
        times = http_bench.token_times([(1.0, whole[:cut]), (2.0, whole[cut:])])
        assert len(times) == 2 and times[1] == 2.0


def test_an_error_in_a_stream_is_no_answer():
    with pytest.raises(RuntimeError, match="too large"):
        http_bench.token_times([(1.0, b'data: {"error": {"message": "too large"}}\n\n')])


def test_rates_end_with_the_last_client():
    b = http_bench.Burst(100, [[1.0, 1.1, 1.3], [2.0, 2.5, 4.0]])
    assert b.firsts() == [1.0, 2.0]
    assert b.gaps() == pytest.approx([0.1, 0.2, 0.5, 1.5])
    assert b.prefill_rate() == 100
    assert b.output_rate() == 1.5


def test_a_row_has_medians_of_bursts_and_quantiles_of_all_gaps():
    bursts = [http_bench.Burst(100, [[first, first + 0.1]]) for first in (1.0, 2.0, 4.0)]
    r = http_bench.row("x", 1, bursts, 100)
    assert r["first_median_ms"] == 2000 and r["first_last_ms"] == 2000
    assert r["prefill_tokens_s"] == 50 and r["of_bench"] == 0.5
    assert r["gap_median_ms"] == pytest.approx(100) and r["gap_longest_ms"] == pytest.approx(100)
    assert http_bench.line(r).count("|") == http_bench.HEAD.splitlines()[0].count("|")


def test_the_rate_of_model_bench_is_read():
    assert http_bench.parse_bench("  prefill of 512 tokens: 0.46 s, 1122.5 tokens/s, 990.1 GFLOP/s\n") == 1122.5
    with pytest.raises(RuntimeError, match="skipped"):
        http_bench.parse_bench("x: skipped: no memory")


def test_memory_is_that_of_the_process():
    keeps = "import time; block = bytearray(48 << 20); print('up', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", keeps], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        own, files = http_bench.Server.memory(types.SimpleNamespace(process=process))
        process.kill()
    assert 48 < own < 96 and 0 < files < 64
    assert http_bench.memory_line("x", [(50.4, 9.0), (70.0, 9.0), (60.0, 11.0)]) == "memory of x: 60 MiB of its own, 9 MiB of files"


def test_a_file_needs_the_size_of_its_vocabulary(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["http_bench.py", str(tmp_path / "m.gguf")])
    with pytest.raises(SystemExit):
        http_bench.arguments()
    assert "--vocab" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["http_bench.py", str(tmp_path / "m.gguf"), "--vocab", "500"])
    assert http_bench.arguments().vocab == 500


def test_a_burst_asks_for_fresh_prompts_and_fails_when_tokens_are_missing():
    asked = []

    async def answer(reader, writer):
        length = 0
        while (head := await reader.readline()) != b"\r\n":
            if head.lower().startswith(b"content-length:"):
                length = int(head.split(b":")[1])
        asked.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + event(text="a") * min(asked[-1]["max_tokens"], 3))
        await writer.drain()
        writer.close()

    async def run(answer_tokens):
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port, options = server.sockets[0].getsockname()[1], types.SimpleNamespace(prompt=40, answer=answer_tokens, vocab=1000)
        async with server:
            return await asyncio.to_thread(http_bench.run_burst, port, options, random.Random(1), 3)

    got = asyncio.run(run(3))
    assert [len(s) for s in got.streams] == [3, 3, 3] and all(s[0] > 0 for s in got.streams)
    assert len({tuple(a["prompt"]) for a in asked}) == 3 and all(len(a["prompt"]) == 40 for a in asked)
    with pytest.raises(RuntimeError, match="3 tokens came where 5 were asked for"):
        asyncio.run(run(5))
