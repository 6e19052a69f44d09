"""Tools that a client adds to its list, removes or reorders between turns: the head of the prompt stays, the
prefix cache has it, and a reply is the same with an empty cache."""

import json
import struct

import pytest

from conftest import FEW_PAGES, MODEL, TOP, Server, account, serving
from test_cache import clear
from test_tool_changes import tool

PAGE = 32
SYSTEM = "You are a careful agent. " + "Read the manual page before you use a command, and say what you found. " * 30
NAMES = ["search", "read", "write"]


def dense(folder):
    """Golden Qwen3 with the bundled model's tokenizer and template: each row of its embedding 16 times."""
    source = TOP / "tests/golden/data/qwen3"
    data = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, tensors = json.loads(data[8:8 + size]), data[8 + size:]
    rows = header["model.embed_tokens.weight"]
    begin, end = rows["data_offsets"]
    for name, row in header.items():
        if name != "__metadata__" and row["data_offsets"][0] >= end:
            row["data_offsets"] = [at + 15 * (end - begin) for at in row["data_offsets"]]
    rows["data_offsets"], rows["shape"] = [begin, begin + 16 * (end - begin)], [8192, rows["shape"][1]]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + tensors[:begin] + tensors[begin:end] * 16 + tensors[end:])
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 8192, "max_position_embeddings": 16384}))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).symlink_to(MODEL / name)
    return folder


class Both(Server):
    """The bundled model, which is hybrid, and a dense one."""

    def arguments(self):
        return [str(MODEL), str(self.dense), FEW_PAGES]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    Both.dense = dense(tmp_path_factory.mktemp("models"))
    with serving("--host-cache", "256M", kind=Both) as s:
        yield s


@pytest.fixture(params=["canary", "dense"])
def model(request):
    return "canary" if request.param == "canary" else Both.dense.name


def offered(*names, **more):
    return [{"type": "function", "function": {"name": n, "description": tool(n)["description"], "parameters": tool(n)["input_schema"], **more}}
            for n in names]


def ask(server, model, messages, tools, **fields):
    """Prompt tokens, cached ones, and the reply's tokens."""
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 8, "return_token_ids": True, **fields}
    reply = server.http.post("/v1/chat/completions", json=body | ({"tools": tools} if tools is not None else {}))
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], reply.json()["choices"][0]


def begun(question):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def later(messages, *texts):
    return messages + [m for text in texts for m in ({"role": "assistant", "content": "Done."}, {"role": "user", "content": text})]


def whole_pages(tokens):
    """Pages that the next turn shares: not the last one, where a reply begins."""
    return (tokens - 1) // PAGE * PAGE - PAGE


def assert_found(server, model, turns):
    """Each turn finds the pages of the turn before it. An empty cache gives the same reply."""
    clear(server)
    could = 0
    for messages, tools in turns:
        whole, found, reply = ask(server, model, messages, tools)
        assert found >= could, (found, could)
        clear(server)
        again, none, same = ask(server, model, messages, tools)
        assert (none, again, same["token_ids"]) == (0, whole, reply["token_ids"])
        could = whole_pages(whole)


def test_an_added_tool_leaves_the_prefix(both, model):
    first = begun("Which files are there?")
    second = later(first, "And in the folder above?")
    # A tool that came stays where it came, whatever comes after it, and wherever the client lists it.
    assert_found(both, model, [(first, offered(*NAMES)), (second, offered("weather", *NAMES)),
                               (later(second, "And now?"), offered(*NAMES, "weather")),
                               (later(second, "And now?", "Once more?"), offered(*NAMES, "weather", "forecast"))])


def test_a_removed_tool_leaves_the_prefix(both, model):
    first = begun("Who wrote this?")
    second = later(first, "And when?")
    assert_found(both, model, [(first, offered(*NAMES)), (second, offered("search", "write")),
                               (later(second, "Read it."), offered(*NAMES))])


def test_an_order_of_its_own_changes_nothing(both, model):
    first = begun("How large is it?")
    second = later(first, "In bytes?")
    reordered = [{key: t[key] for key in reversed(t)} for t in reversed(offered(*NAMES))]
    assert_found(both, model, [(first, offered(*NAMES)), (second, reordered)])
    turns = []
    for tools in (offered(*NAMES), reordered):
        clear(both)
        ask(both, model, first, offered(*NAMES))
        turns.append([*ask(both, model, second, tools)[:2]])
    assert turns[0] == turns[1] and turns[0][1] > 0


def test_a_changed_tool_leaves_the_prefix(both, model):
    first = begun("What is its name?")
    changed = offered("read", description="Reads a file as bytes.")
    assert_found(both, model, [(first, offered(*NAMES)), (later(first, "Really?"), [*offered("search"), *changed, *offered("write")])])


def test_a_turn_without_tools_leaves_the_prefix(both, model):
    first = begun("What is it for?")
    assert_found(both, model, [(first, offered(*NAMES)), (later(first, "Summarize the conversation."), None)])


