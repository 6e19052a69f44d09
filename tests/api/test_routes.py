"""The routes that tools, operators and dashboards read: every field that is promised, with values that
agree."""

import contextlib
import math
import re
import time

import httpx
import pytest

from conftest import GOLDEN, Server, account, check_ledger, refused, until

CASE = GOLDEN["cases"][15]


def get(server, path):
    reply = server.http.get(path)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json" and len(reply.headers["x-request-id"]) == 32
    return reply.json()


@pytest.mark.smoke
def test_live_and_health(server):
    assert get(server, "/live") == {"status": "ok"}
    assert get(server, "/health") == get(server, "/ping") == {"status": "ok"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", get(server, "/version")["version"])
    assert server.http.head("/health").status_code == 200


@pytest.mark.smoke
def test_a_server_that_loads_says_so():
    """It listens at once; until the model is there it says how far it is, and takes no request."""
    s = Server(wait=False)
    seen = []

    def ready():
        """ready"""
        with contextlib.suppress(httpx.TransportError):
            reply = s.complete("a", max_tokens=1)
            if reply.status_code != 200:
                refused(reply, 503, "model_loading", "GET /health")
                assert reply.headers["retry-after"] == "1"
            health = s.http.get("/health")
            seen.append((health.status_code, health.json()["status"], 0 <= health.json().get("progress", -1) <= 1))
            return health.status_code == 200

    until(ready, 60, 0.001)
    assert seen[-1] == (200, "ok", False) and set(seen[:-1]) == {(503, "loading", True)}
    assert s.stop() == 0


@pytest.mark.smoke
def test_models(server):
    listed = get(server, "/v1/models")
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert get(server, "/v1/models/canary") == model
    assert (model["id"], model["object"], model["owned_by"]) == ("canary", "model", "plateau")
    assert abs(model["created"] - time.time()) < 3600
    assert model["max_model_len"] == 30720 and model["compute"] == "int16"
    assert model["exact"] is True and model["chat"] is True and model["tokenizer"] is True
    assert model["input_modalities"] == ["text", "image", "video"]
    assert model["vision"] == {
        "images_max": 16,
        "image_pixels_max": 1048576,
        "image_tokens_max": 1024,
        "token_pixels": 1024,
        "video_frames_max": 768,
    }


@pytest.mark.smoke
def test_infos(server):
    info = get(server, "/model_info")
    assert info["max_model_len"] == 30720 and info["vocab_size"] == 8192 and info["is_generation"] is True
    assert info["model_type"] == "qwen3_5_moe" and info["weight_bytes"] > 20 << 20
    more = get(server, "/server_info")
    assert info.items() <= more.items() and more["served_model_name"] == "canary"
    assert more["uptime_seconds"] > 0 and more["max_requests"] == 1024


@pytest.mark.smoke
def test_tokenize(server):
    text = "What does mkdir do? <|im_end|> é 日本"
    reply = server.post("/tokenize", prompt=text).json()
    assert set(reply) == {"count", "max_model_len", "tokens", "token_strs"}
    assert reply["count"] == len(reply["tokens"]) > 8 and reply["max_model_len"] == 30720
    assert reply["token_strs"] is None
    assert server.post("/detokenize", tokens=reply["tokens"]).json() == {"prompt": text, "content": text}
    for field in "return_token_strs", "with_pieces":
        strings = server.post("/tokenize", prompt="What does", **{field: True}).json()["token_strs"]
        assert "".join(strings) == "What does"
    assert server.post("/tokenize", content=text).json() == reply
    assert server.post("/tokenize", prompt="").json()["tokens"] == []
    assert server.post("/detokenize", tokens=[]).json()["prompt"] == ""
    longer = server.post("/tokenize", prompt="word " * 40000).json()
    assert longer["count"] > longer["max_model_len"], "a text beyond the context is counted too"


@pytest.mark.smoke
def test_tokenize_messages(server):
    fields = {"messages": CASE["messages"], "tools": CASE["tools"],
              "chat_template_kwargs": {"enable_thinking": CASE["enable_thinking"]}}
    reply = server.post("/tokenize", **fields).json()
    assert reply["tokens"] == CASE["prompt_ids"]
    assert server.post("/apply-template", **fields).json() == {"prompt": CASE["rendered"]}
    without = server.post("/tokenize", add_generation_prompt=False, **fields).json()
    assert without["count"] < reply["count"] and reply["tokens"][:without["count"]] == without["tokens"]
    # The body of a chat may be sent unchanged.
    assert server.post("/tokenize", stream=True, temperature=0, model="canary", **fields).json() == reply
    chat = server.post("/v1/chat/completions", max_tokens=1, **fields).json()
    assert chat["usage"]["prompt_tokens"] == reply["count"]


@pytest.mark.smoke
@pytest.mark.parametrize("path, fields, word", [
    ("/tokenize", {}, "messages, or prompt"),
    ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "either"),
    ("/tokenize", {"prompt": [1, 2]}, "string"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": [8192]}, "8191"),
    ("/detokenize", {"tokens": [-1]}, "token id"),
    ("/detokenize", {"tokens": "1"}, "list"),
    ("/apply-template", {}, "messages"),
    ("/apply-template", {"messages": [{"role": "tool"}]}, "content"),
])
def test_tokenize_refuses(server, path, fields, word):
    reply = server.post(path, **fields)
    assert reply.status_code == 400 and word in reply.json()["error"]["message"], reply.text


@pytest.mark.smoke
def test_status(server):
    idle = server.wait_idle()
    assert (idle["active_requests"], idle["waiting_requests"], idle["requests"]) == (0, 0, [])
    (model,) = idle["models"]
    assert (model["id"], model["state"], model["max_model_len"]) == ("canary", "ready", 30720)
    assert model["pages_max"] >= 1024 and model["pages_used"] == 0
    with server.begin(prompt=[7] * 40, max_tokens=5000, stream=False) as running:
        shown = until(lambda: [r for r in server.requests("decoding") if r["tokens"] > 5])[0]
        busy = server.status()
        assert busy["active_requests"] == 1 and busy["models"][0]["running"] == 1
        assert busy["models"][0]["pages_used"] >= 2 and busy["models"][0]["states_used"] >= 1
        assert (shown["route"], shown["model"], shown["choices"]) == ("/v1/completions", "canary", 1)
        assert shown["prompt_tokens"] == 40 and shown["cached_tokens"] == 0 and shown["client_connected"] is True
        assert shown["progress"] == pytest.approx(shown["tokens"] / 5000, abs=1e-4)
        assert shown["bytes"] > 100000 and shown["age_seconds"] > 0
        # The id is the one that the reply's header will name.
        assert server.http.delete("/v1/requests/" + shown["id"]).status_code == 200
        assert running.answer().headers["x-request-id"] == shown["id"]
    server.wait_idle()


@pytest.mark.smoke
def test_memory(server):
    memory = server.memory()
    assert memory["limit_bytes"] >= memory["reserved_bytes"] >= memory["used_bytes"] > 30 << 20
    check_ledger(memory)
    (root,) = memory["accounts"]
    assert root["reserved_bytes"] == memory["reserved_bytes"] and root["used_bytes"] == memory["used_bytes"]
    fields = {"name", "class", "planned_bytes", "reserved_bytes", "used_bytes", "own_bytes", "peak_bytes",
              "limit_bytes", "children"}

    def walk(a):
        assert set(a) == fields
        assert a["class"] in ("anon", "file", "device", "pinned", "disk")
        assert a["peak_bytes"] >= a["reserved_bytes"] or a["peak_bytes"] >= a["used_bytes"]
        for child in a["children"]:
            walk(child)

    walk(root)
    for name in ["text", "network", "canary", "pools", "kv", "state", "snapshots", "prefix cache", "requests", "engine", "weights"]:
        assert account(memory, name), name
    assert account(memory, "kv")["planned_bytes"] > 0
    assert {"rss_anon_bytes", "swap_bytes", "cgroup_bytes", "devices"} <= set(memory["system"])
    assert memory["system"]["rss_anon_bytes"] > 10 << 20


# ---- Prometheus ----

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (-?(?:[0-9.]+(?:e[+-]?[0-9]+)?|Inf)|NaN)")


def prometheus(text):
    """{family: (type, {sample with its labels: value})}, of a text that keeps the format's rules to the
    letter."""
    families, samples, family = {}, set(), None
    assert text.endswith("\n") and "\r" not in text
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family, _, explained = line[7:].partition(" ")
            assert re.fullmatch(NAME, family) and explained and family not in families, line
            families[family] = [None, {}]
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == family and kind in ("counter", "gauge", "histogram") and families[name][0] is None, line
            families[name][0] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"no sample: {line}"
            name, labels, value = match.groups()
            kind = families[family][0]
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert name in [family + suffix for suffix in suffixes], f"{name} stands under {family}"
            assert (name, labels) not in samples, f"twice: {line}"
            samples.add((name, labels))
            families[family][1][name, labels] = float(value)
            assert kind == "gauge" or float(value) >= 0
    assert all(kind and found for kind, found in families.values())
    return families


def check_histogram(name, samples):
    buckets = {}
    for (sample, labels), value in samples.items():
        if sample == name + "_bucket":
            rest, _, bound = labels.rpartition(",le=")
            buckets.setdefault(rest, []).append((float(bound.strip('"').replace("+Inf", "inf")), value))
    for labels, series in buckets.items():
        bounds, counts = zip(*series)
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == math.inf
        assert list(counts) == sorted(counts)
        assert samples[name + "_count", labels] == counts[-1]
        assert samples[name + "_sum", labels] >= 0


@pytest.mark.smoke
def test_metrics_are_valid(server):
    assert server.chat(temperature=0).status_code == 200
    server.wait_idle()
    reply = server.http.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = prometheus(reply.text)
    for name, (kind, samples) in families.items():
        assert kind != "counter" or name.endswith("_total"), name
        if kind == "histogram":
            check_histogram(name, samples)
    for name in ["vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds", "vllm:num_requests_running",
                 "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total",
                 "vllm:generation_tokens_total", "vllm:request_success_total", "plateau_memory_bytes",
                 "plateau_memory_unaccounted_bytes", "process_resident_memory_bytes"]:
        assert name in families, name
    memory = families["plateau_memory_bytes"][1]
    used = {labels for _, labels in memory if 'kind="used"' in labels}
    assert any(labels.endswith('/canary/pools/kv",kind="used"') for _, labels in memory) and len(used) > 8
    for labels in used:
        reserved = labels.replace('kind="used"', 'kind="reserved"')
        assert memory["plateau_memory_bytes", labels] <= memory["plateau_memory_bytes", reserved]


def difference(server, work):
    before = server.metrics()
    work()
    server.wait_idle()
    after = server.metrics()
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name)}


