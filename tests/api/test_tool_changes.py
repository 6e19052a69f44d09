"""Tools that come and go within a conversation: the prefix cache has all tokens before the change. A reply is
the same with an empty cache."""

import pytest

from conftest import events, serving
from test_cache import clear

PAGE = 32
SYSTEM = "You are a careful agent. " + "Read the manual page before you use a command. " * 12
QUESTION = {"role": "user", "content": "Which tools are there for the weather?"}


@pytest.fixture(scope="module")
def cached():
    with serving("--host-cache", "256M") as s:
        clear(s)
        yield s


def tool(name, **more):
    schema = {"type": "object", "properties": {"query": {"type": "string", "description": f"What {name} looks for."}}}
    return {"name": name, "description": f"The tool {name}, which is one of many.", "input_schema": schema, **more}


def found_by_search(*names):
    """A call of the search and its result."""
    call = {"type": "tool_use", "id": "s1", "name": "search", "input": {"query": "weather"}}
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    return [{"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "s1", "content": references}]}]


def ask(server, messages, tools, **fields):
    body = {"model": "canary", "system": SYSTEM, "messages": messages, "tools": tools, "temperature": 0, "max_tokens": 8, **fields}
    reply = server.http.post("/v1/messages", json=body)
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"], reply.json()["content"]


def function(name, **more):
    own = tool(name)
    return {"type": "function", "name": name, "description": own["description"], "parameters": own["input_schema"], **more}


def respond(server, input, tools, **fields):
    """Asks through Responses; returns the output without ids."""
    body = {"model": "canary", "instructions": SYSTEM, "input": input, "tools": tools, "temperature": 0, "max_output_tokens": 8,
            "store": False, **fields}
    reply = server.http.post("/v1/responses", json=body)
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    output = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in reply.json()["output"]]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], output


def assert_kept(server, first, second, ask=ask):
    """The second request finds what the first one computed, but for its last page; its reply is that of an
    empty cache. Each is messages and tools."""
    clear(server)
    whole, found, _ = ask(server, *first)
    assert found == 0
    _, found, content = ask(server, *second)
    assert found >= (whole - 1) // PAGE * PAGE - PAGE, (found, whole)
    clear(server)
    _, found, same = ask(server, *second)
    assert found == 0 and same == content


BASE = [tool("search"), tool("read")]
LATER = [tool("weather", defer_loading=True), tool("forecast", defer_loading=True)]


def test_a_found_tool_leaves_the_prefix(cached):
    """Claude Code does this: the list has the found tools sorted in among the others."""
    turn = [QUESTION, *found_by_search("weather")]
    assert_kept(cached, ([QUESTION], BASE), (turn, [BASE[0], LATER[0], BASE[1]]))
    assert_kept(cached, (turn, [LATER[0], *BASE]), (turn + found_by_search("forecast", "weather"), [*BASE, *LATER]))


def test_tools_added_and_removed_by_the_system_leave_the_prefix(cached):
    change = {"role": "system", "content": [
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "weather"}},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("inline")}},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "read"}}]}
    tools = [*BASE, LATER[0]]
    turn = [QUESTION, {"role": "assistant", "content": "None."}, {"role": "user", "content": "And now?"}, change]
    assert_kept(cached, ([QUESTION], tools), (turn, tools))


def test_calls_are_those_of_the_tools_in_force(cached):
    def called(messages, **fields):
        _, _, content = ask(cached, messages, [*BASE, *LATER], max_tokens=200, **fields)
        return [block["name"] for block in content if block["type"] == "tool_use"]

    turn = [QUESTION, *found_by_search("weather")]
    named = {"tool_choice": {"type": "tool", "name": "weather"}}
    assert called(turn, **named) == ["weather"]
    body = {"model": "canary", "messages": [QUESTION], "tools": [*BASE, *LATER], "max_tokens": 1, **named}
    assert cached.http.post("/v1/messages", json=body).status_code == 400
    assert set(called(turn, tool_choice={"type": "any"}, temperature=1, seed=3)) <= {"search", "read", "weather"}


def test_where_nothing_can_be_placed_all_tools_in_force_are_at_the_head(cached):
    def counted(messages, tools, **fields):
        body = {"model": "canary", "messages": messages, "tools": tools, **fields}
        return cached.http.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]

    turn = [QUESTION, *found_by_search("weather")]
    named = [QUESTION, turn[1], {"role": "user", "content": [{**turn[2]["content"][0], "content": "weather"}]}]
    assert counted(turn, [LATER[0]]) == counted(named, [tool("weather")])
    assert counted(turn, [LATER[0], *BASE], tool_choice={"type": "none"}) == counted(named, [])
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert counted([QUESTION], [search, *LATER]) == counted([QUESTION], [tool("weather"), tool("forecast")])
    assert counted([QUESTION], [*BASE, *LATER]) == counted([QUESTION], BASE)


