"""GGUF models of the hub: `ORG/NAME:QUANT` chooses one of a repository, and is its name everywhere."""
import json
import os
import subprocess

import httpx
import pytest

import gguf_made
from conftest import ADMIN_KEY, AS_ADMIN, PROGRAM, serving, until
from hub_stand_in import Hub, Model
from test_hub_cache import Found
from test_pull import cache, check_cache, environment, plan, pull

NAMES = ["a-Q4_K_M", "a-Q8_0", "UD-Q4_K_XL/a-UD-Q4_K_XL:3", "a-BF16"]
ENCODERS = {f"mmproj-a-{form}.gguf": gguf_made.write([gguf_made.pair("general.architecture", gguf_made.STRING, gguf_made.text("clip"))], []) * times
            for form, times in (("F32", 300), ("F16", 200))}
NAME, IN_PARTS = "acme/many:Q8_0", "acme/many:UD-Q4_K_XL"


@pytest.fixture(scope="module")
def models():
    many = {**gguf_made.files(NAMES), **ENCODERS, "README.md": b"# many\n", "config.json": b"{}", "imatrix.dat": b"x"}
    return {"acme/many": many, "acme/one": gguf_made.files(["one-q4_0"]), "acme/plain": gguf_made.files(["plain"])}


@pytest.fixture
def hub(models):
    with Hub({name: Model(dict(files)) for name, files in models.items()}) as hub:
        yield hub


def run(hub, home, *arguments, **variables):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env=environment(hub, home, HF_HUB_OFFLINE="1", **variables))


def parts_of(model, words):
    return {name for name in model.files if words in name}


def test_a_quantisation_chooses_the_files(hub, tmp_path):
    """In any case of letters; all parts of one, and the vision encoder beside it."""
    model = hub.models["acme/many"]
    got = pull(hub, tmp_path, "acme/many:ud-q4_k_xl")
    assert got.returncode == 0, got.stderr
    assert f"{IN_PARTS}: family qwen3" in got.stdout and f"plateau chat {IN_PARTS}" in got.stdout
    wanted = parts_of(model, "UD-Q4_K_XL/") | {"mmproj-a-F16.gguf", "README.md"}
    assert len(wanted) == 5 and set(check_cache(tmp_path, model, "many")) == wanted
    assert pull(hub, tmp_path, NAME).returncode == 0
    assert set(check_cache(tmp_path, model, "many")) == wanted | {"a-Q8_0.gguf"}
    for name, id in ((NAME, NAME), ("many:Q8_0", NAME), (IN_PARTS, IN_PARTS), ("acme/many@main:q8_0", NAME)):
        got = run(hub, tmp_path, "plan", name, "--json")
        assert got.returncode == 0 and json.loads(got.stdout)["models"][0]["id"] == id, got.stderr
        got = run(hub, tmp_path, "generate", "--model", name, "--raw", "--max-tokens", "3", "abc")
        assert got.returncode == 0 and got.stdout, got.stderr


def test_one_of_several_has_to_be_named(hub, tmp_path):
    for command in (pull, plan):
        got = command(hub, tmp_path, "acme/many")
        assert got.returncode == 1 and "acme/many has 4 GGUF models: name one, as in acme/many:" in got.stderr
        word = command.__name__
        assert f"\nplateau {word} acme/many:Q4_K_M\n" in got.stderr, got.stderr
        rows = [line for line in got.stderr.splitlines() if line.startswith("  ")]
        assert len(rows) == 4 and all("KiB  fits" in row for row in rows) and "<- if in doubt" in "".join(r for r in rows if "Q4_K_M" in r)
    got = pull(hub, tmp_path, "acme/many", "--memory-limit", "64M", "--json")
    said = [json.loads(line) for line in got.stdout.splitlines()]
    assert [e["event"] for e in said] == ["choices", "failed"] and said[0]["suggested"] == "Q4_K_M"
    assert {c["quant"]: c["bytes"] for c in said[0]["choices"]}["UD-Q4_K_XL"] == sum(len(hub.models["acme/many"].files[n]) for n in parts_of(hub.models["acme/many"], "UD-Q4_K_XL/"))
    for name, words in (("acme/many:Q5_K_M", "has no GGUF model Q5_K_M, but BF16 ("), ("acme/many:a", "has several GGUF models of the name a among"),
                        ("acme/none:Q8_0", "does not have this model")):
        got = pull(hub, tmp_path, name)
        assert got.returncode == 1 and words in got.stderr, got.stderr
    assert not list(cache(tmp_path).glob("models--*")), "a pull that was refused leaves nothing"


