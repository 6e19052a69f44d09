"""The gate `agents` without a server: requests, replies and judgement."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/gates"))

import agent_clients
import agent_shapes
import gate_agents


def made(turns=30, seed="a", tools=5):
    return agent_shapes.shape(seed, agent_shapes.head_of(0.1, tools), turns, 6000, 100, 0.8)


def agent(kind, shape=None):
    return agent_clients.KINDS[kind](1, shape or made(), "m", "small", True)


def test_a_seed_makes_one_session_and_all_share_their_head():
    one, same, other = made(), made(), made(seed="b")
    assert one.turns == same.turns and one.call() == same.call()
    assert one.turns != other.turns and (one.tools, one.system) == (other.tools, other.system)
    assert [t.number for t in one.turns if t.text] == [0, 25] and all(bool(t.text) != bool(t.result) for t in one.turns)
    assert any(t.image for t in one.turns) and any(t.interrupted for t in one.turns)


def test_forty_tools_have_large_schemas_and_calls_that_fit_them():
    tools, system = agent_shapes.head_of(1)
    assert len({name for name, _, _ in tools}) == 40 and len(json.dumps(tools)) > 60000 and len(system) > 8000
    shape = agent_shapes.shape("a", (tools, system), 2, 6000, 100, 0.8)
    for _ in range(100):
        name, arguments = shape.call()
        schema = next(s for n, _, s in tools if n == name)
        assert set(schema["required"]) <= set(arguments) <= set(schema["properties"])


def replied(kind):
    """An agent after its first turn: the model said something and called nothing."""
    a = agent(kind)
    a.turn(a.shape.turns[0])
    blocks = {
        "chat": ["Hm."],
        "messages": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "So."}],
        "responses": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]}],
    }
    a.took(agent_clients.Reply(text="So.", blocks=blocks["responses" if kind == "stored" else kind], id="r1"), True)
    return a


def test_a_reply_goes_back_as_it_came_with_a_call_behind_it():
    chat = replied("chat").messages[-1]
    assert (chat["content"], chat["reasoning_content"], len(chat["tool_calls"])) == ("So.", "Hm.", 1)
    blocks = replied("messages").messages[-1]["content"]
    assert [b["type"] for b in blocks] == ["thinking", "text", "tool_use"] and blocks[0]["signature"] == "s"
    assert [i["type"] for i in replied("responses").items[-2:]] in (["message", "function_call"], ["message", "custom_tool_call"])


def test_the_billing_line_differs_and_the_rest_repeats():
    a = replied("messages")
    first = a.body()
    a.turn(a.shape.turns[1])
    second = a.body()
    assert first["system"][0] != second["system"][0] and first["system"][1:] == second["system"][1:]
    assert json.dumps(second["tools"]) == json.dumps(first["tools"])
    assert second["messages"][-1]["content"][-1]["cache_control"] and "cache_control" not in json.dumps(a.messages)


def test_a_stored_response_stands_for_what_was_before():
    a = replied("stored")
    a.turn(a.shape.turns[1])
    body = a.body()
    assert body["previous_response_id"] == "r1" and body["store"] and len(body["input"]) == 2
    a.previous, a.known = None, 0
    assert "previous_response_id" not in a.body() and len(a.body()["input"]) == len(a.items)


class Told:
    def __init__(self):
        self.figures, self.broken = {}, []

    def figure(self, name, *_):
        self.figures[name] = True

    def must(self, what, holds):
        self.broken += [] if holds else [what]


def rows(**changed):
    """Five turns of which one differs: the fourth brings a message of the user."""
    whole = [gate_agents.Row("chat", False, n, n == 3, 1000 + 20 * n, 990 + 20 * n, 10, n and 992 + 20 * n, 1.0) for n in range(5)]
    for name, value in changed.items():
        setattr(whole[3 if name == "findable" else 2], name, value)
    return whole


@pytest.mark.parametrize(
    "changed, drops, words",
    [
        ({}, False, []),
        ({"cached": 500}, False, ["could be found", "whole prompt"]),
        ({"findable": 1000}, True, []),
        ({"prompt": 1200}, True, ["whole prompt"]),
    ],
)
def test_a_turn_that_finds_too_little_is_told(changed, drops, words):
    told = Told()
    gate_agents.judge_cache(told, rows(**changed), "alone", {False: drops, True: drops})
    assert len(told.broken) == len(words) and all(word in what for word, what in zip(words, told.broken))
    assert ("alone_chat_new_task" in told.figures) == drops
