"""Random histories with tools that come and go, rendered in place: a slow reference writes the same prompt.
It is compared by the keys of its pages, which are hashes of all tokens before them, and by its number of
tokens."""

import base64
import json
import os
import random
import re

import pytest

from conftest import FEW_PAGES, Server, prompt_tokens, serving
from seeing import IMAGES
from test_compaction import TRIGGER, summary
from test_later_tools import dense, offered
from test_tool_changes import SEARCH, additional, function, search_found, tool

PAGE = 32
SEED = int(os.environ.get("PLATEAU_SEED") or random.randrange(1 << 30))
SYSTEM = "Answer in one sentence."
WORDS = "directory file user process signal socket kernel shell path group owner mode link".split()
ADDED = "More tools are available from here on:\n"
SUMMARY = "Summary of the conversation until here:\n\n"


class Small(Server):
    """A small dense model: each page that was computed is found."""

    def arguments(self):
        return [str(self.dense), FEW_PAGES, "--host-cache", "64M"]


@pytest.fixture(scope="module")
def eyes():
    with serving(FEW_PAGES, "--host-cache", "64M") as s:
        yield s


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

    def restart(self):
        """Removes all turns. Returns the tools that were in force."""
        force = list(self.force.values())
        self.force, self.written, self.turns = {t["name"]: t for t in self.head}, {t["name"]: t for t in self.head}, []
        return force

    @staticmethod
    def text(parts):
        """Text about tools begins a line; texts of the client are joined without a separator."""
        done = ""
        for kind, words, *tools in parts:
            line = "\n" if done and kind != "text" else ""
            done += line + words + "\n".join(definition(t) for t in (tools[0] if tools else []))
        return done

    def chat(self):
        """The fields of a chat: its messages have the texts of tools, and the images."""
        messages = [{"role": "system", "content": SYSTEM}]
        for role, content, *more in self.turns:
            parts = [{"type": "image_url", "image_url": {"url": url_of(piece)}} if i % 2 else {"type": "text", "text": piece}
                     for i, piece in enumerate(re.split("\0(.)", content)) if piece]
            messages.append({"role": role, "content": parts if len(parts) != 1 else content})
            if role == "tool":
                messages[-1]["tool_call_id"] = "c"
            if role == "assistant" and more[0]:
                messages[-1]["reasoning_content"] = more[0]
            if role == "assistant" and more[1]:
                call = {"name": more[1][0], "arguments": json.dumps({"query": more[1][1]})}
                messages[-1]["tool_calls"] = [{"id": "c", "type": "function", "function": call}]
        return {"messages": messages, "tools": [{"type": "function", "function": json.loads(definition(t))["function"]} for t in self.head]}

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


class Seeing(random.Random):
    """Draws images, too. In a prompt, an image is a NUL and its number."""


def image_of(draw):
    return "\0" + draw.choice("01234567") if isinstance(draw, Seeing) and draw.random() < 0.4 else ""


def url_of(number):
    return "data:image/png;base64," + base64.b64encode((IMAGES / f"{number}.png").read_bytes()).decode()


def block_of(image):
    """A list of the image in Messages."""
    return [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": url_of(image[1]).split(",")[1]}}] if image else []


def item_of(text, image):
    """The content of an item of Responses."""
    return [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url_of(image[1])}] if image else text


def sentence(draw):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(3, 12))) + "."


