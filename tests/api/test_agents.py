"""A pool of agents: each has a place for its prefix, and one agent too many is refused at once."""

import json
import subprocess

import pytest

from conftest import MODEL, PROGRAM, Server, serving, until
from test_admin_cli import run
from test_leases import CHAT, LONG, MESSAGES, RESPONSES, SESSIONS, cached_of, state, wished
from test_listeners import socket_of

PLACES = 3


@pytest.fixture(scope="module")
def pool():
    """The cache beside the places holds about two of these prompts."""
    with serving("--host-cache", "12M", "--agents", str(PLACES), "--agent-context", "2048", "--agent-idle", "300") as s:
        yield s
        free(s, again=True)


def agents(server):
    return server.http.get("/api/status").json()["models"][0]["agents"]


def ask(server, path, text, **more):
    return server.http.post(path, json={"model": "canary", **wished(path, text, **more)})


def named(path, name):
    return {"metadata": {"user_id": name}} if path == MESSAGES else {"prompt_cache_key": name}


def press(server):
    """Prompts without a conversation: of no agent."""
    for i in range(12):
        reply = server.http.post("/v1/completions", json={"model": "canary", "prompt": f"{i} {i} other. {LONG * 2}", "max_tokens": 1})
        assert reply.status_code == 200, reply.text


def free(server, again=False):
    """Frees all places, which no request does: the model goes, and the next request loads it, or `again`."""
    assert server.http.post("/v1/models/canary/unload").status_code in (200, 202)
    until(lambda: server.http.get("/api/status").json()["models"][0]["state"] == "unloaded")
    assert not again or server.http.post("/v1/models/canary/load").status_code == 200


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("stream", [False, True])
def test_the_agent_after_the_last_place_is_refused(pool, path, stream):
    free(pool)
    for i in range(PLACES):
        assert ask(pool, path, f"{i} {LONG}", **named(path, f"agent {i}"), stream=stream).status_code == 200
    refused = ask(pool, path, LONG, **named(path, "another"), stream=stream)
    assert refused.status_code == (529 if path == MESSAGES else 503), refused.text
    assert 290 <= int(refused.headers["retry-after"]) <= 300
    error = refused.json()["error"]
    assert "All 3 places of agents on canary are taken (--agents)" in error["message"] and "2048 tokens" in error["message"]
    assert error["type"] == ("overloaded_error" if path == MESSAGES else "server_error")
    assert path == MESSAGES or error["code"] == "agents_full"
    assert agents(pool)["active"] == PLACES and agents(pool)["refused"] == 1
    # Agents with a place go on, and requests without an agent take none.
    assert ask(pool, path, f"1 {LONG} and on", **named(path, "agent 1"), stream=stream).status_code == 200
    press(pool)
    assert agents(pool)["active"] == PLACES and agents(pool)["running"] == 0


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_pressure_leaves_the_prefix_of_an_agent_alone(pool, path):
    free(pool)
    text = f"{path} {LONG}"
    whole = ask(pool, path, text, **named(path, "kept")).json()["usage"]
    tokens = whole.get("prompt_tokens") or whole["input_tokens"]
    for _ in range(3):
        press(pool)
        assert cached_of(ask(pool, path, text, **named(path, "kept"))) >= tokens - 64
    assert pool.http.post("/api/hot-cache/clear").status_code == 200
    assert cached_of(ask(pool, path, text, **named(path, "kept"))) >= tokens - 64
    press(pool)
    assert agents(pool)["tokens"] >= tokens - 64
    assert "\nagents        1 of 3 places of canary, 0 running, " in run("status", "--socket", socket_of(pool))[1]


def test_the_first_message_names_an_agent_without_a_key(pool):
    free(pool)
    for i in range(2):
        for more in ("", "More."):
            messages = [{"role": "system", "content": "A system."}, {"role": "user", "content": f"Task {i}. {LONG}"}]
            messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": more}] if more else []
            assert pool.http.post(CHAT, json={"model": "canary", "messages": messages, "max_tokens": 1}).status_code == 200
    assert agents(pool)["active"] == 2
    # Messages that prepare a prefix, and counts of tokens, take no place.
    body = {"model": "canary", "messages": [{"role": "user", "content": f"Other. {LONG}"}]}
    assert pool.http.post(MESSAGES, json={**body, "max_tokens": 0}).status_code == 200
    assert pool.http.post(MESSAGES + "/count_tokens", json=body).status_code == 200
    assert agents(pool)["active"] == 2


