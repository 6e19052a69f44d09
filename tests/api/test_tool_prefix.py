"""Two turns of a conversation around each change of its tools and each compaction: the second one finds what
it would find without the change, in every dialect, with a hybrid and a dense model, also after a restart. Its
reply is that of a server without a prefix cache."""

import pytest

from conftest import FEW_PAGES, MODEL, Server, prompt_tokens
from test_cache import clear
from test_compaction import NOW, TRIGGER, summary
from test_ssd import serving_from, wait_written
from test_later_tools import NAMES, dense, offered
from test_tool_changes import found_by_search, function, tool

# Beside other tests a read from SSD may take as long as computing: then the server computes, as it should.
pytestmark = pytest.mark.alone

SYSTEM = "You are a careful agent. " + "Read the manual page before you use a command, and say what you found. " * 60
MODELS = ("canary", "dense")
CALL = {"role": "assistant", "content": "Done."}
EARLIER = [m for i in range(3) for m in (CALL, {"role": "user", "content": f"And in folder {i}? " + "Say what each is for. " * 10})]


class Kept(Server):
    """The bundled model, which is hybrid, and a dense one."""

    cache = "256M"

    def arguments(self):
        return [str(MODEL), str(self.dense), FEW_PAGES, "--host-cache", self.cache]


class Uncached(Kept):
    cache = "0"


# ---- dialects: how a turn is sent, and what its reply says ----


def chats(model, messages, tools):
    return "/v1/chat/completions", {"model": model, "max_tokens": 8, "messages": [{"role": "system", "content": SYSTEM}, *messages]}, tools


def messages(model, turn, tools):
    return "/v1/messages", {"model": model, "max_tokens": 8, "system": SYSTEM, "messages": turn}, tools


def responses(model, items, tools):
    return "/v1/responses", {"model": model, "max_output_tokens": 8, "instructions": SYSTEM, "input": items, "store": False}, tools


def without_id(item):
    if item["type"] == "compaction":
        return summary(item)
    return {k: v for k, v in item.items() if k not in ("id", "call_id")}


def send(server, dialect, model, turn, tools, **fields):
    """The tokens that were found, and all tokens of the prompt with the reply without ids."""
    path, body, tools = dialect(server.names[model], turn, tools)
    reply = server.http.post(path, json={**body, "temperature": 0, **fields} | ({} if tools is None else {"tools": tools}))
    assert reply.status_code == 200, reply.text
    body, usage = reply.json(), reply.json()["usage"]
    if dialect is messages:
        return usage["cache_read_input_tokens"], (prompt_tokens(usage), body["content"])
    if dialect is responses:
        return usage["input_tokens_details"]["cached_tokens"], (usage["input_tokens"], [without_id(i) for i in body["output"]])
    message = body["choices"][0]["message"]
    calls = [call["function"] for call in message.pop("tool_calls", [])]
    return usage["prompt_tokens_details"]["cached_tokens"], (usage["prompt_tokens"], message, calls)


# ---- changes: the second turn's messages and tools; the messages of its control; more fields ----

MAKE = {chats: lambda n: offered(n)[0], messages: tool, responses: function}


def again(first, *more):
    return [*first, CALL, {"role": "user", "content": "And in the folder above?"}, *more]


def listed(change):
    """The client's list is another one."""
    def turns(dialect, first):
        return again(first), change([MAKE[dialect](n) for n in NAMES], MAKE[dialect]("weather")), again(first), {}
    return turns


def searched(dialect, first):
    if dialect is messages:
        found, named = found_by_search("weather"), found_by_search("weather")
        named[1]["content"][0]["content"] = "weather"
        return [*first, *found], [tool("weather", defer_loading=True), *map(tool, NAMES)], [*first, *named], {}
    call = {"type": "tool_search_call", "call_id": "s1", "execution": "client", "status": "completed", "arguments": {"query": "weather"}}
    result = {"type": "tool_search_output", "call_id": "s1", "execution": "client", "status": "completed"}
    return ([*first, call, {**result, "tools": [function("weather")]}], [*map(function, NAMES), {"type": "tool_search", "execution": "client"}],
            [*first, call, {**result, "tools": []}], {})


def placed(dialect, first):
    """A message or an item of its own."""
    if dialect is responses:
        item = {"type": "additional_tools", "role": "developer", "tools": [function("weather")]}
        return again(first, item), [*map(function, NAMES)], again(first), {}
    change = {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "weather"}}]}
    return again(first, change), [*map(tool, NAMES), tool("weather", defer_loading=True)], again(first), {}


