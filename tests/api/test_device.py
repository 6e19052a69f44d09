"""The server on a fake device: plain memory that the host cannot follow, steps done late.

Tokens and SSD files are those of the CPU; its memory has a ceiling of its own; a device that fails costs its
requests, not the server."""

import concurrent.futures
import json
import pathlib
import subprocess

import pytest

from conftest import MODEL, PROGRAM, TOP, all_returned, refused, serving, settled, until
from test_ssd import answer, prompt_of, serving_from, wait_written

FAKE = ("--device", "fake:0")
PARTED = FAKE + ("--place", "experts=cpu")


def roots(server):
    return {a["name"]: a for a in server.memory()["accounts"]}


def test_weights_and_pools_lie_on_the_device():
    with serving(*FAKE) as server:
        server.complete("once upon a time", max_tokens=4)
        device, process = roots(server)["fake:0"], roots(server)["process"]
        names = {a["name"] for a in device["children"][0]["children"]}
        assert {"weights", "pools", "workspace"} <= names and device["class"] == "device"
        beside = {a["name"] for model in process["children"] for a in model["children"]}
        assert "requests" in beside
        assert names & beside == {"workspace", "recorded steps"}  # the host's part of them


@pytest.mark.parametrize("first, second", [((), FAKE), (FAKE, ())])
def test_a_restart_on_the_other_device_finds_the_same_prefixes(tmp_path, first, second):
    prompts = [prompt_of(i) for i in range(3)]
    with serving_from(tmp_path, *first) as server:
        want = [answer(server, p) for p in prompts]
        wait_written(server, 3 * 7)  # six pages and a snapshot each
    with serving_from(tmp_path, *second) as server:
        got = [answer(server, p) for p in prompts]
        assert [tokens for tokens, _ in got] == [tokens for tokens, _ in want]
        assert all(cached > 0 for _, cached in got)


