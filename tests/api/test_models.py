"""Several models under one ceiling: loaded on demand, unloaded for others, their memory returned whole."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import subprocess
import threading
import time

import pytest

from conftest import MODEL, PROGRAM, TOP, Faulty, Server, account, account_bytes, all_returned, check_ledger, refused, settled, until

DATA = TOP / "tests/golden/data"
MIB = 1 << 20


class Models(Server):
    """A server of the models below a directory, and of others named on the command line."""

    def __init__(self, *options, named=(), wait=True):
        self.named = named
        super().__init__(*options, wait=wait)

    def arguments(self):
        return [str(m) for m in self.named]

    def models(self):
        return {m["id"]: m for m in self.http.get("/v1/models").json()["data"]}

    def state(self, model):
        return self.models()[model]["state"]

    def wait_state(self, model, state, seconds=60):
        def as_wanted():
            return self.state(model) == state

        as_wanted.__doc__ = f"{model} is {state}"
        until(as_wanted, seconds, 0.02)

    def ask(self, model, **fields):
        fields = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0, "return_token_ids": True, **fields}
        return self.post("/v1/completions", model=model, **fields)

    def ids(self, model, **fields):
        reply = self.ask(model, **fields)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["token_ids"]

    def load(self, model):
        return self.http.post(f"/v1/models/{model}/load")

    def unload(self, model):
        return self.http.post(f"/v1/models/{model}/unload")

    def accounts(self):
        return {a["name"] for a in self.memory()["accounts"][0]["children"]}

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def serve(directory, *options, **more):
    return Models("--model-dir", directory, "--threads", 2, *options, **more)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Two of the bundled model, one nested; two that know ids only; one that is broken, and things that are
    no models."""
    top = tmp_path_factory.mktemp("models")
    (top / "nested/deeper").mkdir(parents=True)
    (top / "one").symlink_to(MODEL)
    (top / "nested/deeper/two").symlink_to(MODEL)
    (top / "ids").symlink_to(DATA / "qwen3")
    (top / "nested/llama").symlink_to(DATA / "llama")
    (top / "broken").mkdir()
    (top / "broken/config.json").write_text("{}")
    (top / "broken/model.safetensors").write_bytes(b"none")
    (top / "empty").mkdir()
    (top / ".hidden").symlink_to(MODEL)
    (top / "notes.txt").write_text("no model")
    return top


@pytest.fixture(scope="module")
def models(directory):
    s = serve(directory, "--alias", "small=ids", "--memory-limit", "420M")
    yield s
    check_ledger(s.memory())
    assert s.stop() == 0, "".join(s.lines[-20:])


# ---- listing ----


def test_all_models_below_a_directory_are_known_and_none_is_loaded(directory):
    s = serve(directory, "--alias", "small=ids")
    found = s.models()
    assert sorted(found) == ["broken", "ids", "llama", "one", "small", "two"]
    assert {m["state"] for m in found.values()} == {"unloaded"}
    assert found["small"]["root"] == "ids"
    assert found["one"]["max_model_len"] > 0
    # Files say which inputs a model has that is not loaded.
    assert found["one"]["input_modalities"] == ["text", "image", "video"]
    assert found["one"]["vision"]["image_pixels_max"] == 1048576
    assert found["small"]["input_modalities"] == ["text"] and found["small"]["vision"] is None
    assert s.http.get("/v1/models/small").json()["root"] == "ids"
    s.says("event=model_unusable model=broken")
    refused(s.ask("three"), 404, "model_not_found", "three")
    refused(s.load("three"), 404, "model_not_found", "three")
    refused(s.unload("three"), 404, "model_not_found", "three")
    assert s.load("../one").status_code == 404
    assert s.stop() == 0


def test_models_are_found_eight_folders_deep(tmp_path):
    seventh = tmp_path / "1/2/3/4/5/6/7"
    for folder in ("8", "models--a--within/snapshots/0123", "models--a--small/snapshots"):
        (seventh / folder).mkdir(parents=True)
    for name in ("eighth", "8/ninth", "models--a--within/snapshots/0123/ninth", "models--a--small/snapshots/0123"):
        (seventh / name).symlink_to(DATA / "qwen3")
    s = serve(tmp_path)
    assert set(s.models()) == {"eighth", "a/small", "small"}
    assert s.stop() == 0