def history(draw):
    """A body of Messages, and its prompt."""
    names = [f"tool{i}" for i in range(8)]
    tools = [tool(n, **({"defer_loading": True} if i > 2 else {})) for i, n in enumerate(names)]
    plain = {n: tool(n) for n in names}
    p, messages = Prompt([plain[n] for n in names[:3]]), []

    def user():
        text, image = sentence(draw), image_of(draw)
        messages.append({"role": "user", "content": [{"type": "text", "text": text}, *block_of(image)]})
        p.turns.append(("user", text + image))

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
            text, image = sentence(draw), image_of(draw)
            blocks = [{"type": "text", "text": text}, *block_of(image)]
            parts = [["text", text + image]]
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": messages[-1]["content"][-1]["id"], "content": blocks}]})
        p.turns.append(("tool", p.text(parts)))

    def compact():
        """The block replaces all turns, and the next question joins its turn."""
        text, parts, changes = sentence(draw), [], []
        p.restart()
        parts.append(["text", SUMMARY + text])
        for name in draw.sample(names, draw.randint(0, 2)):
            removes = name in p.force
            changes.append({"type": "tool_removal" if removes else "tool_addition", "tool": {"type": "tool_reference", "name": name}})
            p.take(parts, name) if removes else p.bring(parts, plain[name], ADDED)
        messages.append({"role": "assistant", "content": [{"type": "compaction", "content": text, "tool_changes": changes}]})
        messages.append({"role": "user", "content": sentence(draw)})
        p.turns.append(("user", p.text([*parts, ["text", "\n\n" + messages[-1]["content"]]])))

    user()
    for _ in range(draw.randint(0, 6)):
        if draw.random() < 0.4:
            change()
        if draw.random() < 0.15:
            compact()
        reply(call := draw.random() < 0.5)
        result() if call else user()
    if p.turns[-1][0] == "user" and draw.random() < 0.5:
        change()
    draw.shuffle(tools[3:])
    return {"system": SYSTEM, "messages": messages, "tools": tools}, p


def prompt_of(p, name):
    """Returns an equal prompt for another request: a text, or a chat with images."""
    if "\0" in str(p.turns) or name == "canary":
        return "/v1/chat/completions", {"model": name, "max_tokens": 1, **p.chat()}
    return "/v1/completions", {"model": name, "max_tokens": 1, "prompt": p.write(), "add_special_tokens": False}


def assert_same(server, name, body, p, seed):
    """`body` is one of Messages or Responses."""
    path, field = ("/v1/messages", "max_tokens") if "messages" in body else ("/v1/responses", "max_output_tokens")
    reply = server.http.post(path, json={"model": name, field: 1, **body})
    assert reply.status_code == 200, (seed, reply.text)
    usage = reply.json()["usage"]
    whole = prompt_tokens(usage) if "messages" in body else usage["input_tokens"]
    path, prompt = prompt_of(p, name)
    same = server.http.post(path, json=prompt).json()["usage"]
    assert same["prompt_tokens"] == whole, (seed, prompt)
    assert same["prompt_tokens_details"]["cached_tokens"] >= (whole - 1) // PAGE * PAGE, (seed, prompt)


@pytest.mark.parametrize("part", range(4))
def test_random_histories_are_those_of_the_reference(small, part):
    for i in range(250):
        seed = f"{SEED}.{part}.{i}"
        body, p = history(random.Random(seed))
        assert_same(small, Small.dense.name, body, p, seed)


@pytest.fixture(scope="module")
def sealed(small):
    """An item with a summary of this server."""
    items = [{"role": "user", "content": "Which files are there?"}, TRIGGER]
    body = {"model": Small.dense.name, "input": items, "store": False, "max_output_tokens": 16}
    return small.http.post("/v1/responses", json=body).json()["output"][0]