def test_who_gives_up_its_pages_on_the_device_loses_no_token():
    """Pages for three, and eight that want them. Experts in the machine leave as little to pages here."""
    prompts = [prompt_of(i, 280 + 10 * i) for i in range(8)]
    fields = {"temperature": 0, "max_tokens": 100, "ignore_eos": True, "return_token_ids": True}
    options = ["--spec", "off", "--max-image-pixels", 0, "--max-model-len", 1024, "--max-num-seqs", 8]

    def ask(server, prompt):
        reply = server.complete(prompt, **fields)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["token_ids"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        with serving(*FAKE, *options) as wide:
            want = list(pool.map(lambda prompt: ask(wide, prompt), prompts))
            assert wide.status()["models"][0]["preemptions"] == 0
        with serving(*PARTED, *options, "--device-memory-limit", "49M") as tight:
            assert tight.status()["models"][0]["pages_max"] * 32 < sum(len(p) + 100 for p in prompts) // 2
            assert list(pool.map(lambda prompt: ask(tight, prompt), prompts)) == want
            assert tight.status()["models"][0]["preemptions"] > 0


def test_what_does_not_fit_on_the_device_is_refused_with_its_name():
    command = [PROGRAM, "serve", str(MODEL), "--port", "0", *FAKE, "--device-memory-limit", "20M"]
    got = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert got.returncode == 1 and "on device fake:0" in got.stderr and "--device-memory-limit" in got.stderr


@pytest.mark.parametrize("option, limit, holder", [("--memory-limit", "48M", "the server"),
                                                   ("--device-memory-limit", "64M", "device fake:0")])
def test_a_second_model_is_refused_by_the_domain_that_it_does_not_fit_into(tmp_path, option, limit, holder):
    (tmp_path / "second").symlink_to(MODEL)
    more = ["--model-dir", tmp_path, "--pin", "canary", "--max-image-pixels", 0, "--max-model-len", 512,
            "--max-num-seqs", 2, "--max-connections", 16, "--text-limit", "8M"]
    with serving(*FAKE, option, limit, *more) as server:
        before = settled(server)
        reply = server.http.post("/v1/models/second/load")
        error = refused(reply, 507, "out_of_memory", "There is no memory to load second")
        assert f" bytes {holder} would hold" in error["message"] and f"or raise {option}." in error["message"]
        all_returned(server, before)


def test_the_device_counts_what_its_accounts_have():
    with serving(*FAKE) as server:
        server.complete("once upon a time", max_tokens=4)
        server.wait_idle()
        (device,) = server.memory()["system"]["devices"]
        # The CPU does the fake device's work: the workspace is in the machine's memory.
        elsewhere = next(a for a in roots(server)["fake:0"]["children"][0]["children"] if a["name"] == "workspace")
        assert device["committed_bytes"] == device["used_bytes"] - elsewhere["used_bytes"] > 0


def test_a_context_has_an_account_as_long_as_the_device_is_open():
    size = 6 << 20
    with serving("--device", "fake:0,context=6", "--device-memory-limit", "1G") as server:
        def context():
            return next(a for a in roots(server)["fake:0"]["children"] if a["name"] == "context")

        server.complete("once upon a time", max_tokens=4)
        assert context()["class"] == "device" and context()["children"] == []
        assert {context()[f"{kind}_bytes"] for kind in ("planned", "reserved", "used", "peak", "limit")} == {size}
        assert server.memory()["sums_hold"]
        assert server.http.post("/v1/models/canary/unload").status_code == 200
        until(lambda: roots(server)["fake:0"]["used_bytes"] == size)
        assert roots(server)["fake:0"]["own_bytes"] == 0
        (device,) = server.memory()["system"]["devices"]
        assert device["committed_bytes"] == size and device["limit_bytes"] == 1 << 30
        assert server.http.post("/v1/models/canary/load").status_code == 200


def test_a_plan_has_a_line_for_the_context_and_room_beside_it():
    def plan(*options):
        got = subprocess.run([PROGRAM, "plan", "--json", *options], capture_output=True, text=True, timeout=60)
        return got.returncode, json.loads(got.stdout) if got.returncode == 0 else got.stderr

    def domain(found):
        return next(d for d in found["models"][0]["domains"] if d["name"] == "fake:0")

    options = ["--max-model-len", "1024", "--place", "experts=fake:0", "--device-memory-limit"]
    _, without = plan("--device", "fake:0", *options, "100M")
    _, found = plan("--device", "fake:0,context=6", *options, "106M")
    (line,) = [a for a in found["models"][0]["accounts"] if a["name"] == "context"]
    assert (line["domain"], line["class"], line["depth"]) == ("fake:0", "device", 0)
    assert line["floor_bytes"] == line["limit_bytes"] == 6 << 20
    assert domain(found)["floor_bytes"] == domain(without)["floor_bytes"] + (6 << 20)
    assert domain(found)["limit_bytes"] == domain(without)["limit_bytes"] + (6 << 20)
    least = domain(found)["floor_bytes"]
    assert plan("--device", "fake:0,context=6", *options, str(least))[0] == 0
    code, error = plan("--device", "fake:0,context=6", *options, str(least - 1))
    assert code == 1 and "does not fit on device fake:0" in error


def test_a_large_device_carries_more_sequences_by_default():
    def planned(*options):
        got = subprocess.run([PROGRAM, "plan", MODEL, *map(str, options)], capture_output=True, text=True, timeout=60)
        assert got.returncode == 0, got.stderr
        return got.stdout

    def chosen(*options):
        (model,) = json.loads(planned("--json", *options))["models"]
        return model["max_num_seqs"], model["max_num_seqs_from"]

    large = ("--device", "fake:0", "--device-memory-limit", "22G")
    assert chosen("--device", "cpu") == (8, "default")
    assert chosen(*FAKE) == (8, "the device's memory")
    assert chosen(*large) == (64, "the device's memory")
    assert chosen(*large, "--max-num-seqs", 5) == (5, "--max-num-seqs")
    assert "64 sequences are what the memory of fake:0 carries (--max-num-seqs)" in planned(*large)
    assert "(--max-num-seqs)" not in planned(*large, "--max-num-seqs", 5)
    with serving(*large, "--max-model-len", 1024) as server:
        assert server.complete("a", max_tokens=4).status_code == 200


def test_the_drivers_figures_are_told_beside_the_accounts():
    with serving("--device", "fake:0,context=6", "--device-memory-limit", "1G") as server:
        server.complete("once upon a time", max_tokens=4)
        server.wait_idle()
        (device,) = server.memory()["system"]["devices"]
        assert device["total_bytes"] == 1 << 30 and device["unaccounted_bytes"] == 0
        assert device["free_bytes"] == (1 << 30) - device["committed_bytes"]
        metrics = server.http.get("/metrics").text
        assert f'plateau_device_memory_bytes{{device="fake:0",kind="total"}} {1 << 30}' in metrics
        assert f'plateau_device_memory_bytes{{device="fake:0",kind="free"}} {device["free_bytes"]}' in metrics
        assert 'plateau_device_memory_unaccounted_bytes{device="fake:0"} 0' in metrics


def test_recorded_steps_have_an_account_in_both_memories():
    def recorded(server):
        return [a for root in roots(server).values() for model in root["children"] for a in model["children"]
                if a["name"] == "recorded steps"]

    with serving(*FAKE) as server:
        assert [a["class"] for a in recorded(server)] == ["anon", "device"]
        assert all(a["used_bytes"] == 0 < a["planned_bytes"] == a["reserved_bytes"] for a in recorded(server))
        server.complete("once upon a time", max_tokens=4)
        server.wait_idle()
        assert all(0 < a["used_bytes"] < a["planned_bytes"] for a in recorded(server))
        line = 'plateau_memory_bytes{account="fake:0/canary/recorded steps",kind="used"}'
        assert line in server.http.get("/metrics").text
        assert server.http.post("/v1/models/canary/unload").status_code == 200
        until(lambda: roots(server)["fake:0"]["used_bytes"] == 0 and not recorded(server))
        assert server.http.post("/v1/models/canary/load").status_code == 200


@pytest.mark.parametrize("name", ["gpu", "fake:", "fake:9", "fake:0,", "fake:0,steps=1", "fake:0,step=x"])
def test_devices_that_are_not_there_are_refused(name):
    command = [PROGRAM, "serve", "--port", "0", "--device", name]
    got = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert got.returncode == 1 and f"--device {name}: auto, cpu, cuda:0 to" in got.stderr


@pytest.mark.skipif(pathlib.Path("/dev/nvidiactl").exists(), reason="has a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    command = [PROGRAM, "serve", "--port", "0", "--device", "cuda:0"]
    got = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert got.returncode == 1
    assert "built without GPU kernels" in got.stderr or "the NVIDIA driver is missing, or has 0 devices" in got.stderr


def test_a_device_that_fails_costs_its_requests_and_not_the_server():
    with serving("--device", "fake:0,seed=3,step=40") as server:
        codes, want = [], None
        ask = {"max_tokens": 6, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        while len([c for c in codes if c == 200]) < 20 or codes.count(200) == len(codes):
            reply = server.complete(prompt_of(1, 20), **ask)
            codes.append(reply.status_code)
            assert reply.status_code in (200, 500, 503) and len(codes) < 400
            if reply.status_code == 200:
                tokens = reply.json()["choices"][0]["token_ids"]
                want = want or tokens
                assert tokens == want
        until(lambda: server.said("event=device_failed"))


def test_memory_that_the_device_refuses_costs_no_request():
    with serving("--device", "fake:0,seed=1,commit=25", "--max-model-len", "4096") as server:
        for i in range(6):
            reply = server.complete(prompt_of(i, 300), max_tokens=4, temperature=0)
            assert reply.status_code == 200, reply.text


PROMPT = {"prompt": [5, 6, 7], "max_tokens": 2}  # for any model, with a tokenizer or without


def status(server, model):
    reply = server.post("/v1/completions", model=model, **PROMPT)
    assert reply.status_code in (200, 500, 503), reply.text
    return reply.status_code


def test_a_lost_device_begins_anew_once_and_then_waits_for_an_order():
    with serving("--device", "fake:0,seed=2,lost=40", TOP / "tests/golden/data/qwen3") as server:
        assert status(server, "qwen3") == 200
        # Each life of the device ends at the same step. A line of the log may come after the answer. It is
        # waited for by itself: one request more would open the device too early.
        until(lambda: status(server, "canary") != 200)
        until(lambda: server.said("event=device_lost"))
        # Both models close, and the next request opens it again.
        until(lambda: status(server, "qwen3") == 200)
        until(lambda: server.said("event=device_reopened"))
        until(lambda: status(server, "canary") != 200)
        until(lambda: status(server, "canary") == 503 and server.said("stays off"))
        refused = server.post("/v1/completions", model="qwen3", **PROMPT)
        assert refused.status_code == 503 and "twice within ten minutes" in refused.json()["error"]["message"]
        assert server.http.get("/health").status_code == 200
        for model in ("canary", "qwen3"):
            assert server.http.post(f"/v1/models/{model}/load").status_code == 200


# --- several devices ---


def two_models(tmp_path, *sections):
    """Options for the bundled model under two names, and a file with a section for some."""
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(MODEL)
    config = tmp_path / "plateau.ini"
    config.write_text("".join(f"[model {name}]\ndevice = {device}\n" + "".join(f"place = {p}\n" for p in place)
                              for name, device, *place in sections))
    return [tmp_path / "one", tmp_path / "two", "--config", config, "--max-model-len", 1024, "--max-num-seqs", 2]


def tokens_of(server, model):
    ask = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    reply = server.post("/v1/completions", model=model, prompt=prompt_of(1, 100), **ask)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"]


@pytest.mark.parametrize("default, sections", [([], [("one", "fake:0")]), (FAKE, [("two", "cpu")]),
                                               ([], [("one", "fake:0"), ("two", "fake:3")])])
def test_a_section_has_its_models_device(tmp_path, default, sections):
    with serving(*two_models(tmp_path, *sections), *default) as server:
        assert tokens_of(server, "one") == tokens_of(server, "two")
        places = {"canary": "fake:0" if default else "cpu", "one": "fake:0", "two": dict(sections).get("two", "cpu")}
        assert {m["id"]: m["device"] for m in server.http.get("/v1/models").json()["data"]} == places
        for device in {"fake:0", *places.values()} - {"cpu"}:
            assert {a["name"] for a in roots(server)[device]["children"]} == {m for m, place in places.items() if place == device}
        there = [model for model, place in places.items() if place == "fake:0"]
        for model in there:
            assert server.http.post(f"/v1/models/{model}/unload").status_code == 200
        until(lambda: roots(server)["fake:0"]["used_bytes"] == 0)
        want = tokens_of(server, "two")
        assert [tokens_of(server, model) for model in there] == [want] * len(there)


def test_a_lost_device_closes_its_own_models(tmp_path):
    with serving(*two_models(tmp_path, ("one", "fake:0,seed=2,lost=40", "experts=cpu"))) as server:
        def experts():
            models = {a["name"]: a["children"] for a in roots(server)["process"]["children"]}
            return sum(a["used_bytes"] for a in models.get("one", []) if a["name"] == "experts")

        want = tokens_of(server, "two")
        assert experts() == next(a["planned_bytes"] for model in roots(server)["process"]["children"]
                                 for a in model["children"] if a["name"] == "experts") > 0
        until(lambda: status(server, "one") != 200)
        until(lambda: server.said("event=device_lost device=fake:0"))
        until(lambda: experts() == 0)  # they come with the model's next request
        assert tokens_of(server, "two") == want
        until(lambda: status(server, "one") == 200)
        until(lambda: server.said("event=device_reopened device=fake:0"))
        assert not server.said("event=model_unloaded model=two")


def test_experts_in_the_machine_give_the_tokens_of_the_cpu(tmp_path):
    """Drafts, chunks, prefix hits and a batch included; an unload gives both memories back."""
    with serving(*two_models(tmp_path, ("one", "fake:0", "experts 1-5=cpu"))) as server:
        prompts = [prompt_of(i, 40 + 90 * i) for i in range(4)]
        ask = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}

        def tokens(model, prompt):
            reply = server.post("/v1/completions", model=model, prompt=prompt, **ask)
            assert reply.status_code == 200, reply.text
            return reply.json()["choices"][0]["token_ids"]

        want = [tokens("two", p) for p in prompts]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda p: tokens("one", p), prompts)) == want
        assert [tokens("one", p) for p in prompts] == want
        assert server.said('placement="fake:0: the rest and layers 0-7 and experts 0, cpu: experts 1-5, fake:0: experts 6-7"')
        assert server.memory()["sums_hold"]
        assert server.http.post("/v1/models/one/unload").status_code == 200
        until(lambda: roots(server)["fake:0"]["used_bytes"] == 0)
        assert "one" not in {a["name"] for a in roots(server)["process"]["children"]}
        assert tokens("one", prompts[0]) == want[0]