def test_a_request_loads_its_model_and_aliases_lead_to_it(models):
    assert models.state("ids") == "unloaded"
    answer = models.ids("small")
    assert models.state("ids") == "ready"
    assert models.ids("ids") == answer
    assert "ids" in models.accounts()
    reply = models.ask("small").json()
    assert reply["model"] == "small"
    loaded = models.models()["ids"]
    assert loaded["loads"] == 1 and loaded["tokenizer"] is False and loaded["reserved_bytes"] > 0


@pytest.mark.smoke
def test_who_comes_together_shares_one_load(models):
    models.ids("ids")
    assert models.unload("ids").status_code == 200
    loads = models.models()["ids"]["loads"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: models.ids("ids"), range(8)))
    assert answers == [answers[0]] * 8
    assert models.models()["ids"]["loads"] == loads + 1


def test_who_leaves_while_a_model_loads_leaves_nothing(models):
    if models.state("one") != "unloaded":
        models.unload("one")
    models.wait_state("one", "unloaded")
    before = settled(models)

    def loaded_to(part):
        """so much of the model is loaded"""
        one = next(m for m in models.status()["models"] if m["id"] == "one")
        return one["state"] == "ready" or (one["state"] == "loading" and (one["progress"] or 0) >= part)

    for part in [None, 0, 0.01, 0.5]:
        for _ in range(2):
            with models.begin(model="one", prompt=[1], max_tokens=2):
                until(lambda: part is None or loaded_to(part))
        models.wait_idle()
        until(lambda: models.state("one") in ("unloaded", "ready"))
        assert models.models()["one"]["load_failures"] == 0
        models.unload("one")
        models.wait_state("one", "unloaded")
    all_returned(models, before)
    assert len(models.ids("one")) == 4


def test_chats_tokens_and_templates_load_as_well(models):
    reply = models.chat("What does ls do?", model="one", max_tokens=2)
    assert reply.status_code == 200 and reply.json()["model"] == "one"
    assert models.post("/tokenize", model="two", prompt="ls").json()["count"] > 0
    assert models.state("two") == "ready"
    assert models.unload("two").status_code == 200


def test_each_model_answers_as_it_does_alone(models, server):
    prompt, fields = [10, 20, 30], {"max_tokens": 8}
    alone = server.complete(prompt, temperature=0, return_token_ids=True, **fields).json()["choices"][0]["token_ids"]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda m: models.ids(m, prompt=prompt, **fields), ["one", "ids", "llama"] * 2))
    assert answers[0] == answers[3] == alone
    assert answers[1] == answers[4] and answers[2] == answers[5]


# ---- load and unload ----


@pytest.mark.smoke
def test_a_model_is_loaded_and_unloaded_by_order_and_nothing_of_it_stays(models):
    models.wait_idle()
    if models.state("one") != "unloaded":
        models.unload("one")
    models.wait_state("one", "unloaded")
    before = settled(models)
    threads, files = models.threads(), models.files()
    reply = models.load("one").json()
    assert reply["id"] == "one" and reply["status"] == "ready" and reply["bytes"] > 0
    assert models.load("one").status_code == 200
    assert models.threads() > threads
    reply = models.unload("one")
    assert reply.status_code == 200
    reply = reply.json()
    assert reply["status"] == "unloaded" and reply["failed"] is None
    assert reply["bytes_returned"] > 20 * MIB
    until(lambda: (models.threads(), models.files()) == (threads, files))
    all_returned(models, before)
    assert models.unload("one").json()["bytes_returned"] == 0
    models.says("/v1/models/one/unload")


def test_a_busy_model_drains_then_its_requests_are_told_and_a_new_one_gets_it_again(directory):
    with_drain = serve(directory, "--drain", 1)
    with with_drain.begin(model="one", prompt=[1]) as running:
        assert running.event()["model"] == "one"
        # A client that does not read has no room for a last event.
        events = []
        reading = threading.Thread(target=lambda: events.extend(running.events_that_come()))
        reading.start()
        reply = with_drain.unload("one")
        assert reply.status_code == 202
        assert reply.json() == {"id": "one", "status": "draining", "requests": 1}
        assert with_drain.state("one") == "draining"
        assert with_drain.unload("one").status_code == 202
        # A request that arrives now waits, and gets the model loaded anew.
        began = time.monotonic()
        assert len(with_drain.ids("one")) == 4
        assert time.monotonic() - began < 20
        reading.join()
        last = events[-1]
        assert last == "[DONE]" or last["error"]["code"] in ("shutting_down", "model_unloading")
    assert with_drain.models()["one"]["loads"] == 2
    assert with_drain.stop() == 0