def items_of(draw, sealed):
    """A body of Responses, and its prompt."""
    names = [f"tool{i}" for i in range(8)]
    search = {"name": "tool_search", "description": SEARCH["description"], "input_schema": SEARCH["parameters"]}
    tools = [SEARCH, *(function(n, **({"defer_loading": True} if i > 2 else {})) for i, n in enumerate(names))]
    plain = {n: tool(n) for n in names}
    p, items = Prompt([search, *(plain[n] for n in names[:3])]), []

    def own():
        return [plain[n] for n in draw.sample(names, draw.choice([0, 0, 1, 2, 3]))] + [tool(f"own{draw.randint(0, 3)}")] * draw.randint(0, 1)

    def brought(tools):
        return [function(t["name"]) for t in tools]

    def user(before=""):
        text, image = sentence(draw), image_of(draw)
        items.append({"role": "user", "content": item_of(text, image)})
        p.turns.append(("user", before + text + image))

    def change():
        parts, tools = [], own() or [plain["tool5"]]
        items.append(additional(*brought(tools)))
        for t in tools:
            p.bring(parts, t, ADDED)
        if p.turns[-1][0] == "user":
            p.turns[-1] = ("user", f"{p.turns[-1][1]}\n\n{p.text(parts)}")
        else:
            p.turns.append(("user", p.text(parts)))

    def reply(call):
        text, thought = draw.choice(["", sentence(draw)]) if call else sentence(draw), draw.choice(["", sentence(draw)])
        if thought:
            items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": thought}]})
        if text:
            items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
        query = None
        if call:
            query = (draw.choice(["tool_search", *sorted(p.written)]), sentence(draw))
            asked = {"query": query[1]}
            items.append({**search_found()[0], "arguments": asked, "call_id": f"c{len(items)}"} if query[0] == "tool_search" else
                         {"type": "function_call", "call_id": f"c{len(items)}", "name": query[0], "arguments": json.dumps(asked)})
        p.turns.append(("assistant", text, thought, query))

    def result():
        call, parts = items[-1]["call_id"], []
        if items[-1]["type"] == "function_call":
            text, image = sentence(draw), image_of(draw)
            parts = [["text", text + image]]
            items.append({"type": "function_call_output", "call_id": call, "output": item_of(text, image)})
        else:
            tools = own()
            items.append({**search_found(*brought(tools))[1], "call_id": call})
            for t in tools:
                p.bring(parts, t, "")
        p.turns.append(("tool", p.text(parts or [["text", "No tools were found."]])))

    def compact():
        """The summary of a trigger replaces all items before it, and carries the tools."""
        parts, text = [], SUMMARY + summary(sealed)
        if draw.random() < 0.5:
            for t in p.restart():
                if p.force.get(t["name"]) != t:
                    p.bring(parts, t, "These tools are available:\n")
            items.append(TRIGGER)
        elif p.turns and p.turns[-1][0] == "user":
            text = p.turns.pop()[1] + "\n\n" + text
        items.append(sealed)
        before = p.text([*parts, ["text", ("\n\n" if parts else "") + text]]) + "\n\n"
        user(before)

    user()
    for _ in range(draw.randint(0, 6)):
        if draw.random() < 0.2:
            compact()
        if draw.random() < 0.4:
            change()
        reply(call := draw.random() < 0.5)
        result() if call else user()
    return {"instructions": SYSTEM, "input": items, "tools": tools, "store": False}, p


def test_random_items_are_those_of_the_reference(small, sealed):
    for i in range(300):
        seed = f"{SEED}.items.{i}"
        body, p = items_of(random.Random(seed), sealed)
        assert_same(small, Small.dense.name, body, p, seed)


def test_random_histories_with_images_are_those_of_the_reference(eyes, sealed):
    """The reference is a chat whose messages have the texts of tools."""
    for i in range(60):
        seed = f"{SEED}.images.{i}"
        body, p = history(Seeing(seed)) if i % 2 else items_of(Seeing(seed), sealed)
        assert_same(eyes, "canary", body, p, seed)


def lists(draw):
    """Turns of a chat, each with the tools that its client lists, and its prompt."""
    names, p, turns, messages = [f"tool{i}" for i in range(14)], Prompt([tool(f"tool{i}") for i in range(3)]), [], []
    listed = [t["name"] for t in p.head]
    for i in range(draw.randint(2, 5)):
        text, image, parts = sentence(draw), image_of(draw), []
        seen = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url_of(image[1])}}] if image else text
        messages = [*messages, {"role": "user", "content": seen}]
        if i > 0:
            gone = draw.sample(listed, draw.choice([0, 0, 0, 1]) if len(listed) > 2 else 0)
            come = draw.sample([n for n in names if n not in listed], draw.choice([0, 1, 2]))
            for name in sorted(gone, key=list(p.force).index):
                p.take(parts, name)
            listed = [n for n in listed if n not in gone] + come
            draw.shuffle(listed)
            for name in [n for n in listed if n in come]:
                p.bring(parts, tool(name), ADDED)
        p.turns.append(("user", text + image + ("\n\n" + p.text(parts) if parts else "")))
        turns.append((messages, offered(*listed), p.chat() if isinstance(draw, Seeing) else p.write()))
        said = sentence(draw)
        messages = [*messages, {"role": "assistant", "content": said}]
        p.turns.append(("assistant", said, "", None))
    return turns