def test_a_turn_of_results_leaves_the_prefix(both, model):
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"query": "a"}'}}
    first = begun("What does it say?")
    second = [*first, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "Nothing."}]
    assert_found(both, model, [(first, offered(*NAMES)), (second, offered(*NAMES, "weather"))])


def test_the_prompt_has_the_changes_where_they_came(both):
    def prompt(messages, tools):
        body = {"model": "canary", "messages": messages, "tools": tools, "max_tokens": 1, "return_token_ids": True}
        ids = both.http.post("/v1/chat/completions", json=body).json()["prompt_token_ids"]
        return both.http.post("/detokenize", json={"model": "canary", "tokens": ids}).json()["prompt"]

    first = begun("Where is the log?")
    second = later(first, "And the journal?")
    head = prompt(first, offered(*NAMES))
    text = prompt(second, offered("search", "write", "weather"))
    same = head[:head.rindex("Where is the log?")]
    assert text.startswith(same)
    behind = text[text.index("And the journal?"):]
    assert "The tool read is no longer available." in behind and '"weather"' in behind and "More tools are available" in behind
    # Most of the tools are others: the conversation begins anew.
    other = prompt(second, offered("lamp", "switch"))
    assert '"search"' not in other and other.index("lamp") < other.index("Where is the log?")
    assert "No tool is available any longer." in prompt(second, [])


def test_calls_are_those_of_the_tools_in_force(both):
    first = begun("What is the weather?")
    second = later(first, "And tomorrow?")
    ask(both, "canary", first, offered(*NAMES))
    tools = offered("search", "write", "weather")
    named = {"tool_choice": {"type": "function", "function": {"name": "weather"}}, "max_tokens": 200}
    _, found, reply = ask(both, "canary", second, tools, **named)
    assert found > 0 and [c["function"]["name"] for c in reply["message"]["tool_calls"]] == ["weather"]
    body = {"model": "canary", "messages": second, "tools": tools, "tool_choice": {"type": "function", "function": {"name": "read"}}}
    assert both.http.post("/v1/chat/completions", json=body).status_code == 400
    _, _, reply = ask(both, "canary", second, tools, tool_choice="required", temperature=1, seed=3, max_tokens=200)
    assert {c["function"]["name"] for c in reply["message"].get("tool_calls", [])} <= {"search", "write", "weather"}


def test_other_salts_and_beginnings_have_heads_of_their_own(both):
    turn = later(begun("Whose is it?"), "And that?")
    tools = offered("weather", *NAMES)
    whole, _, _ = ask(both, "canary", turn, tools, cache_salt="a")
    ask(both, "canary", turn[:2], offered(*NAMES))
    assert ask(both, "canary", turn, tools)[0] > whole
    assert ask(both, "canary", turn, tools, cache_salt="b")[0] == whole
    turn[1] = {"role": "user", "content": "Whose is it!"}
    assert ask(both, "canary", turn, tools)[0] == whole


def test_the_first_turn_has_a_head_of_its_own(both):
    """Several first turns of one text and other tools, and each of their second ones."""
    first = begun("What is new?")
    clear(both)
    wholes = [ask(both, "canary", first, offered(*names))[0] for names in (NAMES, NAMES[:2])]
    for names, whole in zip((NAMES, NAMES[:2]), wholes):
        _, found, _ = ask(both, "canary", later(first, "And old?"), offered(*names))
        assert found >= whole_pages(whole)


class Dense(Both):
    """A model that reads long prompts in no time."""

    def arguments(self):
        return [str(self.dense), FEW_PAGES]


def test_memory_is_bounded_and_counted(both):
    name = Both.dense.name
    with serving("--conversation-store", "256K", kind=Dense) as s:
        for i in range(60):
            ask(s, name, [{"role": "user", "content": f"Question {i}?"}], offered(f"tool{i}", description="directory " * 1200), max_tokens=1)
            row = account(s.http.get("/api/memory").json(), "conversations")
            assert 0 < row["used_bytes"] <= row["limit_bytes"] == 256 << 10
        # One that does not fit is rendered anew.
        ask(s, name, [{"role": "user", "content": "A long one?"}], offered("huge", description="directory " * 6800), max_tokens=1)


def test_it_can_be_off_and_a_restart_renders_anew():
    first = begun("What was said?")
    turns = [(first, offered(*NAMES)), (later(first, "And before?"), offered("weather", *NAMES))]
    with serving(FEW_PAGES, "--conversation-store", "0", "--host-cache", "256M") as s:
        assert [ask(s, "canary", *turn)[1] for turn in turns][1] == 0
        off = ask(s, "canary", *turns[1])[0]
    with serving(FEW_PAGES, "--host-cache", "256M") as s:
        assert ask(s, "canary", *turns[1])[0] == off
