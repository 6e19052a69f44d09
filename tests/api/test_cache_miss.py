"""Why a turn found less in the prefix cache than the turn before it could have left: agent turns with planted
changes."""

import pytest

from conftest import serving
from test_cache import clear
from test_later_tools import begun, later, offered

NAMES = ["search", "read", "write"]


@pytest.fixture(scope="module")
def cached():
    with serving("--host-cache", "256M") as s:
        yield s


def turn(server, messages, tools=None, **fields):
    """Why the turn found little; None: it did not."""
    body = {"model": "canary", "messages": messages, "max_tokens": 2, **fields}
    reply = server.http.post("/v1/chat/completions", json=body | ({"tools": tools} if tools else {}))
    assert reply.status_code == 200, reply.text
    return reply.headers.get("x-cache-miss")


def test_turns_that_grow_miss_nothing(cached):
    clear(cached)
    messages = begun("First?")
    for i in range(4):
        assert turn(cached, messages, offered(*NAMES), stream=i % 2 == 1) is None
        messages = later(messages, f"And {i}?")
    cached.says("cache_miss=- ")


LONG = " Some words that fill a page of the cache." * 20


@pytest.mark.parametrize("index, why", [(0, "system"), (1, "none"), (2, "messages[2]"), (3, "messages[3]"), (5, None)])
def test_a_planted_change_has_its_name(cached, index, why):
    """Another first message of the user is another conversation. The last message is new in each turn."""
    clear(cached)
    second = later(begun("What is planted?" + LONG), "Where?" + LONG)
    turn(cached, second, offered(*NAMES))
    third = later(second, "When?")
    third[index] = {**third[index], "content": "No. " + third[index]["content"]}
    assert turn(cached, third, offered(*NAMES)) == (None if why == "none" else why)


def test_tools_that_are_all_others_are_named(cached):
    first = begun("Which tools?")
    assert turn(cached, first, offered(*NAMES)) is None
    assert turn(cached, later(first, "Now?"), offered("lamp", "switch", "read")) == "tools[0]"
    cached.says("cache_miss=tools[0]")


def test_a_cleared_cache_is_named(cached):
    first = begun("Is it gone?")
    turn(cached, first, offered(*NAMES))
    clear(cached)
    assert turn(cached, later(first, "Now?"), offered(*NAMES)) == "evicted"
    assert turn(cached, later(first, "Now?", "Still?"), offered(*NAMES), stream=True) is None


def test_a_rendering_of_the_server_is_named(cached):
    """The client's parts are the same, and other arguments of the template change the text before them."""
    first = [{"role": "user", "content": "Who thinks?" + LONG}]
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    called = [*first, {"role": "assistant", "reasoning_content": "I read." + LONG, "content": "", "tool_calls": [call]},
              {"role": "tool", "tool_call_id": "c1", "content": "Nothing." + LONG}]
    turn(cached, called, offered(*NAMES))
    # The template drops the reasoning of earlier tasks.
    assert turn(cached, later(called, "So?"), offered(*NAMES)) == "rendering"


def test_every_dialect_has_the_header(cached):
    def ask(path, system, **body):
        return cached.http.post(path, json={"model": "canary", **body, **system}).headers.get("x-cache-miss")

    text = begun("")[0]["content"]
    for path, name, body in (("/v1/messages", "system", {"messages": begun("Say it.")[1:], "max_tokens": 2}),
                             ("/v1/responses", "instructions", {"input": "Say it!", "max_output_tokens": 16, "store": False})):
        assert ask(path, {name: text}, **body) is None
        assert ask(path, {name: f"{path} {text}"}, **body) == "system"
