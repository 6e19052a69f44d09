"""Prefixes that are computed after their model's load: --warm."""

import contextlib
import json
import subprocess

import pytest

from conftest import FEW_PAGES, MODEL, PROGRAM, Server, until

LONG = "A prompt that is long enough for pages of its own. " * 12
CHAT = {"messages": [{"role": "system", "content": "Chat. " + LONG}, {"role": "user", "content": "Hello."}]}
SESSION = {"messages": [{"role": "user", "content": "Session. " + LONG}], "ttl": "10m"}
MESSAGES = {"system": "Messages. " + LONG, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 9,
            "cache_control": {"type": "ephemeral", "ttl": "1h"}}
RESPONSES = {"input": "Responses. " + LONG, "prompt_cache_options": {"ttl": "12h"}}
ROUTES = ["/v1/chat/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"]


@contextlib.contextmanager
def warming(*options, **more):
    """A server that keeps its caches, and ends well."""
    s = Server(FEW_PAGES, *options, **more)
    try:
        yield s
        assert s.stop() == 0, "".join(s.lines[-20:])
    finally:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()


def write(path, *bodies, **how):
    path.write_text("\n".join(json.dumps(b, **how) for b in bodies) + "\n")
    return path


def warmed(server, count):
    def all_are():
        """All lines of the file are warmed."""
        return sum("event=warmed" in line for line in list(server.lines)) == count

    until(all_are)
    return [dict(w.split("=", 1) for w in line.split() if "=" in w) for line in server.lines if "event=warmed" in line]


def cached(server, route, body, **more):
    reply = server.http.post(route, json={**body, "model": "canary", **more})
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    if "cache_read_input_tokens" in usage:
        return usage["cache_read_input_tokens"]
    return (usage.get("prompt_tokens_details") or usage["input_tokens_details"])["cached_tokens"]


def test_prefixes_are_there_after_each_load(tmp_path):
    file = write(tmp_path / "warm.jsonl", CHAT, SESSION, MESSAGES, RESPONSES)
    with warming("--warm", file) as s:
        for round in (1, 2):
            lines = warmed(s, 4 * round)[-4:]
            assert [int(x["line"]) for x in lines] == [1, 2, 3, 4]
            assert all(int(x["tokens"]) > 100 and int(x["bytes"]) > 0 for x in lines)
            assert int(lines[1]["session_tokens"]) > 100 and lines[1]["session"].startswith("sess_")
            assert int(lines[2]["wished_tokens"]) > 100 and int(lines[3]["wished_tokens"]) > 100
            session = s.http.get("/v1/sessions/" + lines[1]["session"]).json()
            assert session["tokens"] == int(lines[1]["session_tokens"])
            s.wait_idle()
            cache = s.status()["models"][0]["cache"]
            assert cache["sessions"] == 1 and cache["wishes"] == 2
            for line, route, body in zip(lines, ROUTES, [CHAT, {"messages": SESSION["messages"]}, MESSAGES, RESPONSES]):
                limit = {"max_output_tokens" if route == "/v1/responses" else "max_tokens": 1}
                assert cached(s, route, body, **limit) >= int(line["tokens"]) - 32, route
            if round == 1:
                reload(s)


def reload(server):
    server.wait_idle()
    assert server.http.post("/v1/models/canary/unload", json={"force": True}).status_code == 200
    assert server.http.post("/v1/models/canary/load").status_code == 200


def test_a_file_that_is_gone_does_not_end_the_others(tmp_path):
    gone, file = write(tmp_path / "gone.json", CHAT), write(tmp_path / "warm.json", RESPONSES)
    with warming("--warm", gone, "--warm", file) as s:
        warmed(s, 2)
        gone.unlink()
        reload(s)
        assert warmed(s, 3)[-1]["file"] == f'"{file}"'
        assert s.said("event=warm_failed") and s.said("gone.json: cannot be opened")


def test_a_section_names_the_files_of_its_model(tmp_path):
    file = write(tmp_path / "warm.json", {**CHAT, "model": "any other"}, indent=1)
    config = tmp_path / "plateau.conf"
    config.write_text(f"[model canary]\nwarm = {file}\n")
    with warming("--config", config) as s:
        assert warmed(s, 1)[0]["line"] == "1"


def test_a_prefix_belongs_to_the_clients_of_a_key(tmp_path):
    file, keys = write(tmp_path / "warm.json", CHAT), tmp_path / "keys"
    keys.write_text("alice sk-alice-0123456789\nbob sk-bob-0123456789\n")
    keys.chmod(0o600)
    with warming("--api-key-file", keys, "--warm", f"bob={file}", key="sk-bob-0123456789") as s:
        warmed(s, 1)
        assert cached(s, ROUTES[0], CHAT, max_tokens=1) > 100
        s.http.headers["Authorization"] = "Bearer sk-alice-0123456789"
        assert cached(s, ROUTES[0], CHAT, max_tokens=1) == 0
    assert "no API key is named carol" in refused("--api-key-file", keys, "--warm", f"carol={file}")
    assert "several API keys" in refused("--api-key-file", keys, "--warm", file)
    assert "no API keys" in refused("--warm", f"bob={file}")


def refused(*options):
    got = subprocess.run([PROGRAM, "serve", MODEL, "--port", "0", FEW_PAGES, *map(str, options)], text=True,
                         stderr=subprocess.PIPE, stdout=subprocess.PIPE, timeout=60)
    assert got.returncode == 1, got
    return got.stderr


@pytest.mark.parametrize("text, words", [
    ("", "the file has no request"),
    ('{"messages": [{"role": "user", "content": "x"}]}\n{"messages": 3}', "line 2: messages must be"),
    ('{"messages": ', "line 1: the JSON object that begins here has no end"),
    ('{"messages": x}', "line 1: The body is not valid JSON"),
    ('{"model": "none", "messages": [{"role": "user", "content": "x"}]}', 'line 1: The model "none" does not exist'),
    ("hello", "line 1: a request is a JSON object"),
])
def test_a_bad_file_is_refused_at_the_start(tmp_path, text, words):
    file = tmp_path / "warm.json"
    file.write_text(text)
    assert f"--warm {file}: {words}" in refused("--warm", file)


def test_a_prefix_that_does_not_fit_is_a_line_of_the_log(tmp_path):
    file = write(tmp_path / "warm.json", {**SESSION, "messages": [{"role": "user", "content": LONG * 20}]}, CHAT)
    with warming("--host-cache", "12M", "--warm", file) as s:
        warmed(s, 1)
        assert s.said("event=warm_failed") and s.said("The session needs ")


@pytest.mark.parametrize("unloads", [True, False])
def test_unloads_and_stops_do_not_wait(tmp_path, unloads):
    file = write(tmp_path / "warm.jsonl", *({"prompt": f"{i} {LONG * 8}"} for i in range(200)))
    with warming("--warm", file) as s:
        until(lambda: s.said("event=warmed"))
        if unloads:
            assert s.http.post("/v1/models/canary/unload").status_code in (200, 202)
            until(lambda: s.said("event=model_unloaded"), seconds=9)
