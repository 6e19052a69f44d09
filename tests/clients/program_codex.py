"""Codex, the program in the wheel of openai-codex, whose own class reads its streams. Its first prompt has
more tokens than the context of the starter model."""

import importlib.util
import json
import pathlib
import sys

from sdk import LONG, MKDIR, Order

PACKAGE = "openai-codex"
MODULE = "codex_cli_bin"
MODELS = ["canary"]
OVERFLOW = "ran out of room in the model's context window"
LACKS = {"tools": "its tool_choice is auto, and the bundled model calls none of its tools by itself"}
LAUNCH = ("codex", {})
STREAM = '''
import json
import sys

from openai_codex import Codex

with Codex() as codex:
    events = codex.thread_start().turn(sys.stdin.read()).stream()
    print(json.dumps([e.payload.delta for e in events if e.method == "item/agentMessage/delta"]))
'''


def home(at):
    home = at.home / ".codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f"""model = "{at.model}"
model_provider = "plateau"
model_context_window = 30720
[model_providers.plateau]
name = "Plateau"
base_url = "{at.base}"
env_key = "LOCAL_KEY"
wire_api = "responses"
""")
    return home


def command(*words):
    program = pathlib.Path(importlib.util.find_spec(MODULE).submodule_search_locations[0]) / "bin/codex"
    return program, "exec", "--skip-git-repo-check", "--json", *words, "-"


def env(at):
    return dict(LOCAL_KEY=at.key, CODEX_HOME=str(home(at)))


def said(at, *words, text=MKDIR, status=(0,)):
    lines = at.run(*command(*words), text=text, status=status, env=env(at)).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def message(lines):
    assert not [s for s in lines if s["type"] in ("error", "turn.failed")], lines
    return [s["item"]["text"] for s in lines if s["type"] == "item.completed" and s["item"]["type"] == "agent_message"][-1]


def hello(at):
    return message(said(at))


def stream(at):
    return json.loads(at.run(sys.executable, "-c", STREAM, text=MKDIR, env=env(at)).splitlines()[-1])


def structured(at):
    (at.home / "order.json").write_text(json.dumps({**Order.model_json_schema(), "additionalProperties": False}))
    return Order.model_validate_json(message(said(at, "--output-schema", "order.json")))


def overflow(at):
    *_, last = said(at, text=LONG, status=(1,))
    assert last["type"] == "turn.failed"
    return last["error"]["message"]


def cancel(at):
    """During the prompt, which is long enough."""
    at.leave(*command(), text=MKDIR + " word" * 5000, env=env(at))