def planned(*options):
    got = subprocess.run([PROGRAM, "plan", "--json", MODEL, *map(str, options)], capture_output=True, text=True, timeout=60)
    return json.loads(got.stdout)["models"][0] if got.returncode == 0 else got.stderr


def test_experts_that_do_not_fit_on_the_device_are_in_the_machine():
    def bytes_of(plan, domain):
        return sum(row["weight_bytes"] for row in plan["placement"] if row["domain"] == domain)

    options = [*FAKE, "--max-model-len", 1024, "--max-num-seqs", 2, "--device-memory-limit"]
    whole = planned(*options, "1G")
    least = whole["domains"][1]["floor_bytes"]
    assert bytes_of(whole, "machine") == 0
    assert bytes_of(planned(*options, least), "machine") == 0
    some = planned(*options, least - 1)  # experts of the last layers
    assert [row["domain"] for row in some["placement"]] == ["fake:0", "fake:0", "fake:0", "machine"]
    assert some["max_model_len"] == whole["max_model_len"] and some["max_num_seqs"] == whole["max_num_seqs"]
    parted = planned(*options, least - (14 << 20))
    assert [row["domain"] for row in parted["placement"]] == ["fake:0", "fake:0", "machine"]
    for plan in (some, parted):
        assert bytes_of(plan, "fake:0") + bytes_of(plan, "machine") == bytes_of(whole, "fake:0")
        (experts,) = [a for a in plan["accounts"] if a["name"] == "experts"]
        assert experts["domain"] == "machine" and 0 <= experts["limit_bytes"] - bytes_of(plan, "machine") < 2 << 20
        assert plan["speculation"] == whole["speculation"]
    assert "does not fit on device fake:0" in planned(*options, least - 1, "--place", "experts=fake:0")
    less = parted["domains"][1]["floor_bytes"] - 1
    assert "lie in the machine's memory already" in planned(*options, less)


