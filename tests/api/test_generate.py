"""plateau generate, as a person runs it: the bundled model's answers are the reference's, and mistakes are told."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
GOLDEN = json.loads((ROOT / "tests/golden/data/canary-8bit/golden.json").read_text())
SINGLE = [c for c in GOLDEN["cases"] if len(c["messages"]) == 1 and not c["tools"]]


def run(*arguments, stdin=None):
    return subprocess.run(
        [PROGRAM, *arguments], input=stdin, capture_output=True, text=True, timeout=120
    )


def arguments_of(case):
    return ["--temperature", "0", "--model", str(ROOT / "models/canary")] + (
        ["--think"] if case["enable_thinking"] else []
    )


@pytest.mark.parametrize("index", range(len(SINGLE)))
def test_answers_are_the_references(index):
    case = SINGLE[index]
    got = run("generate", *arguments_of(case), case["messages"][0]["content"])
    assert got.returncode == 0, got.stderr
    assert got.stdout == case["greedy_text"] + "\n"


@pytest.mark.smoke
def test_a_rendered_prompt_gives_the_same_answer_from_standard_input():
    case = GOLDEN["cases"][15]  # offers tools, answers with a call
    got = run("generate", *arguments_of(case), "--raw", "-", stdin=case["rendered"])
    assert got.returncode == 0, got.stderr
    assert got.stdout == case["greedy_text"] + "\n"


@pytest.mark.smoke
def test_the_same_seed_gives_the_same_text():
    texts = {
        run("generate", "--raw", "--temperature", "2", "--seed", seed, "--max-tokens", "20", "a").stdout
        for seed in ["7", "7", "8"]
    }
    assert len(texts) == 2


@pytest.mark.smoke
@pytest.mark.parametrize(
    "arguments, status, words",
    [
        ([], 2, "PROMPT"),
        (["nonsense"], 2, "nonsense"),
        (["generate"], 2, "prompt is needed"),
        (["generate", "--max-tokens", "0", "x"], 2, "--max-tokens"),
        (["generate", "--bogus", "x"], 2, "--bogus"),
        (["generate", "a", "b"], 2, "one argument too many"),
        (["generate", "--model", "/nonexistent", "x"], 1, "/nonexistent"),
        (["generate", "--compute", "int9", "x"], 1, "int9"),
        (["generate", "--max-model-len", "99999999", "x"], 2, "--max-model-len"),
        (["generate", "--memory-limit", "16M", "x"], 1, "more than is left"),
    ],
)
def test_mistakes_are_told(arguments, status, words):
    got = run(*arguments)
    assert got.returncode == status
    assert words in got.stderr or not arguments
    assert got.stderr.strip()


@pytest.mark.smoke
def test_help_and_version():
    assert run("--version").stdout.startswith("plateau ")
    assert "--temperature" in run("generate", "--help").stdout
    assert "generate" in run("--help").stdout