def test_a_pinned_model_is_not_unloaded(directory):
    s = serve(directory, "--pin", "ids", "--ttl", 1)
    s.ids("ids")
    s.ids("llama")
    refused(s.unload("ids"), 409, "model_pinned", "pinned")
    s.wait_state("llama", "unloaded")
    assert s.state("ids") == "ready"
    assert s.stop() == 0


@pytest.mark.smoke
def test_a_load_that_fails_is_told_and_remembered(models):
    before = settled(models)
    error = refused(models.ask("broken"), 503, "model_load_failed", "broken could not be loaded")
    assert "/v1/models/broken/load" in error["message"]
    again = models.ask("broken")
    refused(again, 503, "model_load_failed")
    assert 0 < int(again.headers["retry-after"]) <= 30
    failures = models.models()["broken"]["load_failures"]
    assert failures == 1
    refused(models.load("broken"), 409, "model_load_failed")
    found = models.models()["broken"]
    assert found["state"] == "failed" and found["reason"] and found["load_failures"] == 2
    all_returned(models, before)


def test_states_are_in_status_memory_and_metrics(models):
    models.ids("ids")
    status = {m["id"]: m for m in models.status()["models"]}
    assert status["ids"]["state"] == "ready" and status["broken"]["state"] in ("failed", "unloaded")
    memory = models.memory()
    assert {m["id"]: m["state"] for m in memory["models"]}["ids"] == "ready"
    assert memory["sums_hold"]
    metrics = models.metrics()
    assert metrics['plateau_model_state{model_name="ids",state="ready"}'] == 1
    assert metrics['plateau_model_state{model_name="ids",state="unloaded"}'] == 0
    assert metrics['plateau_model_loads_total{model_name="ids"}'] >= 1


def test_orders_need_the_admin(directory):
    s = serve(directory)
    for headers in [{"authorization": ""}, {"authorization": "Bearer none"}]:
        assert s.http.post("/v1/models/ids/load", headers=headers).status_code == 401
    assert s.load("ids").status_code == 200
    assert s.http.post("/v1/models/ids/unload", headers={"authorization": ""}).status_code == 401
    assert s.stop() == 0


# ---- one ceiling ----


def room_for_one(directory):
    """Options with which the bundled model fits once and not twice."""
    text = subprocess.run([PROGRAM, "plan", str(MODEL), "--json", "--memory-limit", "400M", "--max-model-len", "1024",
                           "--max-num-seqs", "2", "--host-cache", "0", "--max-connections", "16", "--max-requests", "32",
                           "--threads", "2"], check=True, capture_output=True)
    plan = json.loads(text.stdout)["models"][0]
    return ["--memory-limit", plan["floor_bytes"] + 24 * MIB, "--max-model-len", 1024, "--max-num-seqs", 2,
            "--host-cache", 0, "--max-connections", 16, "--max-requests", 32, "--text-limit", "8M"]


@pytest.mark.smoke
def test_an_idle_model_makes_room_and_a_busy_one_does_not(directory):
    s = serve(directory, *room_for_one(directory))
    s.ids("one")
    s.ids("two")
    assert (s.state("one"), s.state("two")) == ("unloaded", "ready")
    with contextlib.ExitStack() as running:
        for _ in range(2):  # the second stream waits for the first to be read
            stream = running.enter_context(s.begin(model="two", prompt=[1], max_tokens=900, n=4))
        stream.event()
        error = refused(s.ask("one"), 507, "out_of_memory", "one", "ceiling")
        assert sum(c.isdigit() for c in error["message"]) > 20
        refused(s.load("one"), 507, "out_of_memory")
    s.wait_idle()
    assert s.load("one").status_code == 200
    assert s.state("two") == "unloaded"
    assert s.stop() == 0


def test_a_load_waits_for_the_short_requests_of_others(directory):
    """Two models take turns in memory that has room for one: no request is refused."""
    s = serve(directory, *room_for_one(directory))
    answers = []

    def ask(name):
        for _ in range(12):
            answers.append(s.post("/v1/completions", model=name, prompt=[1, 2, 3], max_tokens=60, ignore_eos=True).status_code)

    clients = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two")]
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    assert answers == [200] * 24
    assert s.stop() == 0


def own_memory(server):
    return sum(server.memory()["system"][name] for name in ("rss_anon_bytes", "rss_shmem_bytes", "swap_bytes"))