@pytest.mark.parametrize("rules, why", [("experts=gpu", "the place cpu, cuda:N or fake:N is expected"),
                                        ("layers 0-3=cpu", "layers 0-3 of a model on fake:0 cannot be computed on cpu"),
                                        ("experts 2-3=fake:1", "experts 2-3 of a model on fake:0 cannot be computed on fake:1"),
                                        ("experts 5-8=cpu", "the model has layers 0 to 7")])
def test_rules_of_place_that_do_not_hold_are_refused(rules, why):
    assert why in planned(*FAKE, "--place", rules)


def test_auto_places_each_model_where_it_fits(tmp_path):
    for name in ("one", "two", "late"):
        (tmp_path / name).symlink_to(MODEL)
    sizes = ["--max-model-len", 1024, "--max-num-seqs", 2, "--max-image-pixels", 0]
    auto = ["--device", "fake:auto", "--device-memory-limit", "66M"]
    with serving(*auto, *sizes, tmp_path / "one", tmp_path / "two") as server:
        places = {m["id"]: m["device"] for m in server.http.get("/v1/models").json()["data"]}
        assert places == {"canary": "fake:0", "one": "fake:1", "two": "fake:2"}
        assert len({tuple(tokens_of(server, model)) for model in places}) == 1
        assert server.said("event=device_passed_over model=")
    with serving("--device", "fake:auto", "--device-memory-limit", "20M", *sizes, "--model-dir", tmp_path) as server:
        assert tokens_of(server, "late") == tokens_of(server, "canary")
        assert {m["device"] for m in server.http.get("/v1/models").json()["data"] if "device" in m} == {"cpu"}
        for name in ("late", "one", "two"):
            assert server.http.post(f"/v1/models/{name}/unload").status_code == 200