def taken(dialect, first):
    change = {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "read"}}]}
    return again(first, change), [*map(tool, NAMES)], again(first), {}


def compacted(dialect, first):
    """By the server. Its reasoning takes a part of these tokens."""
    tools = [MAKE[dialect](n) for n in NAMES]
    if dialect is messages:
        return again(first), tools, again(first), {**NOW, "max_tokens": 24}
    return again(first, TRIGGER), tools, again(first), {"max_output_tokens": 24}


LISTS = {
    "added": (0.99, listed(lambda tools, new: [new, *tools])),
    "removed": (0.99, listed(lambda tools, new: tools[:1] + tools[2:])),
    "reordered": (1, listed(lambda tools, new: [{k: t[k] for k in reversed(t)} for t in reversed(tools)])),
    "summary": (0.95, listed(lambda tools, new: None)),
}
BOTH = LISTS | {"search": (0.99, searched), "compaction": (0.95, compacted)}
CHANGES = {chats: LISTS, messages: BOTH | {"addition": (0.99, placed), "removal": (0.99, taken)}, responses: BOTH | {"items": (0.99, placed)}}
CASES = [(d, m, name) for d in CHANGES for m in MODELS for name in CHANGES[d]]


def first_of(dialect, model, name, kind):
    """Messages that the server has answered: a conversation, if it is to be compacted."""
    first = {"role": "user", "content": f"Which files are there? ({dialect.__name__}, {model}, {name}, {kind})"}
    return [first, *(EARLIER if name in ("summary", "compaction") else [])]


def first_tools(dialect, name):
    extra = {"search": [{"type": "tool_search", "execution": "client"}] if dialect is responses else [],
             "addition": [tool("weather", defer_loading=True)]}
    return [MAKE[dialect](n) for n in NAMES] + extra.get(name, [])


def begin(server, kinds=("change", "control")):
    for dialect, model, name in CASES:
        for kind in kinds:
            send(server, dialect, model, first_of(dialect, model, name, kind), first_tools(dialect, name))


def changed(server, dialect, model, name):
    turn, tools, _, fields = CHANGES[dialect][name][1](dialect, first_of(dialect, model, name, "change"))
    return send(server, dialect, model, turn, tools, **fields)


def run(server):
    """{case: (found, found without the change, reply)}, of second turns."""
    table = {}
    for dialect, model, name in CASES:
        found, reply = changed(server, dialect, model, name)
        _, _, turn, _ = CHANGES[dialect][name][1](dialect, first_of(dialect, model, name, "control"))
        could, _ = send(server, dialect, model, turn, first_tools(dialect, name))
        table[dialect, model, name] = found, could, reply
    return table


def lost(table):
    """The cases that found less than they had to: {case: (found, could)}."""
    return {(d.__name__, m, n): (found, could) for (d, m, n), (found, could, _) in table.items()
            if could < 1000 or found < CHANGES[d][n][0] * could}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The table of a server that was started again, its table of conversations that it began itself, and the
    replies of a server without a prefix cache, which knows the same conversations."""
    Kept.dense, ssd, other = dense(tmp_path_factory.mktemp("models")), tmp_path_factory.mktemp("ssd"), tmp_path_factory.mktemp("other")
    Kept.names = {"canary": "canary", "dense": Kept.dense.name}
    with serving_from(ssd, kind=Kept) as s:
        begin(s)
        wait_written(s, 1)
    (other / "conversations").write_bytes((ssd / "conversations").read_bytes())
    with serving_from(ssd, kind=Kept) as s:
        again = run(s)
        clear(s)
        assert s.http.post("/api/ssd-cache/clear").status_code == 200
        begin(s)
        before = run(s)
    with serving_from(other, kind=Uncached) as s:
        return before, again, {case: changed(s, *case) for case in CASES}


def test_a_change_leaves_the_prefix(tables):
    assert not lost(tables[0])


def test_a_change_leaves_the_prefix_over_a_restart(tables):
    assert not lost(tables[1])


def test_replies_are_those_without_a_prefix_cache(tables):
    assert len(tables[2]) == len(CASES) and {found for found, _ in tables[2].values()} == {0}
    for case, (_, reply) in tables[2].items():
        assert tables[0][case][2] == tables[1][case][2] == reply, case
