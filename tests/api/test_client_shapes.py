"""Shapes of requests of Claude Code 2.1 and Codex 0.163, with made-up texts: each type is done, passed on as
text, left out and named, or refused in words. So are types that these clients do not have yet."""

import re

import pytest

from conftest import events, refused
from test_later_tools import SYSTEM
from test_tool_changes import tool

BETAS = ("claude-code-20250219,interleaved-thinking-2025-05-14,mid-conversation-tool-changes-2026-07-01,inline-tools-2026-09-15,"
         "context-management-2025-06-27,compact-2026-01-12,computer-use-2026-08-01,invented-2027-01-01")
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def claude_code(messages, **more):
    """A request of the client's main loop."""
    return {"model": "canary", "max_tokens": 8, "temperature": 0, "metadata": {"user_id": "user_1"},
            "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332;"}, {"type": "text", "text": SYSTEM, **CACHED}],
            "tools": [{**tool("Bash"), "eager_input_streaming": True}, {**tool("Grep"), "defer_loading": True},
                      {"type": "computer_toolset_20260801", "display_width_px": 800, "display_height_px": 600}],
            "thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}, "messages": messages, **more}


def said(*blocks, role="user"):
    return {"role": role, "content": list(blocks)}


TEXT = {"type": "text", "text": "What is in this folder?", **CACHED}
CALL = said({"type": "thinking", "thinking": "I look.", "signature": "EsQBCkYIBRgC"}, {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"query": "ls"}},
            role="assistant")
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a.c"}, {"type": "tool_reference", "tool_name": "Grep"}]}
REFERENCE = {"type": "tool_reference", "name": "Grep"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_regex", "input": {"pattern": "x"}}

CLAUDE_CODE = {
    "a first question": ([said(TEXT)], {}, ""),
    "a result with a found tool": ([said(TEXT), CALL, said(RESULT)], {}, ""),
    "a tool that is added": ([said(TEXT), CALL, said(RESULT), said({"type": "tool_addition", "tool": REFERENCE}, role="system"), said(TEXT)], {}, ""),
    "a tool that is defined": ([said(TEXT), said({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("Later")}}, role="system"),
                                said(TEXT)], {}, ""),
    "a tool that is removed": ([said(TEXT), said({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Bash"}}, role="system"), said(TEXT)], {}, ""),
    "a compaction": ([said({"type": "compaction", "content": "A folder was listed.", "encrypted_content": "x", "signature": "y", "tool_changes": []},
                           role="assistant"), said(TEXT)], {}, ""),
    "a compaction that failed": ([said(TEXT), said({"type": "compaction", "content": None}, role="assistant"), said(TEXT)], {}, ""),
    "edits of the context": ([said(TEXT)], {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, "context_management"),
    "tools of servers": ([said(TEXT), said(SEARCH, {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {}}, role="assistant"), said(TEXT)],
                         {}, "messages.server_tool_use, messages.tool_search_tool_result"),
    "blocks of a later version": ([said(TEXT, {"type": "hologram", "text": "a dog"}), said({"type": "dream"}, {"type": "text", "text": "Yes."}, role="assistant"),
                                   said({"type": "omen"}, role="system"), said(TEXT)], {}, "messages.hologram, messages.dream, messages.omen"),
    "fields and tools of a later version": ([said(TEXT)], {"tools": [tool("Bash"), {"type": "browser_toolset_20270101"}], "mood": {"type": "calm"}},
                                            "mood, tools.browser_toolset_20270101"),
}


@pytest.mark.parametrize("name", CLAUDE_CODE)
def test_claude_code(server, name):
    messages, more, ignored = CLAUDE_CODE[name]
    body = claude_code(messages, **more)
    for stream in False, True:
        reply = server.http.post("/v1/messages?beta=true", json=body | {"stream": stream}, headers={"anthropic-beta": BETAS, "anthropic-version": "2023-06-01"})
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-ignored-fields"] == ", ".join(filter(None, [ignored, "anthropic-beta.invented-2027-01-01"]))
    count = server.http.post("/v1/messages/count_tokens?beta=true", json=body, headers={"anthropic-beta": BETAS})
    assert count.status_code == 200 and count.json()["input_tokens"] > 0


def test_claude_codes_own_compaction(server):
    """Without its tools: they leave the prompt, and nothing is wrong with the calls before."""
    prompt = {"type": "text", "text": "Your task is to create a detailed summary of the conversation so far."}
    body = claude_code([said(TEXT), CALL, said(RESULT), said({"type": "text", "text": "One file."}, role="assistant"), said(prompt)])
    del body["tools"]
    body["messages"][2] = said({**RESULT, "content": "a.c"})
    assert server.http.post("/v1/messages", json=body).status_code == 200


# ---- Codex ----

def codex(items, **more):
    return {"model": "canary", "instructions": SYSTEM, "input": items, "stream": True, "store": False, "parallel_tool_calls": True, "tool_choice": "auto",
            "tools": [{"type": "function", "name": "shell", "description": "Runs.", "strict": False, "parameters": tool("x")["input_schema"]},
                      {"type": "custom", "name": "apply_patch", "description": "Edits.", "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "a"+'}},
                      {"type": "namespace", "name": "mcp", "description": "More.", "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}]},
                      {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {"type": "object", "properties": {}}},
                      {"type": "web_search", "external_web_access": False}],
            "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "thread-1",
            "client_metadata": {"x-codex-installation-id": "1"}, "text": {"verbosity": "low"}, "max_output_tokens": 8, "temperature": 0, **more}


def item(role, text):
    return {"type": "message", "role": role, "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]}


START = [item("developer", "Sandbox: read-only."), item("user", "What is in this folder?")]
SHELL = [{"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAAABforeign"},
         {"type": "function_call", "name": "shell", "arguments": '{"query":"ls"}', "call_id": "call_1"},
         {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "a.c"}]}]
FOUND = {"type": "function", "name": "forecast", "description": "Weather.", "parameters": {"type": "object", "properties": {}}}

CODEX = {
    "a first question": (START, ""),
    "a call": (START + SHELL, ""),
    "a patch": (START + [{"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "aa"},
                         {"type": "custom_tool_call_output", "call_id": "c", "output": "Done."}], ""),
    "a search for tools": (START + [{"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "weather"}},
                                    {"type": "tool_search_output", "call_id": "s", "execution": "client", "status": "completed", "tools": [FOUND]}], ""),
    "tools that came": (START + [{"type": "additional_tools", "tools": [FOUND]}, item("user", "Go on.")], ""),
    "a compaction": (START + SHELL + [{"type": "compaction_trigger"}], ""),
    "a compaction of another server": (START + [{"type": "compaction", "encrypted_content": "gAAAAABforeign"}, item("user", "Go on.")], "input.compaction"),
    "an older compaction": (START + [{"type": "compaction_summary", "encrypted_content": "gAAAAABforeign"}, item("user", "Go on.")], "input.compaction"),
    "items of a later version": (START + [{"type": "ghost_snapshot"}, {"type": "omen", "text": "x"}, item("user", "Go on.")], "input.ghost_snapshot, input.omen"),
    "a search of a server": (START + [{"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}, item("user", "Go on.")],
                             "input.web_search_call"),
}


@pytest.mark.parametrize("name", CODEX)
def test_codex(server, name):
    items, ignored = CODEX[name]
    reply = server.http.post("/v1/responses", json=codex(items), headers={"openai-beta": "responses=experimental", "originator": "codex_exec"})
    assert reply.status_code == 200 and "response.failed" not in reply.text, reply.text
    named = [n for n in reply.headers.get("x-ignored-fields", "").split(", ") if n.startswith("input.")]
    assert ", ".join(named) == ignored
    done = [line for line in reply.text.split("\n") if line.startswith("event: ")][-1]
    assert done in ("event: response.completed", "event: response.incomplete")
    if name == "a compaction":
        assert reply.text.count('"type":"response.output_item.done"') == 1 and done == "event: response.completed"


# ---- an overflow ----

LONG = "word " * 40000
# Patterns of agents for the error of a conversation that is too long. An agent compacts it then.
LIMIT = r"maximum context length is \d+ tokens"       # OpenCode, and LiteLLM, which Aider has
CLAUDE = r"prompt is too long: \d+ tokens > \d+ maximum"  # Claude Code, OpenCode
CODE = "context_length_exceeded"                      # OpenCode, Codex


@pytest.mark.parametrize("stream", [False, True])
def test_an_overflow_has_the_words_that_agents_look_for(server, stream):
    asked = [{"role": "user", "content": LONG}]
    for path, body in (("chat/completions", {"messages": asked}), ("completions", {"prompt": LONG}), ("responses", {"input": LONG, "store": False})):
        reply = server.post("/v1/" + path, stream=stream, **body)
        if path == "responses" and stream:  # Codex reads an event
            failed, = [e["response"] for e in events(reply.text) if e["type"] == "response.failed"]
            assert reply.status_code == 200 and failed["error"]["code"] == CODE and re.search(LIMIT, failed["error"]["message"])
        else:
            assert re.search(LIMIT, refused(reply, 400, CODE)["message"])
    reply = server.post("/v1/messages", stream=stream, max_tokens=9, messages=asked)
    assert reply.status_code == 400 and re.fullmatch(CLAUDE, reply.json()["error"]["message"])
