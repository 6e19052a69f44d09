"""Claude Code, the program in the wheel of claude-agent-sdk. Its first prompt has more tokens than the
context of the starter model. CLAUDE_CODE_EXTRA_BODY forces tools, and makes a stream endless."""

import importlib.util
import json
import pathlib

from sdk import ENDLESS, FOREVER, LONG, MKDIR, Order

PACKAGE = "claude-agent-sdk"
MODELS = ["canary"]
OVERFLOW = "Prompt is too long"
TOOL = ("Read", "file_path")
WINDOW = 30720
LAUNCH = ("claude", {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "300", "CLAUDE_CODE_EXTRA_BODY": '{"temperature": 0}', "DISABLE_AUTOUPDATER": "1"})


def command(*words):
    spec = importlib.util.find_spec("claude_agent_sdk")
    program = pathlib.Path(spec.submodule_search_locations[0]) / "_bundled/claude"
    return program, "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages", *words


def env(at, more=None, window=WINDOW, tokens=300):
    """Without a limit, a small model that repeats itself fills the context."""
    return dict(ANTHROPIC_BASE_URL=at.url, ANTHROPIC_AUTH_TOKEN=at.key, ANTHROPIC_MODEL=at.model,
                ANTHROPIC_DEFAULT_OPUS_MODEL=at.model, ANTHROPIC_DEFAULT_SONNET_MODEL=at.model,
                ANTHROPIC_DEFAULT_HAIKU_MODEL=at.model, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
                CLAUDE_CODE_MAX_CONTEXT_TOKENS=str(window), CLAUDE_CODE_MAX_OUTPUT_TOKENS=str(tokens),
                CLAUDE_CODE_EXTRA_BODY=json.dumps({"temperature": 0, **(more or {})}), DISABLE_AUTOUPDATER="1")


def said(at, *words, text=MKDIR, status=(0,), **options):
    return [json.loads(line) for line in at.run(*command(*words), text=text, status=status, env=env(at, **options)).splitlines()]


def hello(at):
    *_, last = said(at)
    assert last["type"] == "result" and not last["is_error"]
    return last["result"]


def stream(at):
    events = [s["event"] for s in said(at) if s["type"] == "stream_event"]
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    return [d.get("text") or d["thinking"] for d in deltas if "text" in d or "thinking" in d]


def tools(at):
    """It would go on after the result, so one turn is its limit, which is an error of its own."""
    lines = said(at, "--max-turns", "1", status=(0, 1), more={"tool_choice": {"type": "tool", "name": TOOL[0]}})
    blocks = [b for s in lines if s["type"] == "assistant" for b in s["message"]["content"]]
    call = next(b for b in blocks if b["type"] == "tool_use")
    return call["name"], call["input"]


def structured(at):
    schema = json.dumps(Order.model_json_schema())
    *_, last = said(at, "--json-schema", schema, more={"tool_choice": {"type": "tool", "name": "StructuredOutput"}})
    return Order.model_validate(last["structured_output"])


def overflow(at):
    """It believes in a larger context here, so the server says so."""
    *_, last = said(at, text=LONG, status=(1,), window=1_000_000)
    return last["result"]


def cancel(at):
    at.leave(*command(), text=MKDIR, env=env(at, FOREVER, tokens=ENDLESS), ready=lambda output: "content_block_delta" in output)
