"""The starter model, SmolLM2-135M-Instruct: beside Canary, in the chat, and in the reference's words. Skipped
where it cannot be fetched."""

import concurrent.futures
import json
import os
import re
import subprocess

import pytest

from conftest import PROGRAM, TOP, USER_CACHE, Server

GOLDEN = TOP.parent / "shared/golden-real/smollm2/golden.json"
QUESTION = "How do I list files in a directory on Linux?"


@pytest.fixture(scope="session")
def cache():
    """The user's cache folder, with the model in it."""
    got = subprocess.run([TOP / "tools/fetch-starter"], capture_output=True, text=True, timeout=600,
                         env={**os.environ, "XDG_CACHE_HOME": USER_CACHE})
    if got.returncode != 0:
        pytest.skip(got.stderr.strip().splitlines()[-1])
    return USER_CACHE


@pytest.fixture(scope="session")
def model(cache):
    return f"{cache}/plateau/smollm2"


@pytest.fixture(scope="session")
def cases():
    if not GOLDEN.exists():
        pytest.skip(f"{GOLDEN} is not here")
    return json.loads(GOLDEN.read_text())["cases"]


class Given(Server):
    """One with these models; without any the server has its own."""

    def __init__(self, models, *options):
        self.models = models
        super().__init__(*options)

    def arguments(self):
        return self.models


@pytest.mark.parametrize("compute", ["f32", "int16"])
def test_its_conversations_are_the_references(model, cases, compute):
    """All at once, which takes a third of the time."""
    server = Given([model], "--compute", compute)

    def answer(case):
        return server.post("/v1/chat/completions", messages=case["messages"], temperature=0, max_tokens=len(case["greedy_ids"])).json()

    try:
        for case in cases:
            prompt = server.post("/tokenize", messages=case["messages"], add_generation_prompt=True).json()["tokens"]
            assert prompt == case["prompt_ids"]
            # No step of the reference is a near tie.
            assert min(case["greedy_margin"]) > 1e-2
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            for case, got in zip(cases, pool.map(answer, cases)):
                assert got["choices"][0]["message"]["content"].strip() == case["text"].strip()
    finally:
        assert server.stop() == 0


def readme():
    """The first question of the README, and what it says of the answer."""
    text = (TOP / "README.md").read_text()
    body, told = re.search(r"-d '(\{.*?\})'\n\nanswers that ``(.*?)``", text, re.S).groups()
    return json.loads(body), told


def test_it_is_served_beside_canary_and_answers_the_first_question_of_the_readme(cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    server = Given([])
    try:
        assert [m["id"] for m in server.http.get("/v1/models").json()["data"]] == ["canary", "smollm2"]
        body, told = readme()
        assert body["messages"][0]["content"] == QUESTION
        assert told in server.post("/v1/chat/completions", **body).json()["choices"][0]["message"]["content"]
        assert server.chat("What does ls do?", temperature=0).json()["model"] == "canary"
    finally:
        assert server.stop() == 0


def chat(cache, question):
    env = {**os.environ, "XDG_CACHE_HOME": cache}
    return subprocess.run([PROGRAM, "chat", "--local", "--temperature", "0", "--max-tokens", "40"], input=question + "\n", capture_output=True, text=True, timeout=120, env=env)


def test_a_chat_without_a_model_is_with_it(cache):
    got = chat(cache, QUESTION)
    assert got.returncode == 0 and "you can use the `ls` command" in got.stdout


def test_a_chat_is_with_canary_where_it_is_not(tmp_path):
    assert chat(str(tmp_path), "What is chsh?").stdout == "chsh(1) - change login shell.\n"


def test_a_server_without_it_has_canary_alone(tmp_path, monkeypatch):
    (tmp_path / "plateau/smollm2").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    server = Given([])
    try:
        assert [m["id"] for m in server.http.get("/v1/models").json()["data"]] == ["canary"]
    finally:
        assert server.stop() == 0
