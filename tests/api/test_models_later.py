"""Models that come while the server runs: after a pull, and at a reload. The server lists, names and loads
them like the models of its start."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from conftest import ADMIN_KEY, MODEL, PROGRAM, TOP, account, check_ledger, refused, serving, settled, until
from hub_stand_in import Hub, Model, folder
from test_hub_cache import Found, put

SMALL, OTHER = TOP / "tests/golden/data/qwen3", TOP / "tests/golden/data/gemma4"
PROMPT = [5, 17, 29, 3, 11, 8, 2, 40]
ROUTE = "/api/models/pull"
KEYS = ("--admin-key", ADMIN_KEY)


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith(("HF_", "XDG_CACHE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def hub(home, monkeypatch):
    files = {n: b for n, b in folder(SMALL).items() if n != "golden.json"}
    with Hub({name: Model(dict(files)) for name in ("acme/small", "acme/canary")}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def listed(s):
    return {m["id"]: m for m in s.http.get("/v1/models").json()["data"]}


def pull(s, name):
    assert s.http.post(ROUTE, json={"model": name}).status_code == 202
    now = until(lambda: (p := s.http.get(ROUTE).json())["state"] not in ("running", "cancelling") and p, 60, 0.05)
    assert now["state"] == "done", now
    return now


def tokens(s, model):
    reply = s.http.post("/v1/completions", json={"model": model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"]


def unload(s, *names):
    """Without the models that the test loaded, the accounts hold the bytes of the start again."""
    for name in names:
        assert s.http.post(f"/v1/models/{name.replace('/', '%2F')}/unload").status_code == 200


def reload(s):
    """Reloads; returns the result of the search that follows."""
    def searches():
        return [line for line in list(s.lines) if "event=models_searched" in line]

    before = len(searches())
    s.process.send_signal(signal.SIGHUP)
    return until(lambda: searches()[before:])[0]


@pytest.mark.smoke
def test_a_pulled_model_is_served_at_once_under_both_names(hub):
    with serving("--allow-pull", *KEYS, key=ADMIN_KEY) as s:
        assert set(listed(s)) == {"canary"}
        now = pull(s, "acme/small")
        assert now["served"] == "acme/small" and now["not_served"] is None
        found = listed(s)
        assert set(found) == {"canary", "small", "acme/small"}
        assert found["small"]["root"] == "acme/small" and found["small"]["state"] == "unloaded" and found["small"]["max_model_len"] > 0
        [row] = [m for m in s.http.get("/api/overview").json()["models"] if m["id"] == "acme/small"]
        assert row["state"] == "unloaded" and row["needed_bytes"] > 0
        assert 'model_name="acme/small"' in s.http.get("/metrics").text
        settled(s)
        before = s.memory()["reserved_bytes"]
        ids = tokens(s, "acme/small")
        assert listed(s)["small"]["state"] == "ready" and account(s.memory(), "acme/small")["used_bytes"] > 0
        assert tokens(s, "small") == ids and s.chat("What does ls do?").status_code == 200
        unload(s, "acme/small")
        assert s.memory()["reserved_bytes"] <= before
        check_ledger(s.memory())
        again = pull(s, "acme/small")
        assert again["served"] == "acme/small" and again["fetched_bytes"] == 0 and set(listed(s)) == set(found)
    with serving("--hub-cache", kind=Found) as fresh:
        assert tokens(fresh, "small") == ids
        unload(fresh, "small")


def test_a_model_that_is_served_keeps_its_names(hub):
    with serving("--allow-pull", *KEYS, key=ADMIN_KEY) as s:
        assert pull(s, "acme/canary")["served"] == "acme/canary"
        assert set(listed(s)) == {"canary", "acme/canary"} and listed(s)["canary"]["state"] == "ready"
        assert len(tokens(s, "acme/canary")) == 8
        first = hub.models["acme/canary"]
        config = first.files["config.json"] + b"\n"
        hub.models["acme/canary"] = second = Model({**first.files, "config.json": config})
        assert second.commit != first.commit
        name = f"acme/canary@{second.commit[:12]}"
        assert pull(s, "acme/canary")["served"] == name
        assert set(listed(s)) == {"canary", "acme/canary", name}
        assert tokens(s, name) == tokens(s, "acme/canary")
        unload(s, name, "acme/canary")


def test_a_pull_that_cannot_be_served_says_why(hub):
    model = hub.models["acme/small"]
    hub.models["acme/small"] = Model({**model.files, "config.json": model.files["config.json"].replace(b'"qwen3"', b'"weird"')})
    with serving("--allow-pull", *KEYS, key=ADMIN_KEY) as s:
        assert s.http.post(ROUTE, json={"model": "acme/small", "anyway": True}).status_code == 202
        now = until(lambda: (p := s.http.get(ROUTE).json())["state"] == "done" and p)
        # It is listed as at the start, and its load gives the reason.
        assert now["served"] == "acme/small"
        assert any("model_type 'weird'" in line for line in s.lines if "event=model_unusable" in line)
        assert listed(s)["small"]["max_model_len"] is None
        reply = s.http.post("/v1/completions", json={"model": "small", "prompt": PROMPT, "max_tokens": 1})
        assert reply.status_code >= 500 and "model_type 'weird'" in reply.json()["error"]["message"]


def test_a_reload_finds_what_came(home, monkeypatch):
    top = home / "models"
    shutil.copytree(SMALL, top / "first")
    put(home / ".cache/huggingface/hub", "acme/Small", "1" * 40)
    with serving("--model-dir", top, "--hub-cache", *KEYS, kind=Found, key=ADMIN_KEY) as s:
        assert set(listed(s)) == {"first", "Small", "acme/Small"}
        assert "added=0 models=2" in reload(s)
        shutil.copytree(SMALL, top / "second")
        shutil.copytree(SMALL, top / "deeper/first")
        put(home / ".cache/huggingface/hub", "other/Small", "2" * 40, source=OTHER)
        put(home / ".cache/huggingface/hub", "acme/Fresh", "3" * 40)
        assert "added=3 models=5" in reload(s)
        assert set(listed(s)) == {"first", "second", "Small", "acme/Small", "other/Small", "Fresh", "acme/Fresh"}
        [line] = [line for line in s.lines if "event=model_not_added" in line]
        assert "deeper/first" in line and "two models are called first" in line
        assert tokens(s, "second") == tokens(s, "first") == tokens(s, "acme/Fresh")
        assert len(tokens(s, "other/Small")) == 8
        unload(s, "first", "second", "Fresh", "other/Small")


def test_a_bounded_number_comes(home):
    top = home / "models"
    shutil.copytree(SMALL, top / "m-000")
    with serving("--model-dir", top, *KEYS, kind=Found, key=ADMIN_KEY) as s:
        for i in range(1, 20):
            (top / f"m-{i:03}").symlink_to(top / "m-000")
        assert "added=16 models=17 left_out=3" in reload(s)
        assert len(listed(s)) == 17 and len(tokens(s, "m-016")) == 8
        refused(s.http.post("/v1/completions", json={"model": "m-017", "prompt": PROMPT, "max_tokens": 1}), 404, "model_not_found")
        assert "added=0 models=17 left_out=3" in reload(s)
        assert s.http.get("/metrics").status_code == 200 and s.http.get("/api/overview").status_code == 200
        check_ledger(s.memory())
        unload(s, "m-016")


def test_a_removed_model_says_so(home):
    put(home / ".cache/huggingface/hub", "acme/Small", "1" * 40)
    with serving("--hub-cache", *KEYS, kind=Found, key=ADMIN_KEY) as s:
        assert len(tokens(s, "Small")) == 8
        removed = subprocess.run([PROGRAM, "models", "rm", "acme/Small", "--yes"], capture_output=True, text=True, timeout=60)
        assert removed.returncode == 0, removed.stderr
        # It is in memory until it is unloaded.
        assert len(tokens(s, "Small")) == 8 and unload(s, "Small") is None
        for _ in range(2):
            reply = s.http.post("/v1/completions", json={"model": "Small", "prompt": PROMPT, "max_tokens": 1})
            assert reply.status_code >= 500
            assert "the files of acme/Small were removed: plateau pull acme/Small fetches them again" in reply.json()["error"]["message"]
        put(home / ".cache/huggingface/hub", "acme/Small", "1" * 40)
        assert s.http.post("/v1/models/Small/load").status_code == 200 and len(tokens(s, "Small")) == 8
        unload(s, "Small")


def test_a_server_of_named_models_stays_as_it_is(home):
    with serving(*KEYS, key=ADMIN_KEY) as s:
        s.process.send_signal(signal.SIGHUP)
        s.says("event=reloaded")
        assert not s.said("event=models_searched") and set(listed(s)) == {"canary"}


def test_plan_counts_the_models_that_may_come(home):
    """A server that pulls plans as one with several models, and `plan` says what it would."""
    size = ("--memory-limit", "300M")

    def planned(*options):
        words = [PROGRAM, "plan", str(MODEL), "--json", *size, *options]
        return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["models"][0]

    with serving(*size, "--allow-pull", *KEYS) as s:
        assert listed(s)["canary"]["max_model_len"] == planned("--allow-pull")["max_model_len"]
    assert planned("--allow-pull")["max_model_len"] != planned()["max_model_len"]