def test_auto_that_fits_nowhere_is_refused_with_the_first_device():
    for command in ("serve", "plan"):
        options = ["--device", "fake:auto", "--device-memory-limit", "20M", "--memory-limit", "40M"]
        got = subprocess.run([PROGRAM, command, str(MODEL), *options], capture_output=True, text=True, timeout=60)
        assert got.returncode == 1 and "on device fake:0" in got.stdout + got.stderr


def test_a_plan_of_auto_says_why_it_is_elsewhere():
    options = ["--device", "fake:auto", "--device-memory-limit", "20M", "--max-model-len", "1024"]
    got = subprocess.run([PROGRAM, "plan", str(MODEL), *options], capture_output=True, text=True, timeout=60)
    assert got.returncode == 0, got.stderr
    assert "does not fit on device fake:0" in got.stdout and "So it is on the CPU." in got.stdout
    got = subprocess.run([PROGRAM, "plan", "--json", str(MODEL), *options], capture_output=True, text=True, timeout=60)
    assert {a["domain"] for a in json.loads(got.stdout)["models"][0]["accounts"]} == {"machine"}


def test_a_plan_counts_each_device(tmp_path):
    one, two, *options = map(str, two_models(tmp_path, ("one", "fake:0"), ("two", "fake:3")))
    got = subprocess.run([PROGRAM, "plan", one, two, *options], capture_output=True, text=True, timeout=60)
    assert got.returncode == 0, got.stderr
    assert "On device fake:0 its models need" in got.stdout and "On device fake:3 its models need" in got.stdout


def test_a_plan_counts_a_context_once(tmp_path):
    one, two, *options = map(str, two_models(tmp_path))
    options += ["--device", "fake:0,context=6", "--device-memory-limit"]
    got = [subprocess.run([PROGRAM, "plan", *models, "--json", *options, "1G"], capture_output=True, timeout=60) for models in ([one], [one, two])]
    floors = [d["floor_bytes"] for d in json.loads(got[0].stdout)["models"][0]["domains"] if d["name"] == "fake:0"]
    both = 2 * floors[0] - (6 << 20)
    for limit, code in ((both, 0), (both - 1, 1)):
        got = subprocess.run([PROGRAM, "plan", one, two, *options, str(limit)], capture_output=True, text=True, timeout=60)
        assert got.returncode == code and ", with a context of 6.0 MiB. Its ceiling is" in got.stdout


def test_a_section_with_no_device_is_named(tmp_path):
    options = map(str, two_models(tmp_path, ("two", "fake:9")))
    got = subprocess.run([PROGRAM, "serve", *options, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert got.returncode == 1 and "--device fake:9" in got.stderr
