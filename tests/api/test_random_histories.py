"""Random histories with tools that come and go, rendered in place: a slow reference writes the same prompt.
It is compared by the keys of its pages, which are hashes of all tokens before them, and by its number of
tokens."""

import json
import os
import random

import pytest

from conftest import FEW_PAGES, Server, prompt_tokens, serving
from test_later_tools import dense, offered
from test_tool_changes import tool

PAGE = 32
SEED = int(os.environ.get("PLATEAU_SEED") or random.randrange(1 << 30))
SYSTEM = "Answer in one sentence."
WORDS = "directory file user process signal socket kernel shell path group owner mode link".split()
ADDED = "More tools are available from here on:\n"


class Small(Server):
    """A small dense model: each page that was computed is found."""

    def arguments(self):
        return [str(self.dense), FEW_PAGES, "--host-cache", "64M"]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    Small.dense = dense(tmp_path_factory.mktemp("models"))
    with serving(kind=Small) as s:
        yield s


# ---- the reference: what the template writes, by hand ----


def definition(t):
    return json.dumps({"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]}})


class Prompt:
    """Writes the prompt of a history; the set of tools is in force at its end."""

    def __init__(self, head):
        self.head, self.force, self.written, self.turns = list(head), {t["name"]: t for t in head}, {t["name"]: t for t in head}, []

    def bring(self, parts, t, lead):
        if self.written.get(t["name"]) == t:
            parts.append(["line", f"The tool {t['name']} is available."])
        elif parts and parts[-1][0] == "tools" and parts[-1][1] == lead:
            parts[-1][2].append(t)
        else:
            parts.append(["tools", lead, [t]])
        self.force[t["name"]] = self.written[t["name"]] = t

    def take(self, parts, name):
        self.force.pop(name, None)
        parts.append(["line", f"The tool {name} is no longer available."])

    @staticmethod
    def text(parts):
        """What is written of tools begins a line; texts of the client are joined without a separator."""
        done = ""
        for kind, words, *tools in parts:
            line = "\n" if done and kind != "text" else ""
            done += line + words + "\n".join(definition(t) for t in (tools[0] if tools else []))
        return done

    def write(self):
        tools = "".join("\n" + definition(t) for t in self.head)
        call = "<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>"
        done = f"<|im_start|>system\n# Tools\n\nThese functions can be called:\n\n<tools>{tools}\n</tools>\n\nA call is written as:\n\n{call}"
        done += f"\n\n{SYSTEM}<|im_end|>\n"
        last = max(i for i, turn in enumerate(self.turns) if turn[0] == "user")
        for i, (role, content, *more) in enumerate(self.turns):
            if role == "user":
                done += f"<|im_start|>user\n{content}<|im_end|>\n"
            elif role == "tool":
                done += f"<|im_start|>user\n<tool_response>\n{content}\n</tool_response><|im_end|>\n"
            else:
                thought, query = more
                think = "" if i < last else f"<think>\n{thought}\n</think>\n\n" if thought else "<think>\n\n</think>\n\n"
                made = query and ("\n" if content else "") + (
                    f"<tool_call>\n<function={query[0]}>\n<parameter=query>\n{query[1]}\n</parameter>\n</function>\n</tool_call>")
                done += f"<|im_start|>assistant\n{think}{content}{made or ''}<|im_end|>\n"
        return done + "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def sentence(draw):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(3, 12))) + "."


def history(draw):
    """A body of Messages, and its prompt."""
    names = [f"tool{i}" for i in range(8)]
    tools = [tool(n, **({"defer_loading": True} if i > 2 else {})) for i, n in enumerate(names)]
    plain = {n: tool(n) for n in names}
    p, messages = Prompt([plain[n] for n in names[:3]]), []

    def user():
        text = sentence(draw)
        messages.append({"role": "user", "content": text})
        p.turns.append(("user", text))

    def change():
        """A message of the system joins the user's turn before it, but no result."""
        blocks, parts = [], []
        for _ in range(draw.randint(1, 4)):
            kind, name = draw.choice(["add", "define", "remove", "text"]), draw.choice(names)
            if kind == "text":
                blocks.append({"type": "text", "text": sentence(draw)})
                parts.append(["text", blocks[-1]["text"]])
            elif kind == "define":
                own = tool(f"own{draw.randint(0, 3)}")
                blocks.append({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": own}})
                p.bring(parts, own, ADDED)
            elif kind == "add":
                blocks.append({"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}})
                p.bring(parts, plain[name], ADDED)
            else:
                blocks.append({"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}})
                p.take(parts, name)
        messages.append({"role": "system", "content": blocks})
        if p.turns[-1][0] == "user":
            p.turns[-1] = ("user", f"{p.turns[-1][1]}\n\n{p.text(parts)}")
        else:
            p.turns.append(("user", p.text(parts)))

    def reply(call):
        text, thought = draw.choice(["", sentence(draw)]) if call else sentence(draw), draw.choice(["", sentence(draw)])
        query = (draw.choice(sorted(p.written)), sentence(draw)) if call else None
        blocks = [{"type": "thinking", "thinking": thought, "signature": "s"}] if thought else []
        blocks += [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": f"c{len(messages)}", "name": query[0], "input": {"query": query[1]}}] if call else []
        messages.append({"role": "assistant", "content": blocks})
        p.turns.append(("assistant", text, thought, query))

    def result():
        parts, blocks = [], []
        for name in draw.sample(names, draw.choice([0, 0, 1, 2, 3])):
            blocks.append({"type": "tool_reference", "tool_name": name})
            if name in p.force:
                parts.append(["line", name])
            else:
                p.bring(parts, plain[name], "")
        if not blocks:
            blocks = sentence(draw)
            parts = [["text", blocks]]
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": messages[-1]["content"][-1]["id"], "content": blocks}]})
        p.turns.append(("tool", p.text(parts)))

    user()
    for _ in range(draw.randint(0, 6)):
        if draw.random() < 0.4:
            change()
        reply(call := draw.random() < 0.5)
        result() if call else user()
    if p.turns[-1][0] == "user" and draw.random() < 0.5:
        change()
    draw.shuffle(tools[3:])
    return {"system": SYSTEM, "messages": messages, "tools": tools}, p


def assert_same(server, name, body, prompt, seed):
    usage = server.http.post("/v1/messages", json={"model": name, "max_tokens": 1, **body})
    assert usage.status_code == 200, (seed, usage.text)
    whole = prompt_tokens(usage.json()["usage"])
    same = server.http.post("/v1/completions", json={"model": name, "max_tokens": 1, "prompt": prompt, "add_special_tokens": False}).json()["usage"]
    assert same["prompt_tokens"] == whole, (seed, prompt)
    assert same["prompt_tokens_details"]["cached_tokens"] >= (whole - 1) // PAGE * PAGE, (seed, prompt)


@pytest.mark.parametrize("part", range(4))
def test_random_histories_are_those_of_the_reference(small, part):
    for i in range(250):
        seed = f"{SEED}.{part}.{i}"
        body, p = history(random.Random(seed))
        assert_same(small, Small.dense.name, body, p.write(), seed)


def lists(draw):
    """Turns of a chat, each with the tools that its client lists, and its prompt."""
    names, p, turns, messages = [f"tool{i}" for i in range(14)], Prompt([tool(f"tool{i}") for i in range(3)]), [], []
    listed = [t["name"] for t in p.head]
    for i in range(draw.randint(2, 5)):
        text, parts = sentence(draw), []
        messages = [*messages, {"role": "user", "content": text}]
        if i > 0:
            gone = draw.sample(listed, draw.choice([0, 0, 0, 1]) if len(listed) > 2 else 0)
            come = draw.sample([n for n in names if n not in listed], draw.choice([0, 1, 2]))
            for name in sorted(gone, key=list(p.force).index):
                p.take(parts, name)
            listed = [n for n in listed if n not in gone] + come
            draw.shuffle(listed)
            for name in [n for n in listed if n in come]:
                p.bring(parts, tool(name), ADDED)
        p.turns.append(("user", text + ("\n\n" + p.text(parts) if parts else "")))
        turns.append((messages, offered(*listed), p.write()))
        said = sentence(draw)
        messages = [*messages, {"role": "assistant", "content": said}]
        p.turns.append(("assistant", said, "", None))
    return turns


def test_random_lists_are_those_of_the_reference(small):
    for i in range(150):
        seed = f"{SEED}.lists.{i}"
        for messages, tools, prompt in lists(random.Random(seed)):
            body = {"model": Small.dense.name, "messages": [{"role": "system", "content": SYSTEM}, *messages], "tools": tools,
                    "max_tokens": 1, "return_token_ids": True, "cache_salt": seed}
            reply = small.http.post("/v1/chat/completions", json=body)
            assert reply.status_code == 200, (seed, reply.text)
            ids = small.http.post("/tokenize", json={"model": Small.dense.name, "prompt": prompt, "add_special_tokens": False}).json()["tokens"]
            assert reply.json()["prompt_token_ids"] == ids, (seed, prompt)


# ---- hostile ones ----


def system(*blocks):
    return [{"role": "user", "content": "Hello."}, {"role": "system", "content": list(blocks)}]


def add(t):
    return {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": t}}


@pytest.mark.parametrize("messages, words", [
    (system({"type": "tool_addition", "tool": {"type": "tool_reference", "name": "nowhere"}}), "nowhere"),
    (system(add(tool("big") | {"description": "directory " * 110_000})), "prompt is too long"),
    (system(*[add(tool(f"t{i}")) for i in range(10_000)]), "512"),
    (system(*[{"type": kind, "tool": {"type": "tool_reference", "name": "read"}} for _ in range(5000) for kind in ("tool_removal", "tool_addition")]),
     "prompt is too long"),
])
def test_hostile_changes_are_refused_in_words_and_bounded(small, messages, words):
    before = small.memory()["system"]["heap_bytes"]
    body = {"model": Small.dense.name, "messages": messages, "tools": [tool("search"), tool("read")], "max_tokens": 1}
    reply = small.http.post("/v1/messages", json=body)
    assert reply.status_code == 400, reply.text[:300]
    message = reply.json()["error"]["message"]
    assert len(message) < 600 and words in message, message
    small.wait_idle()
    assert small.memory()["system"]["heap_bytes"] - before < 64 << 20
