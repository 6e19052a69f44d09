"""Where prompts are cut: what an agent's requests have in common is found again, to the page.

The bundled model is hybrid, so a prefix is only found where a snapshot of its state was taken: at a cut. What
two prompts have in common is counted in their tokens, as /tokenize gives them."""

import pytest

from conftest import serving
from test_cache import cached_tokens, clear

PAGE = 32
TOOLS = [{"type": "function",
          "function": {"name": "run", "description": "Runs a command and returns what it prints.",
                       "parameters": {"type": "object", "required": ["command"],
                                      "properties": {"command": {"type": "string", "description": "The command line."}}}}}]
SYSTEM = {"role": "system", "content": "You are a careful agent. " + "Read the manual page before you use a command. " * 6}


@pytest.fixture(scope="module")
def cached():
    with serving("--host-cache", "256M") as s:
        clear(s)
        yield s


def user(words):
    return {"role": "user", "content": words}


def call(command, reasoning=None):
    """An assistant's message that calls the tool."""
    function = {"name": "run", "arguments": '{"command": "%s"}' % command}
    message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    return message | ({"reasoning_content": reasoning} if reasoning else {})


def result(words):
    return {"role": "tool", "tool_call_id": "c1", "content": words}


def tokens_of(server, messages):
    reply = server.post("/tokenize", messages=messages, tools=TOOLS)
    assert reply.status_code == 200, reply.text
    return reply.json()["tokens"]


def ask(server, messages, max_tokens=4, **fields):
    """Its tokens, how many of them were hits, and its text."""
    reply = server.post("/v1/chat/completions", messages=messages, tools=TOOLS, temperature=0, max_tokens=max_tokens,
                        return_token_ids=True, **fields)
    found = cached_tokens(reply)
    prompt = tokens_of(server, messages)
    assert reply.json()["usage"]["prompt_tokens"] == len(prompt)
    return prompt, found, reply.json()["choices"][0]["token_ids"]


def pages_in_common(a, b):
    """In tokens; the last one of a prompt is always computed."""
    n = 0
    while n < min(len(a), len(b) - 1) and a[n] == b[n]:
        n += 1
    return n // PAGE * PAGE


@pytest.mark.smoke
def test_another_conversation_begins_behind_system_and_tools(cached):
    first, _, _ = ask(cached, [SYSTEM, user("What does mkdir do? " * 10)])
    for words in ("How do I list files? " * 10, "Rename a.txt."):
        prompt, found, _ = ask(cached, [SYSTEM, user(words)])
        assert found == pages_in_common(first, prompt) > 100


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/responses"])
def test_another_second_system_message_leaves_the_first(cached, route):
    """A client writes its developer message anew when it has compacted the conversation."""
    def found(words):
        more = [{"role": "developer", "content": words}, user("What does ls do?")]
        if route == "/v1/responses":
            usage = cached.post(route, instructions=SYSTEM["content"] * 2, input=more, max_output_tokens=1, store=False).json()["usage"]
            return usage["input_tokens_details"]["cached_tokens"]
        usage = cached.post(route, messages=[{**SYSTEM, "content": SYSTEM["content"] * 2}, *more], max_tokens=1).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    clear(cached)
    assert found("You may write files. " * 20) == 0
    size = len(cached.post("/tokenize", prompt=SYSTEM["content"] * 2).json()["tokens"])
    assert found("Write no file. " * 20) >= size - PAGE > 100


def test_every_turn_of_an_agent_begins_where_the_last_one_ended(cached):
    messages = [SYSTEM, user("Look around in this directory and tell me what you see. " * 3)]
    said = []
    for turn in range(12):
        prompt, found, answer = ask(cached, messages, max_tokens=8)
        # A cut is before a message's head, which two prompts may still share: a page at most.
        assert found >= pages_in_common(said, prompt) - PAGE
        assert turn == 0 or found > len(said) - 8 - 2 * PAGE
        said = prompt + answer
        messages += [call(f"ls -l {turn}"), result(f"file{turn}.c  {100 * turn} bytes\n" * 4)]