def test_a_suggestion_fits_in_memory(hub, tmp_path):
    hub.models["acme/sizes"] = Model({f"s-{q}.gguf": gguf_made.gguf(1, 1, words)[0] for q, words in (("Q2_K", 100), ("Q3_K_S", 2000), ("Q4_K_M", 200000))})
    got = pull(hub, tmp_path, "acme/sizes", "--memory-limit", "52M")
    assert "\nplateau pull acme/sizes:Q3_K_S\n" in got.stderr and "does not fit" in got.stderr, got.stderr


def test_what_include_names_is_fetched_and_served(hub, tmp_path):
    model = hub.models["acme/many"]
    got = pull(hub, tmp_path, "acme/many", "--include", "a-Q4_K_M.gguf", "--include", "*-00002-of-00003.gguf")
    assert got.returncode == 0, got.stderr
    assert "acme/many:Q4_K_M: family" in got.stdout and f"{IN_PARTS}: family" in got.stdout
    assert parts_of(model, "UD-Q4_K_XL/") | {"a-Q4_K_M.gguf"} <= set(check_cache(tmp_path, model, "many"))
    assert run(hub, tmp_path, "plan", "acme/many:Q4_K_M").returncode == 0


def test_the_only_model_needs_no_quantisation(hub, tmp_path):
    for name, id in (("acme/one", "acme/one:q4_0"), ("acme/plain", "acme/plain")):
        there = json.loads(plan(hub, tmp_path, name, "--json").stdout)["models"][0]
        assert not (cache(tmp_path) / f"models--{name.replace('/', '--')}").exists()
        assert pull(hub, tmp_path, name).returncode == 0
        here = json.loads(run(hub, tmp_path, "plan", name, "--json").stdout)["models"][0]
        assert there["id"] == here["id"] == id and there["floor_bytes"] == here["floor_bytes"]
    found = {m["id"] for m in json.loads(run(hub, tmp_path, "models", "--json").stdout)["models"]}
    assert found == {"canary", "acme/one:q4_0", "acme/plain"}
    got = run(hub, tmp_path, "plan", "acme/one:Q8_0")
    assert got.returncode == 1 and "plateau pull acme/one:Q8_0 fetches it" in got.stderr


def test_one_name_everywhere(hub, tmp_path, monkeypatch):
    for name in (NAME, IN_PARTS, "acme/one"):
        assert pull(hub, tmp_path, name).returncode == 0
    found = {m["id"] for m in json.loads(run(hub, tmp_path, "models", "--json").stdout)["models"]}
    assert found == {"canary", NAME, IN_PARTS, "acme/one:q4_0"}
    got = run(hub, tmp_path, "plan", "acme/many")
    assert got.returncode == 1 and "acme/many has 2 GGUF models: name one" in got.stderr and "<-" not in got.stderr
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache(tmp_path)))
    with serving("--hub-cache", kind=Found) as s:
        listed = {m["id"]: m for m in httpx.get(s.url + "/v1/models", headers=AS_ADMIN).json()["data"]}
        assert {id for id, m in listed.items() if m["root"] == id} == {NAME, IN_PARTS, "acme/one:q4_0"}
        assert set(listed) - {NAME, IN_PARTS, "acme/one:q4_0"} == {"many:Q8_0", "many:UD-Q4_K_XL", "one:q4_0", "acme/one", "one"}
        for name in (NAME, "many:UD-Q4_K_XL", "one"):
            body = {"model": name, "prompt": [1, 2, 3], "max_tokens": 2, "return_token_ids": True}
            assert httpx.post(s.url + "/v1/completions", json=body, timeout=60).status_code == 200
        for id in (NAME, IN_PARTS, "acme/one:q4_0"):
            assert httpx.post(f"{s.url}/v1/models/{id}/unload", headers=AS_ADMIN, timeout=60).status_code in (200, 202)