def test_random_lists_with_images_are_those_of_the_reference(eyes):
    for i in range(15):
        seed = f"{SEED}.seen.{i}"
        for messages, tools, chat in lists(Seeing(seed)):
            body = {"model": "canary", "max_tokens": 1, "cache_salt": seed}
            usages = [eyes.http.post("/v1/chat/completions", json={**body, **fields}).json()["usage"]
                      for fields in ({"messages": [{"role": "system", "content": SYSTEM}, *messages], "tools": tools}, chat)]
            whole = usages[0]["prompt_tokens"]
            assert usages[1]["prompt_tokens"] == whole, (seed, chat)
            assert usages[1]["prompt_tokens_details"]["cached_tokens"] >= (whole - 1) // PAGE * PAGE, (seed, chat)


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

HELLO = {"role": "user", "content": "Hello."}
HUGE = tool("big") | {"description": "directory " * 110_000}
MANY = [tool(f"t{i}") for i in range(10_000)]


def add(t):
    return {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": t}}


def refer(kind, name):
    return {"type": kind, "tool": {"type": "tool_reference", "name": name}}


def system(*blocks):
    return "/v1/messages", {"messages": [HELLO, {"role": "system", "content": list(blocks)}], "tools": [tool("search"), tool("read")], "max_tokens": 1}


def items(*more, tools=()):
    return "/v1/responses", {"input": [HELLO, *more], "tools": [SEARCH, function("read"), *tools], "store": False, "max_output_tokens": 16}


def chat(tools, **fields):
    """The second turn of a conversation that the server knows."""
    offers = [{"type": "function", "function": json.loads(definition(t))["function"]} for t in tools]
    messages = [HELLO, {"role": "assistant", "content": "Hello."}, HELLO]
    return "/v1/chat/completions", {"messages": messages, "tools": [*offered("search", "read"), *offers], "max_tokens": 1, **fields}


BROUGHT = [function(t["name"]) for t in MANY]
HOSTILE = {
    "messages, an unknown tool": (system(refer("tool_addition", "nowhere")), "nowhere"),
    "messages, a large one": (system(add(HUGE)), "prompt is too long"),
    "messages, many": (system(*map(add, MANY)), "512"),
    "messages, to and fro": (system(*[refer(kind, "read") for _ in range(5000) for kind in ("tool_removal", "tool_addition")]), "prompt is too long"),
    "responses, an unknown tool": (items(additional({"type": "function"})), "needs a name"),
    "responses, a large one": (items(additional({**function("big"), "description": HUGE["description"]})), "maximum context length"),
    "responses, many": (items(additional(*BROUGHT)), "512"),
    "responses, many found": (items(*search_found(*BROUGHT)), "512"),
    "responses, many items": (items(*[additional(t) for t in BROUGHT]), "512"),
    "responses, to and fro": (items(*[additional(function(n)) for _ in range(5000) for n in ("read", "write")]), "512"),
    "chats, an unknown tool": (chat([], tool_choice={"type": "function", "function": {"name": "nowhere"}}), "nowhere"),
    "chats, a large one": (chat([HUGE]), "maximum context length"),
    "chats, many": (chat(MANY), "512"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_changes_are_refused_in_words_and_bounded(small, case):
    (path, body), words = HOSTILE[case]
    before = small.memory()["system"]["heap_bytes"]
    reply = small.http.post(path, json={"model": Small.dense.name, **body})
    assert reply.status_code == 400, reply.text[:300]
    message = reply.json()["error"]["message"]
    assert len(message) < 600 and words in message, message
    small.wait_idle()
    assert small.memory()["system"]["heap_bytes"] - before < 64 << 20
