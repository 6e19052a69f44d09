"""Several models that share one memory: which caches are evicted, the remains of an unload, and the
reaction when other processes take the machine's memory."""

import pytest

from conftest import FAULTY, TOP, Faulty, account, check_ledger, refused, until

DATA = TOP / "tests/golden/data"
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not FAULTY.exists(), reason="built without tests")


class Models(Faulty):
    """Models that know ids only: small, and loaded in a moment."""

    names = ["a", "b", "c"]

    def arguments(self):
        return []

    def ask(self, model, seed, count=300, **fields):
        ids = [(i * 37 + i * i + seed * 101) % 500 for i in range(count)]
        fields = {"prompt": ids, "max_tokens": 2, "temperature": 0, "return_token_ids": True, **fields}
        return self.post("/v1/completions", model=model, **fields)

    def tokens(self, model, seed, **fields):
        reply = self.ask(model, seed, **fields)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["token_ids"]

    def unload(self, model):
        reply = self.http.post(f"/v1/models/{model}/unload")
        assert reply.status_code in (200, 202), reply.text
        until(lambda: self.state(model) == "unloaded")

    def state(self, model):
        return {m["id"]: m["state"] for m in self.http.get("/v1/models").json()["data"]}[model]

    def holders(self):
        return {(h["id"], h["state"]): h for h in self.memory()["holders"]}

    def clear(self):
        reply = self.http.post("/api/hot-cache/clear")
        assert reply.status_code == 200, reply.text
        return reply.json()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    top = tmp_path_factory.mktemp("guarded")
    for name, data in zip(Models.names, ["qwen3", "llama", "qwen3_5"]):
        (top / name).symlink_to(DATA / data)
    return top


@pytest.fixture
def serve(directory):
    started = []

    def start(*options):
        s = Models("--model-dir", directory, "--threads", 2, "--max-model-len", 512, "--max-num-seqs", 2,
                   "--max-queue", 4, *options)
        started.append(s)
        return s

    yield start
    for s in (s for s in started if s.process.poll() is None):
        for order in ["go", "take", "available 0"]:
            s.order(order)
        check_ledger(s.memory())
        assert s.stop() == 0, "".join(s.lines[-20:])


@pytest.mark.smoke
def test_all_models_cache_within_one_budget(serve):
    server = serve("--host-cache", 4 * MIB)
    for seed in range(12):
        for model in Models.names:
            server.tokens(model, seed)
            host = server.status()["caches"]["host"]
            assert host["limit_bytes"] == 4 * MIB and host["bytes"] <= 4 * MIB
    holders = server.memory()["holders"]
    assert len(holders) == 3 and sum(h["allowed_bytes"] for h in holders) <= 4 * MIB
    assert all(h["cached_bytes"] <= h["allowed_bytes"] for h in holders)
    assert {h["domain"] for h in holders} == {"machine"} and server.memory()["system"]["devices"] == []
    # Each of them had to make room for the others; the newest entries are still cached.
    assert server.ask("c", 11).json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    metrics = server.metrics()
    assert metrics["plateau_prefix_cache_limit_bytes"] == 4 * MIB
    assert 0 < metrics["plateau_prefix_cache_bytes"] <= 4 * MIB


def fitting(serve, models, room):
    """A server with this many bytes left after these models are loaded, and the floor of each model. The
    rest is the limit of texts and bodies."""
    texts = 400 * MIB
    for _ in range(4):
        server = serve("--memory-limit", 1024 * MIB, "--text-limit", texts)
        for model in models:
            assert server.http.post(f"/v1/models/{model}/load").status_code == 200
        memory = server.memory()
        left = memory["limit_bytes"] - memory["reserved_bytes"]
        if abs(left - room) < MIB // 2:
            return server, {model: account(memory, model)["reserved_bytes"] for model in models}
        server.stop()
        texts += (left - room) * 2 // 3  # Bodies get half as much again.
    raise AssertionError(f"{left} bytes are left instead of {room}")


def test_caches_of_others_go_before_a_model_does(serve):
    # Room for the first two, and 12 MiB more; the first one's cache takes all free bytes.
    server, floors = fitting(serve, ["a", "b"], 12 * MIB)
    server.unload("b")
    first = server.tokens("a", 0, max_tokens=20)
    for seed in range(1, 200):
        server.tokens("a", seed)
        if server.memory()["limit_bytes"] - server.memory()["reserved_bytes"] < floors["b"]:
            break
    before = server.holders()["a", "live"]["cached_bytes"]
    server.tokens("b", 0)
    assert server.state("a") == "ready"
    assert server.holders()["a", "live"]["cached_bytes"] < before
    metrics = server.metrics()
    assert metrics['plateau_guard_bytes_total{from="caches"}'] + metrics['plateau_guard_bytes_total{from="free"}'] > 0
    assert metrics['plateau_guard_rooms_total{result="made"}'] >= 1
    # With the third one all three have no room.
    server.tokens("c", 0)
    assert "unloaded" in (server.state("a"), server.state("b"))
    assert server.metrics()['plateau_guard_bytes_total{from="idle_models"}'] > 0
    assert server.tokens("a", 0, max_tokens=20) == first


def test_a_refused_load_has_the_numbers_and_costs_nobody_anything(serve):
    server, _ = fitting(serve, ["a", "b"], 2 * MIB)
    server.order("hang")
    with server.begin(model="a", prompt=[1, 2, 3], max_tokens=50) as one:
        with server.begin(model="b", prompt=[1, 2, 3], max_tokens=50) as two:
            until(lambda: len(server.requests()) == 2)
            error = refused(server.ask("c", 0), 507, "out_of_memory", "There is no memory to load c")
            for word in ["ceiling", "It holds", "can be released", "busy, pinned or hold sessions"]:
                assert word in error["message"]
            server.order("go")
            assert list(one.events())[-1] == list(two.events())[-1] == "[DONE]"
    assert server.metrics()['plateau_guard_rooms_total{result="refused"}'] >= 1
    server.tokens("c", 0)
    assert "unloaded" in (server.state("a"), server.state("b"))