def test_one_of_several_is_removed_with_its_parts(hub, tmp_path):
    for name in (NAME, IN_PARTS):
        assert pull(hub, tmp_path, name).returncode == 0
    model = hub.models["acme/many"]
    got = run(hub, tmp_path, "models", "rm", "acme/many:ud-q4_k_xl", "--yes")
    assert got.returncode == 0 and got.stdout.startswith("Removed acme/many:ud-q4_k_xl: 117."), got.stderr
    assert set(check_cache(tmp_path, model, "many")) == {"a-Q8_0.gguf", "mmproj-a-F16.gguf", "README.md"}
    assert len(list((cache(tmp_path) / "models--acme--many/blobs").iterdir())) == 3
    got = run(hub, tmp_path, "models", "rm", "acme/many:BF16", "--yes")
    assert got.returncode == 1 and "has no GGUF model BF16" in got.stderr
    assert run(hub, tmp_path, "models", "rm", "many:Q8_0", "--yes").returncode == 0
    assert not (cache(tmp_path) / "models--acme--many").exists()


def test_parts_that_the_hub_lacks_are_told(hub, tmp_path):
    files = dict(hub.models["acme/many"].files)
    del files["UD-Q4_K_XL/a-UD-Q4_K_XL-00002-of-00003.gguf"]
    hub.models["acme/torn"] = Model(files)
    got = pull(hub, tmp_path, "acme/torn:UD-Q4_K_XL")
    assert got.returncode == 1 and "the hub has 2 of its 3 parts" in got.stderr


@pytest.mark.parametrize("limit", ["2G", "20M"])
def test_a_refused_pull_leaves_nothing(hub, tmp_path, limit):
    """Its family is not read, or the model does not fit; a plan leaves nothing, either."""
    small = gguf_made.files(["weird-Q8_0"])
    if limit == "2G":
        small = {n: b.replace(b"\x05\0\0\0\0\0\0\0qwen3", b"\x05\0\0\0\0\0\0\0qwxyz") for n, b in small.items()}
    hub.models |= {"acme/weird": Model({**small, "README.md": b"x" * 9000}), "acme/mamba": Model({"config.json": b'{"model_type": "mamba"}', "model.safetensors": b"x" * 9000})}
    for name in ("acme/weird:Q8_0", "acme/mamba"):
        for command in (pull, plan):
            got = command(hub, tmp_path, name, "--memory-limit", limit)
            assert got.returncode == 1, got.stdout
            assert not list(cache(tmp_path).glob("models--*"))
    assert [m["id"] for m in json.loads(run(hub, tmp_path, "models", "--json").stdout)["models"]] == ["canary"]


def test_a_refusal_keeps_what_was_there(hub, tmp_path):
    """Files of another model of the repository, and the bytes of a pull that was cut."""
    assert pull(hub, tmp_path, NAME).returncode == 0
    model = hub.models["acme/many"]
    before = set(check_cache(tmp_path, model, "many"))
    blobs = cache(tmp_path) / "models--acme--many/blobs"
    begun = blobs / f"{model.sums['a-BF16.gguf']}.plateau.incomplete"
    begun.write_bytes(b"x" * 4096)
    assert pull(hub, tmp_path, "acme/many:BF16", "--memory-limit", "20M").returncode == 1
    assert set(check_cache(tmp_path, model, "many")) == before and begun.exists()


def test_a_server_pulls_and_serves_one(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(cache(tmp_path)))
    with serving("--allow-pull", "--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s:
        def ordered(name):
            assert s.http.post("/api/models/pull", json={"model": name}).status_code == 202
            return until(lambda: (p := s.http.get("/api/models/pull").json())["state"] not in ("running", "cancelling") and p, 60, 0.05)

        now = ordered("acme/many")
        assert now["state"] == "failed" and "acme/many has 4 GGUF models: name one, as in acme/many:" in now["error"]
        now = ordered("acme/many:q8_0")
        assert (now["state"], now["served"], now["not_served"]) == ("done", NAME, None), now
        now = ordered(IN_PARTS)
        assert now["served"] == IN_PARTS
        body = {"model": IN_PARTS, "prompt": [1, 2, 3], "max_tokens": 2}
        assert s.http.post("/v1/completions", json=body).status_code == 200
        ids = {m["id"]: m["root"] for m in s.http.get("/v1/models").json()["data"]}
        assert ids[NAME] == ids["acme/many"] == ids["many"] == NAME and ids[IN_PARTS] == ids["many:UD-Q4_K_XL"] == IN_PARTS
        assert s.http.post(f"/v1/models/{IN_PARTS}/unload").status_code in (200, 202)
