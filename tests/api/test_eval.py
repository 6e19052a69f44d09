"""plateau eval: perplexity against the logprobs of the API, and divergence from a reference."""
import json
import math
import subprocess

import pytest

from conftest import MODEL, PROGRAM, TOP
from test_client_fields import ids_of

TEXT = (TOP / "README.md").read_text()
SMALL = TOP / "tests/golden/data"


def run(*arguments):
    return subprocess.run([PROGRAM, "eval", *map(str, arguments)], capture_output=True, text=True, timeout=300)


def measured(*arguments):
    got = run(*arguments, "--json")
    assert (got.returncode, got.stderr) == (0, "")
    return json.loads(got.stdout)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.smoke
def test_perplexity_is_that_of_the_logprobs(server, text):
    ids = ids_of(server, TEXT)
    got = measured("--text", text, "--ctx", 64, "--chunks", 2)
    assert got["tokens"] == len(ids) and got["chunks"] == 2 and got["positions"] == 2 * 31
    logs = []
    for chunk in ids[:64], ids[64:128]:
        reply = server.complete(chunk, max_tokens=0, temperature=0, echo=True, logprobs=0).json()
        logs += reply["choices"][0]["logprobs"]["token_logprobs"][33:]
    assert got["perplexity"]["mean"] == pytest.approx(math.exp(-sum(logs) / len(logs)), rel=1e-4)
    assert got["perplexity"]["error"] > 0 and "kl_divergence" not in got


def test_a_model_does_not_diverge_from_itself(text):
    for device in "cpu", "fake:0":
        got = measured("--text", text, "--ctx", 32, "--chunks", 3, "--compute", "f32", "--reference", MODEL, "--device", device)
        assert got["kl_divergence"] == {"mean": 0, "error": 0} and got["same_top"]["mean"] == 1
        assert got["perplexity"] == got["reference_perplexity"] and got["reference_bytes"] == got["bytes"]


def test_a_table_for_people(text):
    got = run("--text", text, "--ctx", 32, "--chunks", 2, "--reference", MODEL)
    assert got.returncode == 0 and got.stdout.startswith("30 positions scored in 2 chunks; the text has ")
    assert "KL divergence" in got.stdout and max(map(len, got.stdout.splitlines())) <= 80


@pytest.mark.parametrize("arguments, message", [
    ([], "--text FILE is missing"),
    (["--text", "/nowhere/text"], "/nowhere/text"),
    (["--ctx", "1048576"], "a smaller --ctx"),
    (["--reference", SMALL / "qwen3"], "their logits cannot be compared"),
    (["--model", SMALL / "qwen3"], "has no tokenizer"),
    (["--model", SMALL / "bert"], "is an encoder"),
    (["--model", "/nowhere/model"], "/nowhere/model"),
    (["--memory-limit", "30M"], "--memory-limit"),
    (["--ctx", "8"], "--ctx"),
])
def test_what_cannot_be_measured_is_refused_in_a_sentence(text, arguments, message):
    given = [] if not arguments or "--text" in arguments else ["--text", text]
    got = run(*given, *arguments)
    assert got.returncode in (1, 2) and message in got.stderr and got.stderr.count("\n") == 1 and not got.stdout


def test_a_text_that_is_too_short_or_no_text(tmp_path):
    path = tmp_path / "text"
    for content, message in (b"a few words", "fewer"), (b"\xff\xfe" * 400, "UTF-8"), (b"", "fewer"):
        path.write_bytes(content)
        got = run("--text", path)
        assert got.returncode == 1 and message in got.stderr, got.stderr