def test_where_earlier_reasoning_is_dropped_the_rest_is_found(cached):
    messages = [SYSTEM, user("Find the largest file of this directory, please, and say how large it is. " * 2)]
    for turn in range(6):
        messages += [call(f"du {turn}", reasoning=f"I shall look at number {turn}. " * 3), result(f"{turn} kB\n" * 12)]
    # Nothing was asked before; then a new question, and the reasoning of all six turns is gone from the
    # prompt.
    clear(cached)
    said, _, _ = ask(cached, messages)
    messages += [{"role": "assistant", "content": "The sixth is the largest."}, user("Thank you. And the smallest?")]
    prompt, found, _ = ask(cached, messages)
    common = pages_in_common(said, prompt)
    question = tokens_of(cached, messages[:2])
    assert len(prompt) > 2 * common  # this much was rendered anew
    assert common - PAGE <= found <= common
    assert found >= pages_in_common(question, prompt) - PAGE > 100


def test_a_question_asked_again_differently_begins_at_the_turn_before(cached):
    messages = [SYSTEM, user("Which shells are there? " * 4)]
    messages += [call("cat /etc/shells"), result("/bin/sh\n/bin/bash\n" * 10), {"role": "assistant", "content": "Two."}]
    first, _, _ = ask(cached, messages + [user("Which one is mine? " * 10)])
    prompt, found, _ = ask(cached, messages + [user("Say more about bash. " * 10)])
    common = pages_in_common(first, prompt)
    assert common - PAGE <= found <= common and common > 200


def test_what_is_found_changes_no_token(cached):
    messages = [SYSTEM, user("What does chmod do? " * 4), call("man chmod"), result("change file mode bits. " * 12),
                user("And chown? " * 4)]
    clear(cached)
    for end in (2, 4, 5):
        ask(cached, messages[:end])
    _, found, warm = ask(cached, messages, max_tokens=48)
    clear(cached)
    _, nothing, cold = ask(cached, messages, max_tokens=48)
    assert found > 0 == nothing
    assert warm == cold


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/responses"])
def test_a_breakpoint_within_a_message_is_a_cut(cached, route):
    """The text after it differs, in the middle of a message that has the same words again."""
    fixed = f"{route} The manual says what each option does. " * 12
    chat = route != "/v1/responses"

    def found(words, marked):
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if marked else {}
        kind = "text" if chat else "input_text"
        content = [{"type": kind, "text": f"{marked} {fixed}", **mark}, {"type": kind, "text": words + fixed}]
        turns = [{"role": "user", "content": "Hello. " * 9}, {"role": "assistant", "content": "Yes."},
                 {"role": "user", "content": content}]
        body = {"messages": turns, "max_tokens": 1} if chat else {"input": turns, "max_output_tokens": 1, "store": False}
        usage = cached.post(route, **body).json()["usage"]
        return usage["prompt_tokens_details" if chat else "input_tokens_details"]["cached_tokens"]

    found("First. ", False), found("One. ", True)
    plain, marked = found("Second. ", False), found("Two. ", True)
    size = len(cached.post("/tokenize", prompt=fixed).json()["tokens"])
    assert plain < size / 2 and marked > size - 2 * PAGE > 60


@pytest.mark.parametrize("route, name, kind", [("/v1/chat/completions", "messages", "text"), ("/v1/responses", "input", "input_text")])
def test_breakpoints_in_every_part_cost_what_the_parts_do(cached, route, name, kind):
    """100,000 of them without a text: counting all parts before each one took two minutes."""
    part = {"type": kind, "text": "", "prompt_cache_breakpoint": {}}
    content = [part] * 100000 + [{"type": kind, "text": "What does ls do?"}]
    assert cached.http.post(route, json={name: [user(content)], "store": False}, timeout=60).status_code == 200