def cycles(server, count, seed):
    """Random loads, uses and unloads of two models that do not fit together."""
    draw = random.Random(seed)
    wanted = {m: server.ids(m) for m in ("one", "two")}
    for m in ("one", "two"):
        server.unload(m)
    settle = lambda: [server.wait_state(m, "unloaded") for m in ("one", "two")]
    settle()
    settled(server)
    before, threads, files = own_memory(server), server.threads(), server.files()
    accounts = account_bytes(server.memory())
    held = 0
    for _ in range(count):
        model = draw.choice(["one", "two"])
        for _ in range(draw.randrange(1, 3)):
            if draw.random() < 0.3:
                assert server.load(model).status_code == 200
            assert server.ids(model) == wanted[model]
        held = max(held, account(server.memory(), model)["used_bytes"])
        if draw.random() < 0.6:
            assert server.unload(model).status_code == 200
            settle()
            # A sanitizer keeps freed memory.
            if server.memory()["system"]["heap_bytes"] > 0:
                until(lambda: own_memory(server) - before <= max(8 * MIB, held // 100))
            until(lambda: (server.threads(), server.files()) == (threads, files))
            assert account_bytes(server.memory()) == accounts


def test_models_come_and_go_and_nothing_adds_up(directory):
    s = serve(directory, *room_for_one(directory))
    cycles(s, 12, 1)
    check_ledger(s.memory())
    assert s.stop() == 0


# ---- steps that fail ----

LOADING = ["account", "room", "tokenizer", "template", "defaults", "weights", "engine", "limits", "grammars", "start"]
UNLOADING = ["close engine", "free grammars", "free weights", "free tokenizer", "close account"]


class FaultyModels(Faulty, Models):
    """One whose loads and unloads fail by order."""


@pytest.fixture(scope="module")
def faulty_models(directory):
    s = FaultyModels("--model-dir", directory, "--threads", 2)
    yield s
    check_ledger(s.memory())
    assert s.stop() == 0, "".join(s.lines[-20:])


@pytest.mark.parametrize("step", LOADING)
def test_a_load_that_fails_at_any_step_leaves_nothing_and_others_are_served(faulty_models, step):
    s = faulty_models
    wanted = s.ids("llama")
    before, threads, files = settled(s), s.threads(), s.files()
    s.order(f"step {step}")
    error = refused(s.load("one"), 409, "model_load_failed", step)
    assert s.state("one") == "failed" and step in s.models()["one"]["reason"], error
    assert s.ids("llama") == wanted
    refused(s.ask("one"), 503, "model_load_failed")
    all_returned(s, before)
    until(lambda: (s.threads(), s.files()) == (threads, files))
    s.order("step ")
    assert s.load("one").status_code == 200
    assert len(s.ids("one")) == 4
    assert s.unload("one").json()["failed"] is None


@pytest.mark.parametrize("step", UNLOADING)
def test_an_unload_whose_step_fails_says_so_and_does_the_rest(faulty_models, step):
    s = faulty_models
    wanted = s.ids("llama")
    before, threads, files = settled(s), s.threads(), s.files()
    assert s.load("one").status_code == 200
    s.order(f"step {step}")
    reply = s.unload("one")
    assert reply.status_code == 200 and step in reply.json()["failed"]
    assert s.ids("llama") == wanted
    all_returned(s, before)
    until(lambda: (s.threads(), s.files()) == (threads, files))
    s.order("step ")
    assert s.load("one").status_code == 200
    assert s.unload("one").json()["failed"] is None


def test_a_model_whose_device_is_lost_closes_and_the_next_request_loads_it(faulty_models):
    s = faulty_models
    wanted, others = s.ids("one"), s.ids("llama")
    before = s.models()["one"]
    s.order("lose")
    refused(s.ask("one"), 500, "engine_error", "error 19")
    until(lambda: s.models()["one"]["unloads"] == before["unloads"] + 1)
    assert s.ids("llama") == others
    assert s.ids("one") == wanted
    assert s.models()["one"]["loads"] == before["loads"] + 1
    assert s.unload("one").json()["failed"] is None


# ---- settings ----


def test_a_section_of_the_file_is_of_one_model(directory, tmp_path):
    config = tmp_path / "plateau.ini"
    config.write_text("max-model-len = 900\n[model one]\nmax-model-len = 700\nalias = first\nalias = premier\n"
                      "temperature = 0\nmax-tokens-default = 3\nchat-template-kwargs = {\"enable_thinking\": true}\n"
                      "[model ids]\npin = yes\nttl = 5\n")
    s = serve(directory, "--config", config)
    found = s.models()
    assert found["one"]["max_model_len"] == 700 and found["two"]["max_model_len"] == 900
    assert found["first"]["root"] == found["premier"]["root"] == "one"
    assert found["ids"]["pinned"] and not found["one"]["pinned"]
    one, two = (s.post("/apply-template", model=m, messages=[{"role": "user", "content": "a"}]).json()["prompt"]
                for m in ("one", "two"))
    assert one != two
    off = s.post("/apply-template", model="one", messages=[{"role": "user", "content": "a"}],
                 chat_template_kwargs={"enable_thinking": False}).json()["prompt"]
    assert off == two
    # Greedy without being asked, and as long as the section says.
    replies = {tuple(s.complete([5, 6, 7], model="one", return_token_ids=True).json()["choices"][0]["token_ids"])
               for _ in range(3)}
    assert len(replies) == 1 and len(replies.pop()) == 3
    assert s.stop() == 0


def test_a_length_said_of_all_is_no_mistake_for_who_was_made_for_less(directory):
    s = serve(directory, "--max-model-len", 20000)
    found = s.models()
    assert found["one"]["max_model_len"] == 20000 and found["ids"]["max_model_len"] == 4096
    assert len(s.ids("ids")) == 4
    assert s.stop() == 0


@pytest.mark.parametrize("text, words", [
    ("[model one]\ncolour = red\n", ["[model one]", "colour"]),
    ("[model one]\nport = 1\n", ["[model one]", "port"]),
    ("[model one]\nmax-num-seqs = many\n", ["[model one]", "max-num-seqs"]),
    ("[model nobody]\nttl = 1\n", ["nobody"]),
    ("[models]\nttl = 1\n", ["[models]", "[model NAME]"]),
    ("[model one]\nchat-template-kwargs = 3\n", ["chat-template-kwargs", "object"]),
])
def test_mistakes_in_sections_are_named(directory, tmp_path, text, words):
    config = tmp_path / "plateau.ini"
    config.write_text(text)
    got = subprocess.run([PROGRAM, "serve", "--model-dir", directory, "--config", config, "--port", "0"],
                         capture_output=True, text=True, timeout=20)
    assert got.returncode != 0
    for word in words:
        assert word in got.stderr, got.stderr


@pytest.mark.parametrize("arguments, words", [
    ([MODEL, MODEL], ["two models are called canary", "--alias"]),
    (["--model-dir", "EMPTY"], ["no directory below it"]),
    (["--model-dir", "/nowhere/at/all"], ["/nowhere/at/all"]),
    (["--pin", "nobody"], ["--pin nobody"]),
    (["--model", MODEL, "--model", DATA / "qwen3"], ["--model is given twice", "plateau serve A B"]),
    ([MODEL, "--model", DATA / "qwen3"], ["--model is given twice", "plateau serve A B"]),
    (["--alias", "a=nobody"], ["--alias a=nobody"]),
    ([MODEL, DATA / "qwen3", "--alias", "a"], ["several models"]),
    ([MODEL, DATA / "qwen3", "--alias", "a=canary", "--alias", "a=qwen3"], ["two models are called a"]),
    ([MODEL, DATA / "qwen3", "--memory-limit", "90M"], ["fit"]),
])
def test_mistakes_on_the_command_line_are_named(directory, arguments, words):
    arguments = [str(directory / "empty") if a == "EMPTY" else str(a) for a in arguments]
    got = subprocess.run([PROGRAM, "serve", *arguments, "--port", "0"], capture_output=True, text=True, timeout=20)
    assert got.returncode != 0
    for word in words:
        assert word in got.stderr, got.stderr


def test_models_that_are_named_are_loaded_at_the_start(directory):
    named = [str(directory / "one"), str(DATA / "qwen3")]
    s = serve(directory, "--memory-limit", "420M", "--alias", f"q={DATA / 'qwen3'}", named=named)
    states = {name: m["state"] for name, m in s.models().items()}
    # A model that is both named and found below the directory is listed once.
    assert states == {"one": "ready", "q": "ready", **dict.fromkeys(["two", "ids", "llama", "broken"], "unloaded")}
    assert s.ids("q") == s.ids("q")
    # Without a name it is the first.
    assert s.post("/v1/completions", prompt=[1], max_tokens=1).json()["model"] == "one"
    assert s.stop() == 0
