"""The hub's cache as a source of models: they are found, named, served and removed."""
import hashlib
import json
import os
import shutil
import subprocess

import httpx
import pytest

from conftest import AS_ADMIN, PROGRAM, TOP, Server, serving

SMALL = TOP / "tests/golden/data/qwen3"
OTHER = TOP / "tests/golden/data/gemma4"


class Found(Server):
    """Serves what it finds."""

    def arguments(self):
        return []


def said(server, words):
    return [line for line in server.lines if words in line]


def run(home, *arguments, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_", "OLLAMA"))}
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                          cwd=home, env={**env, "HOME": str(home), "PLATEAU_MEMORY_LIMIT": "2G", "HF_HUB_OFFLINE": "1", **variables})


def put(cache, name, commit, ref="main", source=SMALL, leave_out=()):
    folder = cache / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for at in ("blobs", "refs"):
        (folder / at).mkdir(exist_ok=True)
    for file in source.iterdir():
        if file.name not in leave_out:
            blob = folder / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
            shutil.copy(file, blob)
            (snapshot / file.name).symlink_to(f"../../blobs/{blob.name}")
    if ref:
        (folder / "refs" / ref).write_text(commit)
    return snapshot


@pytest.fixture
def home(tmp_path):
    cache = tmp_path / ".cache/huggingface/hub"
    put(cache, "acme/Small", "1" * 40, ref="old")
    put(cache, "acme/Small", "2" * 40)
    put(cache, "acme/Half", "3" * 40, leave_out=("model.safetensors",))
    (cache / "models--acme--Begun/blobs").mkdir(parents=True)
    (cache / "datasets--acme--Text").mkdir()
    (cache / "version.txt").write_text("1")
    return tmp_path


def listed(home, *arguments, **variables):
    got = run(home, "models", *arguments, "--json", **variables)
    assert (got.returncode, got.stderr) == (0, "")
    return {m["id"]: m for m in json.loads(got.stdout)["models"]}


@pytest.mark.smoke
def test_a_model_is_found_by_its_names(home):
    snapshot = f"models--acme--Small/snapshots/{'2' * 40}"
    found = listed(home)
    assert set(found) == {"canary", "acme/Small", "acme/Half", "acme/Begun"}
    assert found["acme/Small"]["path"].endswith(snapshot) and found["acme/Small"]["state"] == "fits"
    assert found["acme/Small"]["last_used"] > 1.7e9
    assert "weights are missing; plateau pull acme/Half fetches the rest" in found["acme/Half"]["reason"]
    assert "no revision is complete: plateau pull acme/Begun" in found["acme/Begun"]["reason"]
    cache = home / ".cache/huggingface/hub"
    for name in ("acme/Small", "acme/Small@old", "acme/Small@" + "1" * 40, "Small", cache / "models--acme--Small", cache / snapshot):
        got = run(home, "plan", name, "--json")
        assert got.returncode == 0, got.stderr
        assert json.loads(got.stdout)["models"][0]["id"] == "acme/Small"
    shutil.move(cache, home / "elsewhere")
    for variables in ({"HF_HUB_CACHE": str(home / "elsewhere")}, {"XDG_CACHE_HOME": str(home)}):
        (home / "huggingface").mkdir(exist_ok=True)
        if not (home / "huggingface/hub").exists():
            (home / "huggingface/hub").symlink_to(home / "elsewhere")
        assert "acme/Small" in listed(home, **variables)
    assert "acme/Small" in listed(home, HF_HOME=str(home / "huggingface"))


def test_without_a_main_revision_the_only_snapshot_counts(home):
    cache = home / ".cache/huggingface/hub"
    put(cache, "acme/Tagged", "4" * 40, ref=None)
    assert run(home, "plan", "acme/Tagged").returncode == 0
    put(cache, "acme/Tagged", "5" * 40, ref=None)
    got = run(home, "plan", "acme/Tagged")
    assert got.returncode == 1 and "no complete revision main of acme/Tagged, but others: 2 in" in got.stderr
    (cache / "models--acme--Tagged/refs/main").write_text("../../../../etc")
    assert run(home, "plan", "acme/Tagged").returncode == 1


def test_two_of_one_name_have_their_organisations(home, monkeypatch):
    cache = home / ".cache/huggingface/hub"
    put(cache, "other/Small", "6" * 40, source=OTHER)
    got = run(home, "plan", "Small")
    assert got.returncode == 1 and "several models in the hub's cache, acme/Small and other/Small" in got.stderr
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    with serving("--hub-cache", kind=Found) as s:
        assert {"acme/Small", "other/Small", "Half"} <= ids_of(s) and "Small" not in ids_of(s)
        passed = said(s, "event=hub_model_passed_over")
        assert len(passed) == 1 and 'model="acme/Begun"' in passed[0] and "no revision is complete" in passed[0]
        assert any("model=acme/Half " in x for x in said(s, "event=model_unusable"))