@pytest.mark.smoke
def test_what_an_unload_left_is_seen_and_cleared(serve):
    server = serve()
    first = server.tokens("a", 1, max_tokens=20)
    server.order("keep")
    held = server.holders()["a", "live"]["held_bytes"]
    server.unload("a")
    assert held > 0 and account(server.memory(), "a") is None
    memory = server.memory()
    assert memory["orphans"] == 1 and memory["orphan_bytes"] == held and memory["sums_hold"]
    assert account(memory, "orphans")["used_bytes"] == held
    assert server.holders()["a", "orphan"]["held_bytes"] == held
    assert server.status()["orphans"] == 1
    assert server.metrics()["plateau_orphans"] == 1 and server.metrics()["plateau_orphan_bytes"] == held
    server.says("event=teardown_incomplete")
    # The clear reports its failure; the others' bytes were returned anyway.
    server.order("take")
    server.tokens("b", 1)
    server.order("keep")
    reply = server.clear()
    assert reply["status"] == "partial" and reply["failed"][0]["id"] == "a" and reply["failed"][0]["error"]
    # A load beside it, and a clear that the system agrees to.
    assert server.tokens("a", 1, max_tokens=20) == first
    server.order("take")
    reply = server.clear()
    assert reply["status"] == "ok" and reply["failed"] == [] and reply["bytes_reclaimed"] >= held
    memory = server.memory()
    assert memory["orphans"] == 0 and account(memory, "orphans") is None and memory["sums_hold"]
    assert server.clear() == {"status": "ok", "entries": 0, "bytes_reclaimed": 0, "failed": []}


def test_when_others_take_the_memory_new_work_goes_last(serve):
    server = serve()
    for seed in range(10):
        server.tokens("a", seed)
    server.tokens("b", 0)
    before = server.holders()["a", "live"]["cached_bytes"]
    assert server.status()["memory_pressure"]["stage"] == "none"
    want = server.tokens("b", 5, max_tokens=200)

    def stage(name):
        """It was reached, however short: the log keeps it."""
        until(lambda: server.said(f"event=memory_pressure stage={name} "), every=0.1)

    with server.begin(model="b", prompt=[1, 2, 3], max_tokens=500) as stream:
        assert stream.event()
        server.order("available 100")
        stage("shrink")
        stage("refuse")
        reply = server.ask("b", 5)
        error = refused(reply, 503, "memory_short", "short of memory")
        assert int(reply.headers["retry-after"]) > 0 and error["type"] == "server_error"
        assert server.http.get("/health").status_code == 200
        assert list(stream.events())[-1] == "[DONE]"
    assert server.holders().get(("a", "live"), {"cached_bytes": 0})["cached_bytes"] < before
    until(lambda: server.state("a") == "unloaded" and server.state("b") == "unloaded", every=0.1)
    assert server.http.post("/v1/models/a/load").status_code == 507
    assert server.metrics()["plateau_memory_pressure_stage"] == 4
    server.order("available 60000")
    # From here on models are loaded again; the rest of the way takes five seconds a stage.
    until(lambda: server.said("event=memory_pressure stage=unload before=refuse "), every=0.1)
    until(lambda: server.said("event=memory_pressure stage=trim before=unload "), every=0.1)
    assert server.tokens("b", 5, max_tokens=200) == want
    def lines():
        return sum("event=memory_pressure" in line for line in list(server.lines))

    until(lambda: lines() == server.status()["memory_pressure"]["changes"] >= 6, every=0.1)


def test_a_model_that_makes_room_says_for_which(serve):
    server, floors = fitting(serve, ["a"], 2 * MIB)
    assert server.http.post("/v1/models/b/load").status_code == 200
    server.says("event=model_unloaded model=a reason=made_room for=b ")

    def told():
        """the overview says why"""
        models = {m["id"]: m for m in server.http.get("/api/overview").json()["models"]}
        return "unloaded" in models["a"] and models["a"]["unloaded"]

    unloaded = until(told)
    assert (unloaded["reason"], unloaded["for"]) == ("made_room", "b") and unloaded["seconds"] < 300
    server.unload("b")
    server.says("event=model_unloaded model=b reason=admin for=- ")


def test_a_refused_load_names_its_model_until_it_loads(serve):
    server, floors = fitting(serve, ["a"], 2 * MIB)
    refusals = lambda: [x["model"] for x in server.http.get("/api/overview").json()["attention"] if x["id"] == "loads_refused"]
    assert server.http.post("/v1/models/a/pin").status_code == 200
    # The first second sets the base of the counters.
    until(lambda: server.http.get("/api/overview").json()["uptime_seconds"] > 2)
    assert server.http.post("/v1/models/b/load").status_code == 507
    until(lambda: refusals() == ["b"])
    assert server.http.post("/v1/models/a/unpin").status_code == 200
    assert server.http.post("/v1/models/b/load").status_code == 200
    until(lambda: refusals() == [])


def test_a_server_ends_well_though_the_system_takes_nothing_back(serve):
    server = serve()
    for model in Models.names:
        server.tokens(model, 1)
    server.order("keep")
    server.unload("a")
    server.tokens("a", 2)
    assert server.stop() == 0, "".join(server.lines[-20:])