@pytest.mark.parametrize("messages, words", [
    ([QUESTION, *found_by_search("unknown")], "unknown"),
    ([QUESTION, {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "mcp_toolset_reference"}}]}], "mcp_toolset_reference"),
    ([QUESTION, {"role": "system", "content": [
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": f"t{i}"}}} for i in range(10000)]}], "512"),
    ([QUESTION, {"role": "system", "content": [
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("x" * (1 << 20))}}]}], "too long"),
])
def test_hostile_changes_are_refused_in_words(cached, messages, words):
    reply = cached.http.post("/v1/messages", json={"model": "canary", "messages": messages, "tools": BASE, "max_tokens": 1})
    assert reply.status_code == 400 and words in reply.json()["error"]["message"], reply.text[:300]


# ---- Responses ----

SEARCH = {"type": "tool_search", "execution": "client", "description": "Searches tools.", "parameters": tool("search")["input_schema"]}
READ, WEATHER, FORECAST = function("read"), function("weather", defer_loading=True), function("forecast", defer_loading=True)


def search_found(*tools):
    own = {"call_id": "s1", "execution": "client", "status": "completed"}
    return [{"type": "tool_search_call", "arguments": {"query": "weather"}, **own}, {"type": "tool_search_output", "tools": list(tools), **own}]


def additional(*tools):
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def test_tools_of_items_leave_the_prefix(cached):
    turn = [QUESTION, *search_found(WEATHER)]
    assert_kept(cached, ([QUESTION], [SEARCH, READ]), (turn, [SEARCH, WEATHER, READ, FORECAST]), respond)
    later = [QUESTION, {"role": "assistant", "content": "None."}, {"role": "user", "content": "And now?"}, additional(function("inline"))]
    assert_kept(cached, ([QUESTION], [READ]), (later, [READ]), respond)


def test_deferred_tools_need_a_search_of_the_client(cached):
    def counted(tools):
        return respond(cached, [QUESTION], tools, max_output_tokens=1)[0]

    assert counted([SEARCH, READ, WEATHER]) == counted([SEARCH, READ])
    assert counted([READ, WEATHER]) == counted([READ, function("weather")])
    assert counted([READ, {"type": "tool_search", "execution": "server"}]) == counted([READ])


@pytest.mark.parametrize("tools", [search_found(WEATHER), [additional(WEATHER)]])
def test_calls_of_tools_of_items(cached, tools):
    named = {"tool_choice": {"type": "function", "name": "weather"}, "max_output_tokens": 200}
    _, _, output = respond(cached, [QUESTION, *tools], [SEARCH, READ], **named)
    assert [(item["type"], item["name"]) for item in output if "call" in item["type"]] == [("function_call", "weather")]


def test_a_search_for_tools_is_an_item_of_its_own(cached):
    body = {"model": "canary", "input": [QUESTION], "tools": [SEARCH], "tool_choice": "required", "max_output_tokens": 200, "temperature": 0,
            "store": False}
    item = cached.http.post("/v1/responses", json=body).json()["output"][-1]
    assert item["type"] == "tool_search_call" and item["execution"] == "client" and isinstance(item["arguments"], dict)
    streamed = [e for e in events(cached.http.post("/v1/responses", json={**body, "stream": True}).text) if e != "[DONE]"]
    done = [e["item"] for e in streamed if e["type"] == "response.output_item.done"][-1]
    assert done["arguments"] == item["arguments"] and not any("function_call" in e["type"] for e in streamed)
    back = [QUESTION, item, {**search_found(WEATHER)[1], "call_id": item["call_id"]}]
    named = {"tool_choice": {"type": "function", "name": "weather"}, "max_output_tokens": 200}
    assert respond(cached, back, [SEARCH], **named)[2][-1]["name"] == "weather"


@pytest.mark.parametrize("item, words", [
    ({"type": "additional_tools", "role": "developer"}, "list of tools"),
    (additional({"type": "function"}), "needs a name"),
    (additional(*[{"type": "function", "name": f"t{i}"} for i in range(10000)]), "512"),
    ({**search_found()[0], "arguments": 5}, "arguments"),
])
def test_hostile_items_are_refused_in_words(cached, item, words):
    reply = cached.http.post("/v1/responses", json={"model": "canary", "input": [QUESTION, item], "tools": [READ], "max_output_tokens": 16})
    assert reply.status_code == 400 and words in reply.json()["error"]["message"], reply.text[:300]