def test_a_session_is_an_agent_and_its_end_frees_the_place():
    with serving("--host-cache", "64M", "--agents", str(PLACES), "--agent-context", "2048", "--agent-idle", "300") as s:
        def open_session(i):
            return s.http.post(SESSIONS, json={"model": "canary", "messages": [{"role": "user", "content": f"{i} {LONG}"}], "ttl": "1h"})

        ids = [open_session(i).json()["id"] for i in range(PLACES)]
        refused = open_session(PLACES)
        assert refused.status_code == 507 and "places of agents" in refused.json()["error"]["message"]
        assert 3500 < int(refused.headers["retry-after"]) <= 3600
        assert ask(s, CHAT, f"1 {LONG}", session=ids[1]).status_code == 200
        assert s.http.delete(f"{SESSIONS}/{ids[0]}").status_code == 200
        until(lambda: agents(s)["active"] == PLACES - 1)
        assert ask(s, CHAT, LONG, prompt_cache_key="new").status_code == 200
        for name in ids[1:]:
            assert s.http.delete(f"{SESSIONS}/{name}").status_code == 200
        until(lambda: agents(s)["active"] == 1)
        free(s, again=True)


def test_keys_have_agents_of_their_own_and_idle_ones_go():
    options = ("--host-cache", "64M", "--agents", "2", "--agent-context", "1024", "--agent-idle", "1", "--api-key", "ann", "--api-key", "bob", "--admin-key", "root")
    with serving(*options, key="root") as s:
        def say(key, **more):
            headers = {"Authorization": f"Bearer {key}"}
            return s.http.post(CHAT, json={"model": "canary", **wished(CHAT, LONG, **more)}, headers=headers).status_code

        assert say("ann", prompt_cache_key="same") == 200
        assert say("bob", prompt_cache_key="same") == 200
        assert agents(s)["active"] == 2
        until(lambda: agents(s)["active"] == 0)
        assert say("ann", prompt_cache_key="third") == 200
        metrics = [line for line in s.http.get("/metrics").text.splitlines() if line.startswith("plateau_agents")]
        assert 'plateau_agents_total{model_name="canary"} 3' in metrics and 'plateau_agents_limit{model_name="canary"} 2' in metrics
        until(lambda: agents(s)["active"] == 0)


def test_loads_and_idle_time_leave_a_model_with_agents(tmp_path):
    (tmp_path / "other").symlink_to(MODEL)
    (tmp_path / "settings.toml").write_text('[model canary]\nagents = 1\nagent-context = 256\nagent-idle = 6\n')
    s = Server("--model-dir", tmp_path, "--max-model-len", 512, "--memory-limit", "190M", "--ttl", 1, "--config", tmp_path / "settings.toml")
    assert ask(s, CHAT, LONG[:200]).status_code == 200
    reply = s.http.post(CHAT, json={"model": "other", **wished(CHAT, LONG[:200])})
    assert reply.status_code == 507, reply.text
    until(lambda: s.status()["models"][0]["idle_seconds"] > 3)
    assert state(s, "canary") == "ready"
    until(lambda: state(s, "canary") == "unloaded")
    assert s.stop() == 0, "".join(s.lines[-20:])


def test_the_plan_has_the_pool():
    def plan(*options):
        command = [PROGRAM, "plan", MODEL, "--memory-limit", "2G", "--json", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    model = json.loads(plan("--agents", "8", "--agent-context", "4096").stdout)["models"][0]
    assert (model["agents"], model["agent_context"]) == (8, 4096)
    assert model["agents_bytes"] >= 8 * 128 * model["page_bytes"]
    whole = json.loads(plan("--agents", "8").stdout)["models"][0]
    assert whole["agent_context"] == whole["max_model_len"] + whole["compaction_reserve"]
    refused = plan("--agents", "64", "--max-model-len", "32768")
    assert refused.returncode != 0
    assert "The pages of 64 agents of 32768 tokens take" in refused.stderr and "would fit" in refused.stderr
    none = plan("--agents", "8", "--host-cache", "0")
    assert none.returncode != 0 and "--host-cache is 0" in none.stderr
