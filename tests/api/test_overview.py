"""Data that the page reads: one snapshot, the history, and the log; who may see what of them."""

import re
import time

import pytest

from conftest import AS_ADMIN, TOP, Open, account, refused, serving, until

RANGES = {"5m": (1, 300), "1h": (10, 360), "24h": (240, 360), "7d": (1800, 336), "30d": (7200, 360)}
MIB = 1 << 20


def overview(server, **headers):
    reply = server.http.get("/api/overview", headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def history(server, span):
    reply = server.http.get("/api/history", params={"range": span})
    assert reply.status_code == 200, reply.text
    return reply.json()


def log(server, **query):
    reply = server.http.get("/api/log", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.smoke
def test_the_figures_are_those_of_memory(server):
    server.complete("a b c", max_tokens=3)
    server.wait_idle()

    def same():
        """one snapshot agrees with the report beside it"""
        before, now, after = server.memory(), overview(server)["memory"], server.memory()
        if before["used_bytes"] != after["used_bytes"]:
            return None
        return now, after

    now, memory = until(same)
    root = memory["accounts"][0]
    assert now["used_bytes"] == memory["used_bytes"] and now["limit_bytes"] == memory["limit_bytes"]
    assert now["reserved_bytes"] == memory["reserved_bytes"] and now["peak_bytes"] == root["peak_bytes"]
    [owner] = now["owners"]
    model = account(memory, "canary")
    assert owner["id"] == "canary" and owner["used_bytes"] == model["used_bytes"]
    assert owner["used_bytes"] == owner["fixed_bytes"] + owner["active_bytes"] + owner["kept_bytes"]
    assert now["used_bytes"] == now["server_bytes"] + sum(o["used_bytes"] for o in now["owners"])
    assert abs(now["unaccounted_bytes"] - memory["unaccounted_bytes"]) < 4 * MIB


@pytest.mark.smoke
def test_an_overview_has_all_that_the_page_shows(server):
    with server.begin() as running:
        running.event()
        now = overview(server)
        [request] = [r for r in now["requests"] if r["route"] == "/v1/completions"]
        assert request["phase"] in ("prefilling", "decoding", "paused") and now["active_requests"] >= 1
    assert now["admin"] and now["status"] == "ok" and now["attention"] == []
    [model] = now["models"]
    assert model["id"] == "canary" and model["state"] == "ready" and model["max_model_len"] > 0
    assert {"pinned", "leases", "ttl_seconds", "load_seconds", "chat", "images", "exact"} <= model.keys()
    assert {"host", "pinned", "shared", "ssd", "images"} == now["caches"].keys()
    assert now["memory_pressure"]["stage"] == "none"
    assert abs(now["time"] - time.time()) < 60
    def measured():
        """a first token is in the rates"""
        return overview(server)["rates"]["first_tokens"] > 0
    until(measured)
    rates = overview(server)["rates"]
    assert 0 < rates["first_token_p50_seconds"] <= rates["first_token_p95_seconds"]
    server.wait_idle()


@pytest.mark.smoke
def test_the_history_has_one_shape_in_all_ranges(server):
    for span, (step, points) in RANGES.items():
        h = history(server, span)
        assert (h["range"], h["step_seconds"], h["points"]) == (span, step, points)
        assert h["trend"]["verdict"] in ("unknown", "flat", "rising", "falling")
        for name, values in h["series"].items():
            for kind in values:
                assert len(values[kind]) == points, (name, kind)
        assert abs(h["from"] + step * points - time.time()) <= step + 60
    refused(server.http.get("/api/history?range=2h"), 400, "invalid_value")
    refused(server.http.get("/api/history?range="), 400, "invalid_value")


def test_the_last_seconds_are_in_the_history(server):
    def sampled():
        """five seconds have been sampled"""
        return [x for x in history(server, "5m")["series"]["memory_used"]["mean"][-8:] if x][4:]

    until(sampled)
    used = server.memory()["used_bytes"]
    series = history(server, "5m")["series"]
    parts = [series["memory_" + part]["mean"][-3] for part in ("server", "fixed", "active", "kept")]
    assert abs(sum(parts) - series["memory_used"]["mean"][-3]) < 64
    assert abs(series["memory_used"]["mean"][-3] - used) < 64 * MIB
    for span in ("1h", "24h", "7d", "30d"):
        last = history(server, span)["series"]["memory_used"]
        assert last["min"][-1] <= last["mean"][-1] <= last["max"][-1]


def test_history_lies_in_its_account(server):
    found = account(server.memory(), "history")
    assert found["used_bytes"] == found["reserved_bytes"] == found["planned_bytes"] <= 1.25 * MIB


@pytest.mark.smoke
def test_the_log_is_what_standard_error_has(server):
    last = log(server)["last"]
    server.http.post("/api/trim")
    [line] = until(lambda: [x for x in log(server, after=last)["lines"] if "event=audit" in x["text"]])
    assert line["level"] == "info" and line["number"] > last
    until(lambda: line["text"] in [x.rstrip("\n") for x in server.lines])
    assert log(server, after=line["number"] + 100)["lines"] == []
    assert all(x["level"] in ("warn", "error", "fatal") for x in log(server, level="warn")["lines"])
    for query in ("after=x", "after=-1", "level=loud", "after=99999999999999999999"):
        refused(server.http.get(f"/api/log?{query}"), 400, "invalid_value")


def test_a_log_of_many_lines_is_cut_to_the_newest(server):
    for _ in range(250):
        server.http.post("/api/trim")
    lines = log(server)["lines"]
    assert len(lines) == 200 and lines[-1]["number"] == log(server)["last"]
    assert [x["number"] for x in lines] == list(range(lines[0]["number"], lines[-1]["number"] + 1))


@pytest.mark.smoke
def test_each_key_sees_its_own():
    body = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True}
    as_of = {key: {"authorization": f"Bearer {key}"} for key in ("sk-alice-0123", "sk-bob-0123", "sk-root-0123")}
    keys = ["--api-key", "sk-alice-0123", "--api-key", "sk-bob-0123", "--admin-key", "sk-root-0123"]
    with serving(*keys, key="sk-root-0123") as s:
        with Open(s, "/v1/completions", body, key="sk-alice-0123") as running:
            running.event()
            seen = {key: overview(s, **headers) for key, headers in as_of.items()}
        assert len(seen["sk-alice-0123"]["requests"]) == 1 and seen["sk-bob-0123"]["requests"] == []
        assert len(seen["sk-root-0123"]["requests"]) == 1
        for key in ("sk-alice-0123", "sk-bob-0123"):
            assert not seen[key]["admin"]
            assert not {"memory", "rates", "attention", "caches", "guard", "log_last"} & seen[key].keys()
            assert not {"leases", "used_bytes", "running"} & seen[key]["models"][0].keys()
            for path in ("/api/history", "/api/log"):
                refused(s.http.get(path, headers=as_of[key]), 401, "invalid_api_key")
        refused(s.http.get("/api/overview", headers={"authorization": "Bearer wrong"}), 401, "invalid_api_key")


def test_the_alerts_of_the_manual_are_the_attention_list():
    source = (TOP / "src/api/report/report_attention.c").read_text()
    ids = re.findall(r'^    \{"(\w+)", "(?:warn|bad)"', source, re.M)
    manual = (TOP / "docs/operations.md").read_text()
    table = manual[manual.index("alerts below"):manual.index("## The log")]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert [row.split("|")[-2].strip().strip("`") for row in rows] == ids


@pytest.mark.smoke
def test_a_model_is_pinned_and_unpinned(server):
    assert server.http.post("/v1/models/canary/pin").json() == {"id": "canary", "pinned": True}
    assert overview(server)["models"][0]["pinned"]
    reply = server.http.post("/v1/models/canary/unload")
    assert reply.status_code == 409 and "pinned" in reply.text
    assert server.http.post("/v1/models/canary/unpin").json() == {"id": "canary", "pinned": False}
    assert not overview(server)["models"][0]["pinned"]
    refused(server.http.post("/v1/models/none/pin"), 404, "model_not_found")