@pytest.mark.smoke
def test_metrics_count_what_happened(server):
    """Three requests: one whole, one refused, one that left."""

    def work():
        assert server.complete([7] * 40, max_tokens=9, ignore_eos=True).status_code == 200
        assert server.complete("a", temperature=9).status_code == 400
        aborted = server.metrics().get(aborts, 0)
        with server.begin() as left:
            left.event()
        until(lambda: server.metrics().get(aborts, 0) > aborted)  # numbers come a moment later

    aborts = 'vllm:request_success_total{model_name="canary",finished_reason="abort"}'
    changed = difference(server, work)
    label = '{model_name="canary"}'
    assert changed["vllm:prompt_tokens_total" + label] == 40 + 1
    assert changed["vllm:generation_tokens_total" + label] > 9
    assert changed['vllm:request_success_total{model_name="canary",finished_reason="length"}'] == 1
    assert changed[aborts] == 1
    assert changed["plateau_requests_rejected_total" + label] == 1
    assert changed["plateau_requests_aborted_total" + label] == 1
    assert changed["vllm:e2e_request_latency_seconds_count" + label] == 1
    assert changed["vllm:time_to_first_token_seconds_count" + label] == 2
    assert changed["vllm:request_generation_tokens_sum" + label] == 9
    assert changed['plateau_http_requests_total{class="4"}'] == 1