def ids_of(server):
    return {m["id"] for m in httpx.get(server.url + "/v1/models", headers=AS_ADMIN).json()["data"]}


def test_ids_with_slashes_in_requests_and_routes(home):
    cache = home / ".cache/huggingface/hub"
    shutil.rmtree(cache / "models--acme--Half")
    with serving("--model-dir", cache, kind=Found) as s:
        assert "Small" in ids_of(s) and not any("2222" in id or "1111" in id for id in ids_of(s))
        for name in ("Small", "acme/Small", "acme%2FSmall"):
            assert httpx.get(f"{s.url}/v1/models/{name}", headers=AS_ADMIN).status_code == 200
            assert httpx.post(f"{s.url}/v1/models/{name}/load", headers=AS_ADMIN, timeout=60).status_code == 200
            assert httpx.post(f"{s.url}/v1/models/{name}/unload", headers=AS_ADMIN, timeout=60).status_code in (200, 202)
        body = {"model": "acme/Small", "prompt": [1, 2, 3], "max_tokens": 2, "return_token_ids": True}
        assert httpx.post(s.url + "/v1/completions", json=body, timeout=60).status_code == 200
        assert httpx.post(s.url + "/v1/models/Small/unload", headers=AS_ADMIN, timeout=60).status_code in (200, 202)


def test_a_model_is_removed_after_a_yes_and_nothing_else(home):
    cache = home / ".cache/huggingface/hub"
    precious = home / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (cache / "models--acme--Small/snapshots/out").symlink_to(precious)
    (cache / "models--acme--Link").symlink_to(precious)
    got = run(home, "models", "rm", "acme/Small")
    assert got.returncode == 1 and "--yes removes it" in got.stderr and (cache / "models--acme--Small").is_dir()
    for name, words in (("acme/None", "not in the hub's cache"), ("acme/Link", "is a link"), ("../x", "is not the name of a model"), ("Nope", "has no Nope")):
        got = run(home, "models", "rm", name, "--yes")
        assert got.returncode == 1 and words in got.stderr, got.stderr
    blobs = sum(f.stat().st_size for f in (cache / "models--acme--Small/blobs").iterdir())
    got = run(home, "models", "rm", "Small", "--yes")
    assert got.returncode == 0 and got.stdout.startswith("Removed acme/Small: ") and blobs > 0
    assert not (cache / "models--acme--Small").exists() and (precious / "file").read_text() == "x"
    assert (cache / "models--acme--Half").is_dir()


def test_other_programs_models_are_listed(tmp_path):
    (tmp_path / ".lmstudio/models/mlx-community").mkdir(parents=True)
    (tmp_path / ".lmstudio/models/mlx-community/tiny").symlink_to(SMALL)
    store = tmp_path / ".ollama/models"
    digest = hashlib.sha256(b"GGUF").hexdigest()
    (store / "blobs").mkdir(parents=True)
    (store / f"blobs/sha256-{digest}").write_bytes(b"GGUF")

    def manifest(path, text):
        (store / "manifests" / path).parent.mkdir(parents=True, exist_ok=True)
        (store / "manifests" / path).write_text(text)

    layers = [{"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64},
              {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": 1}]
    manifest("registry.ollama.ai/library/tiny/latest", json.dumps({"layers": layers}))
    manifest("registry.ollama.ai/someone/tiny/q8", json.dumps({"layers": layers}))
    manifest("registry.ollama.ai/library/evil/latest", json.dumps({"layers": [{**layers[1], "digest": "sha256:../../../etc/passwd"}]}))
    manifest("registry.ollama.ai/library/odd/latest", "[1, 2")
    found = listed(tmp_path)
    assert set(found) == {"canary", "tiny", "tiny:latest", "someone/tiny:q8"}
    assert found["tiny"]["state"] == "fits"
    for name in ("tiny", "someone/tiny:q8"):
        got = run(tmp_path, "plan", name, "--json")
        if name == "tiny":
            assert json.loads(got.stdout)["models"][0]["id"] == "tiny", got.stderr
        else:
            assert got.returncode == 1 and "ends within its head" in got.stderr and digest in got.stderr, "its file was found"
    got = run(tmp_path, "plan", "someone/tiny:q9")
    assert got.returncode == 1 and "someone/tiny:q9 is not a directory here and not in the hub's cache" in got.stderr
    assert "the file ends within its head" in found["tiny:latest"]["reason"] and found["tiny:latest"]["path"].endswith(digest)
